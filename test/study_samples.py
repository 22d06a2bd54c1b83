"""Made-up runs for the tests of scripts/study: logs and plans that programs would write, with planted errors."""
import json
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
from measured_programs import Usage  # noqa: E402
from studies import budget, experiment, machine, runs, sides  # noqa: E402
from studies.experiments import EXPERIMENTS, common, strategies  # noqa: E402
from studies.inputs import Shape  # noqa: E402

import study_outputs  # noqa: E402

MACHINE = machine.Machine("host", "Test CPU", [0, 1], 0, "abc1234", "0123456789abcdef")


class FakeInputs:
    """Paths of files that are not read, and small labelled sentences."""
    texts = Path("/texts")
    SUPPORT = [6, 4]  # test sentences of each class

    def __init__(self, folder):
        self.folder = folder

    def tokenizer(self):
        return Path("/inputs/tokenizer")

    def windows(self, count, T):
        return Path(f"/inputs/train-{count}x{T}.bin")

    def most_windows(self, T):
        return 10 ** 6 // T

    def validation(self, T):
        return Path(f"/inputs/heldout-{T}.bin")

    def weights(self, shape):
        return Path("/inputs/weights")

    def has_sentences(self):
        return True

    def sentences(self, lines=None):
        folder = self.folder / f"sentences-{lines}"
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("negative", "positive"):
            (folder / f"{name}.txt").write_text("a text\n" * 50)
        return folder

    def test_sentences(self, lines=None):
        folder = self.sentences(lines)
        (folder / "test.txt").write_text("a text\n" * sum(self.SUPPORT))
        return folder

    def test_support(self, lines=None):
        return self.SUPPORT

    def hash_of(self, path):
        return path.name

    version_of = hash_of


class FakeRunner(runs.Runner):
    """Writes the log that a run would have: each rank takes 2 ms per sample, and ranks that communicate take 10 ms more.
    `change(spec, lines)` plants an error; `load(spec)` is that of other programs. Runs of classifiers and other sides write
    what study_outputs.py has."""

    def __init__(self, out, change=None, load=None):
        super().__init__(out, MACHINE, runs.Launcher(MACHINE))
        self.change, self.load, self.executed = change or (lambda *_: None), load or (lambda _: 0.0), []
        self._versions = dict.fromkeys(sides.SIDES, MACHINE.program)

    def _execute(self, spec, folder):
        self.executed.append(spec.label())
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        words = list(spec.flags)
        if spec.side == "plan" and "--plan" in words:
            (folder / "plan.txt").write_text("plan of ranks\n", encoding="utf-8")
            (folder / "plan.json").write_text(json.dumps(planned_layouts(words)), encoding="utf-8")
            return Usage(0.1, 1.0, None), None
        if spec.side == "plan":
            (folder / "plan.txt").write_text(planned_text(words), encoding="utf-8")
            if "--dump-schedule" in words:
                (folder / "schedule.csv").write_text("0F0,,0B0\n,1F0,1B0\n", encoding="utf-8")
            return Usage(0.1, 1.0, None), None
        if spec.side not in ("ours", "pytorch"):
            study_outputs.write(spec, folder, words)
            return Usage(1.0, 1.0, None), self.load(spec)
        T = int(words[words.index("--seq-len") + 1])
        data_ranks = spec.ranks if "--tp" not in words and "--pp" not in words else 1
        every = int(words[words.index("--eval-every") + 1]) if "--eval-every" in words else 0
        communication = 10.0 if spec.ranks > 1 else 0.0
        compute = 2.0 * spec.samples / min(spec.ranks, 2)
        lines = [{"step": 0, "run": "started", **({"state_bytes_ranks": "100 90"} if spec.side == "pytorch" else {})}]
        for step in range(1, spec.steps + 1):
            lines.append({"step": step, "loss": 8.0 - 0.01 * step, "grad_norm": 1.0, "tokens": step * spec.samples * T,
                          "epoch": step * spec.samples / 256, "step_ms": compute + communication + spec.repeat,
                          "fwd_ms": 0.3 * compute, "bwd_ms": 0.6 * compute, "recompute_ms": 0.0, "offload_ms": 0.0,
                          "optimizer_ms": 0.1 * compute, "comm_ms": communication, "bubble_ms": 0.0, "data_ms": 0.0,
                          "other_ms": float(spec.repeat), "comm_bytes": 1000, "comm_bytes_dp": 900 + data_ranks,
                          "host_mem_mb_ranks": "50.0 51.5", "cpu_percent_ranks": "90.0 80.0"})
            if every and step % every == 0:
                lines.append({"step": step, "val_loss": 8.0 - 0.01 * step, "val_macro_f1": 0.5 + 0.001 * step})
        if "--task" in words:
            lines.append(study_outputs.test_line(spec))
            (folder / "output.txt").write_text(study_outputs.first_lines(words), encoding="utf-8")
        self.change(spec, lines)
        (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        (folder / "plan.txt").write_text(plan_text(spec, words), encoding="utf-8")
        return Usage(0.2 + sum(line.get("step_ms", 0) for line in lines) / 1000, 1.0, None), self.load(spec)


def plan_text(spec, words):
    """What --dry-run prints for a run of ours."""
    if spec.side != "ours":
        return ""
    zero = int(words[words.index("--zero") + 1]) if "--zero" in words else 1
    shards = int(words[words.index("--shard-group") + 1]) if "--shard-group" in words else spec.ranks
    elements = strategies.padded_parameters(common.HOST.shape, shards)
    sizes = {"weights": 4 * elements // (shards if zero == 3 else 1), "gradients": 4 * elements // (shards if zero > 1 else 1),
             "moments": 8 * elements // (shards if zero else 1)}
    lines = "".join(f"  {name}: {size} bytes (1.0 MiB)\n" for name, size in {**sizes, "in all": sum(sizes.values())}.items())
    return f"model: 1 parameters, fp32\nranks 0 to {spec.ranks - 1}, each:\n" * (spec.ranks > 1) + "rank 0:\n" * \
        (spec.ranks == 1) + lines


MODEL_PARAMETERS = {"d12": 124e6, "d24": 355e6, "d36": 774e6, "d48": 1558e6, "megatron-2.5b": 2.5e9, "megatron-4.2b": 4.2e9,
                    "megatron-8.3b": 8.3e9}


def planned_text(words):
    """What --dry-run prints for a plan, without padding: 2, 4 and 12 bytes per parameter, and 1 MiB of activations per
    token; with standard attention T / 1024 MiB more."""
    value = dict(zip(words, words[1:]))
    P, n, stage = int(MODEL_PARAMETERS.get(value.get("--model"), 1e6)), int(value["--ranks"]), int(value.get("--zero", 1))
    shards, T = int(value.get("--shard-group", 0)) or n, int(value["--seq-len"])
    per_token = 2 ** 20 + (T * 1024 if value.get("--attention") == "standard" else 0)
    if "--lora" in value or "--ia3" in words:
        P = 4 * 1024
    if "--layers" in value and "--model" not in value:
        tensor = 4 * int(value["--layers"]) * int(value["--channels"]) * T * 4 * 2 * (n - 1) // n
    sizes = {"weights": 2 * P // (shards if stage == 3 else 1), "gradients": 4 * P // (shards if stage > 1 else 1),
             "moments": 12 * P // (shards if stage else 1), "activations": int(value["--batch-size"]) * T * per_token}
    sizes["in all"] = sum(sizes.values())
    sent = {"activations, to tensor ranks": tensor} if "--tp" in value else {}
    sent |= {"gradients": 4 * P * (n - 1) // n, "weights": 2 * P * (n - 1) // n}
    sent["in all"] = sum(sent.values())

    def lines(values):
        return "".join(f"  {name}: {size} bytes (1.0 MiB)\n" for name, size in values.items())
    ranks = f"ranks 0 to {n - 1}, each:\n" if n > 1 else "rank 0:\n"
    return f"model: {P} parameters, bf16\n" + ranks + lines(sizes) \
        + ("each rank sends per step:\n" + lines(sent) if n > 1 else "")


def planned_layouts(words):
    """What --plan writes: a step takes a second for 8 sequences of a data rank, and a tenth more per doubling of ranks."""
    value = dict(zip(words, words[1:]))
    ranks = int(value["--ranks"])
    data = ranks // int(value["--tp"])
    seconds = int(value["--total-batch-tokens"]) / 8192 / data * (1 + 0.1 * (ranks.bit_length() - 1))
    return {"layouts": [{"status": "fits", "step_ms": 1000 * seconds, "bytes": 2 ** 34, "flags": "--tp " + value["--tp"],
                         "tokens_per_s": int(value["--total-batch-tokens"]) / seconds}]}


def make_study(folder, peers="", **planted):
    out = folder / "study"
    out.mkdir(exist_ok=True)
    base = common.Model(Path("/base"), "base", Shape(5, 4, 256, 256))
    return experiment.Study(out, MACHINE, FakeInputs(out / "inputs"), FakeRunner(out, **planted), common.HOST, [1, 2, 4], 3, peers,
                            ["strong"], base)


def run_experiment(folder, name, minutes=60, **planted):
    """(study, plan, tables) of an experiment on made-up logs."""
    study = make_study(folder, **planted)
    plan = experiment.make_runs(EXPERIMENTS[name], study, budget.Clock(minutes), 60 * minutes)
    return study, plan, experiment.write_results(EXPERIMENTS[name], study.out / name, plan)[0]


def rows_of(table, **cells):
    return [row for row in table.rows if all(row.cells.get(key) == value for key, value in cells.items())]
