"""Flags and model sizes that experiments share."""
from pathlib import Path
from typing import NamedTuple

from studies.inputs import Shape
from studies.runs import FIRST_SEED, WARMUP_STEPS, Spec

LEARNING_RATE, SEEDS = 1e-3, (FIRST_SEED, 2, 3)
COST_STEPS, COST_SAMPLES = 4, 32
EPOCH_WINDOWS = 2048      # of the scaling experiments
MAX_TOKENS = 2_000_000    # of an epoch of other experiments


class Scale(NamedTuple):
    """Sizes for a device: large enough that a step is mostly computation, small enough for a study in minutes."""
    shape: Shape
    dtype: str
    max_micro_batch: int
    batches: tuple       # global batches of strong scaling
    rank_batches: tuple  # batches per rank of weak scaling


HOST = Scale(Shape(4, 4, 128, 64), "fp32", 128, (64, 128), (32, 64))
CUDA = Scale(Shape(12, 12, 768, 1024, 50257), "bf16", 16, (64, 128), (32, 64))


def micro_batches(samples, most, at_least=1):
    """(micro-batch, number of them) for `samples` of a data rank."""
    count = at_least
    while samples % count != 0 or samples // count > most:
        count += 1
    return samples // count, count


def scale_facts(study):
    shape = study.scale.shape
    return {"shape": shape._asdict(), "dtype": study.scale.dtype, "ranks": study.ranks, "cores": cores_per_rank(study),
            "max_micro_batch": study.scale.max_micro_batch, "peers": study.peers, "all_cores": len(study.machine.cores)}


def model_text(facts):
    return f"{Shape(**facts['shape']).text()}; {facts['dtype']}, AdamW."


def cores_per_rank(study):
    """Equal for all rows of a table."""
    return max(1, len(study.machine.cores) // max(study.ranks))


CONSTANT = ("--warmup", 0, "--schedule", "constant")


class Model(NamedTuple):
    """A language model that runs start from."""
    path: Path        # of its directory
    digest: str       # stands for the weights in the settings of runs
    shape: Shape      # T is its context
    needs: tuple = () # folders of the runs that make it


class Training(NamedTuple):
    """A training run: global batch, number of data ranks, steps, windows of an epoch, flags of the layout. It starts from
    the model `start`; without it, from random weights of its seed if it has a shape, else from the study's weights."""
    name: str
    batch: int
    steps: int
    windows: int
    ranks: int = 1
    data_ranks: int = 1
    cores: int = 1
    layout: tuple = ()
    at_least: int = 1     # micro-batches
    seed: int = FIRST_SEED
    grad_clip: float = 1.0
    repeat: int = 1
    shape: Shape | None = None   # of the study's scale
    dtype: str = ""
    rate: float = LEARNING_RATE
    evaluate_every: int = 0      # steps between validations
    timed: bool = True           # repeated; else a run per seed
    start: Model | None = None
    schedule: tuple = CONSTANT
    max_micro_batch: int = 0     # 0: of the study's scale

    def shape_in(self, study):
        return self.shape or (self.start.shape if self.start else study.scale.shape)


def shared_flags(study, run):
    """Flags that both programs have, and (path, hash) of their input files."""
    inputs, shape = study.inputs, run.shape_in(study)
    pairs = [hashed(study, inputs.windows(run.windows, shape.T))]
    model = shape.flags()
    if run.start:
        pairs.append((str(run.start.path), run.start.digest))
        model = ["--init-from", run.start.path]
    elif run.shape is None:
        pairs.append(hashed(study, inputs.weights(shape)))
        model = ["--init-from", pairs[-1][0]]
    most = run.max_micro_batch or study.scale.max_micro_batch
    micro, count = micro_batches(run.batch // run.data_ranks, most, run.at_least)
    flags = [*model, "--train", pairs[0][0], "--dtype", run.dtype or study.scale.dtype, "--batch-size", micro,
             "--grad-accum", count, "--seq-len", shape.T, "--steps", run.steps, "--lr", run.rate, *run.schedule,
             "--weight-decay", 0.1, "--grad-clip", run.grad_clip, "--seed", run.seed, "--log", "{run}/log.jsonl"]
    return flags, pairs


def hashed(study, path):
    return str(path), study.inputs.hash_of(path)


def our_run(study, run):
    flags, pairs = shared_flags(study, run)
    pairs.append(hashed(study, study.inputs.validation(run.shape_in(study).T)))
    flags += ["--val", pairs[-1][0], "--tokenizer", study.inputs.tokenizer(), "--eval-every", run.evaluate_every,
              *our_flags(study)]
    return make_spec(study, "ours", run, [*flags, *run.layout], pairs)


def our_flags(study):
    """Flags of every run of train_gpt2. On the host, the peak rate is not measured."""
    return ["--device", study.machine.device, "--sample-every", 0, "--log-ranks",
            *(("--peak-tflops", 1) if study.machine.device == "host" else ())]


def peer_run(study, run, strategy):
    flags, pairs = shared_flags(study, run)
    device = "cpu" if study.machine.device == "host" else "cuda"
    return make_spec(study, "pytorch", run, [*flags, "--device", device, "--strategy", strategy, "--rendezvous",
                                             "{run}/rendezvous", *run.layout], pairs)


def make_spec(study, side, run, flags, pairs):
    return Spec(run.name, side, tuple(map(str, flags)), run.ranks, run.cores, run.seed, run.repeat, run.steps, run.batch,
                tuple(pairs), run.timed, work_of(study, run.shape_in(study)), run.start.needs if run.start else ())


def work_of(study, shape):
    """Operations of a sample, relative to one of the study's model: products and attention."""
    def operations(shape):
        return shape.T * (6 * shape.parameters() + 12 * shape.layers * shape.T * shape.channels)
    return operations(shape) / operations(study.scale.shape)


def windows_of(study, samples, T):
    """Windows of an epoch for a run of so many samples: different ones, as far as the texts have them."""
    return min(samples, MAX_TOKENS // T, study.inputs.most_windows(T))


def plan_run(name, flags):
    """A --dry-run."""
    return Spec(name, "plan", tuple(map(str, flags)), timed=False)


def infer_run(study, name, model, words, tokens, cores, files=(), timed=True):
    """A command of infer_gpt2 with the Model `model`; it reads about so many `tokens`. `files`: other paths among `words`."""
    flags = (*words, "--model", model.path, "--device", study.machine.device)
    pairs = ((str(model.path), model.digest), *(hashed(study, path) for path in files))
    return Spec(name, "infer", tuple(map(str, flags)), 1, cores, steps=1, samples=1, inputs=pairs, timed=timed,
                work=work_of(study, model.shape) * tokens / model.shape.T, needs=model.needs)


def checkpoint_of(study, spec, shape):
    """The Model that a run of ours saves with --out {run}/weights."""
    folder = study.runner.folder(spec)
    return Model(folder / "weights" / f"step_{spec.steps:06d}", folder.name, shape, (*spec.needs, folder))


KEEP_WEIGHTS = ("--out", "{run}/weights", "--keep-checkpoints", 1, "--keep-best=false")


def cost_training(name, facts):
    return Training(name, COST_SAMPLES, COST_STEPS, EPOCH_WINDOWS, cores=facts["cores"])


def our_cost_runs(study, facts):
    """A short run, from which costs are predicted."""
    return [our_run(study, cost_training("cost-ours", facts))]


def cost_runs(study, facts):
    """The same for each side."""
    peers = [] if study.peers else [peer_run(study, cost_training("cost-pytorch", facts), "plain")]
    return our_cost_runs(study, facts) + peers


def timed_steps(samples, batch):
    return WARMUP_STEPS + max(1, samples // batch)
