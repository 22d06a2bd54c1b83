"""Quantized inference of the base model: size, latency and quality of each format, next to PyTorch's dynamic INT8; training
that is quantization-aware, next to quantization afterwards, and on several ranks."""
from studies.budget import Size, shrunk_sizes
from studies.experiments import inference
from studies.experiments.base import OnBase, base_text
from studies.experiments.classification import NO_SENTENCES, SUBSET, Tuning, all_methods, tuning_run
from studies.experiments.common import (KEEP_WEIGHTS, SEEDS, Training, checkpoint_of, hashed, our_run, windows_of)
from studies.experiments.convergence import spread_over_seeds
from studies.experiments.inference import MODES
from studies.figures import Bars
from studies.inputs import VALIDATION_TOKENS, Shape
from studies.machine import MEASURED
from studies.runs import Spec, spread
from studies.tables import TIMED, Column, Row, Table, middle

BATCH, RATE = 8, 3e-4          # of the quantization-aware training
LAYOUT_STEPS, SMALLEST = 8, 4  # steps of its layouts, and of the smallest size
QAT = ("--qat", "w8a8")
AFTERWARDS = {"float": ("float", "fp32", "trained and evaluated in floats"),
              "ptq": ("float", "w8a8", "trained in floats, quantized afterwards (PTQ)"),
              "qat": ("qat", "w8a8", "quantization-aware (QAT)")}
LAYOUTS = {"one": ("one rank", 1, ()), "tp-pp": ("tensor x pipeline parallel", 4, ("--tp", 2, "--pp", 2))}


class Quantize(OnBase):
    name, title = "quantize", "Quantization"
    question = "How much smaller and faster is quantized inference, what does it cost in quality, and what does QAT get back?"
    share = 2.0

    def facts(self, study):
        return {**super().facts(study), "support": [], "sentences": study.inputs.has_sentences()}

    def sizes(self, study, facts):
        seeds = [SEEDS, SEEDS[:2], SEEDS[:1]]
        return shrunk_sizes([200, 100, 50, 25, 12], seeds, study.repeats) + [Size(SMALLEST, seeds[-1], 1)]

    @staticmethod
    def windows(facts, samples):
        """Held-out windows that are scored."""
        return 8 if samples == SMALLEST else max(1, VALIDATION_TOKENS // facts["base"]["T"])

    def plan(self, study, facts, size):
        windows = self.windows(facts, size.samples)
        runs = inference.base_runs(study, MODES, facts["all_cores"], 1 if size.samples == SMALLEST else 3, windows)
        runs += [] if facts["peers"] else [self.peer(study, facts, windows)]
        runs += self.layouts(study, facts) + (self.classes(study, facts, size) if facts["sentences"] else [])
        for seed in size.points:
            runs += self.afterwards(study, facts, size, seed, windows)
        return runs

    @staticmethod
    def training(study, facts, name, steps, seed, layout=(), **more):
        T = study.base.shape.T
        return our_run(study, Training(name, BATCH, steps, windows_of(study, BATCH * steps, T), start=study.base, seed=seed,
                                       rate=RATE, timed=False, layout=layout, **more))

    def afterwards(self, study, facts, size, seed, windows):
        trained = {name: self.training(study, facts, f"quantize-{name}", size.samples, seed, (*flags, *KEEP_WEIGHTS),
                                       cores=facts["all_cores"]) for name, flags in (("float", ()), ("qat", QAT))}
        runs = list(trained.values())
        for key, (run, mode, _) in AFTERWARDS.items():
            model = checkpoint_of(study, trained[run], study.base.shape)
            spec = inference.loss_run(study, f"quantize-loss-{key}", model, mode, facts["all_cores"], windows)
            runs.append(spec._replace(seed=seed))
        return runs

    def layouts(self, study, facts):
        return [self.training(study, facts, f"quantize-layout-{name}", LAYOUT_STEPS, SEEDS[0], (*QAT, "--zero", 0, *flags),
                              cores=facts["cores"], ranks=ranks, at_least=4) for name, (_, ranks, flags) in LAYOUTS.items()]

    def classes(self, study, facts, size):
        """A classifier in each mode. It trains here on as many sentences as the runs of QAT have sequences, times 8."""
        lines = SUBSET if size.samples == SMALLEST else None
        facts["support"] = study.inputs.test_support(lines)
        trained = tuning_run(study, Tuning("quantize-classifier", all_methods(study)["all"], 8 * BATCH * size.samples,
                                           cores=facts["all_cores"], lines=lines, keep=True))
        classifier = checkpoint_of(study, trained, study.base.shape)
        return [trained, *(inference.classify_run(study, f"quantize-classify-{key}", classifier, key, facts["all_cores"], lines)
                           for key, mode in MODES.items() if not mode.is_calibrated() and not mode.has_cache_flags())]

    @staticmethod
    def peer(study, facts, windows):
        base, text = study.base, study.inputs.validation(study.base.shape.T)
        flags = (base.path, "--sides", "PyTorch dynamic INT8", "--threads", facts["all_cores"], "--repetitions", 1, "--tokens",
                 text, "--windows", windows, "--json", "{run}/peer.json")
        return Spec("quantize-pytorch", "int8-peer", tuple(map(str, flags)), cores=facts["all_cores"], steps=1, samples=1,
                    inputs=((str(base.path), base.digest), hashed(study, text)), needs=base.needs)

    # ---- rows --------------------------------------------------------------------------------

    def mode_row(self, facts, results, key):
        cells = {"mode": MODES[key].title, **inference.base_cells(results, key)}
        for result in results.finished(f"infer-loss-{key}"):
            if inference.is_compared(key):
                cells["change"], cells["error"], cells["agreement"] = inference.comparison(result)
            elif key != "fp32":
                cells["change"] = self.change(results, cells["perplexity"])
        for result in results.finished(f"quantize-classify-{key}"):
            cells["accuracy"] = inference.accuracy(result, facts["support"])
        why = {"joules": inference.NO_ENERGY,
               "accuracy": NO_SENTENCES if not facts["sentences"] else "the command classify reads no calibration text"
               if MODES[key].is_calibrated() else "the command classify has no cache",
               **dict.fromkeys(("change", "error", "agreement"), "the model to compare with" if key == "fp32" else
                               "only perplexities are compared")}
        return results.row(f"infer-bench-{key}", cells, why)

    @staticmethod
    def change(results, perplexity):
        """In %, from fp32; None without it."""
        base = [inference.perplexity(result) for result in results.finished("infer-loss-fp32")]
        return 100 * (perplexity / base[0] - 1) if base else None

    def peer_row(self, facts, results):
        cells, name = {"mode": "PyTorch, dynamic INT8"}, "quantize-pytorch"
        if facts["peers"]:
            return Row(cells, MEASURED, None, why={"": facts["peers"]})
        turn = [result.peer()["turns"].get("PyTorch dynamic INT8", [None])[0] for result in results.finished(name)]
        skipped = [reason for result in results.finished(name) for reason in result.peer()["skipped"].values()]
        known = [one for one in turn if one]
        if known:
            cells |= {"first": spread([1000 * one["prompt tokens"] / one["prefill"] for one in known]),
                      "token": spread([1000 / one["batch 1"] for one in known]),
                      "speed": spread([one["batch 8"] for one in known]),
                      "perplexity": known[0]["perplexity"], "size": known[0]["MiB"]}
            cells["faster"] = inference.faster(results, cells["token"])
            cells["change"] = self.change(results, cells["perplexity"])
        return results.row(name, cells, {"": skipped[0] if skipped else "not measured for PyTorch"})

    def after_rows(self, results):
        floats = [inference.perplexity(result) for result in results.finished("quantize-loss-float")]
        rows, changes = [], {}
        for key, (_, _, title) in AFTERWARDS.items():
            name = f"quantize-loss-{key}"
            values = [inference.perplexity(result) for result in results.finished(name)]
            mean, sd = spread_over_seeds(values)
            changes[key] = [100 * (own / other - 1) for own, other in zip(values, floats)]
            change, change_sd = spread_over_seeds(changes[key]) if key != "float" else (None, None)
            gains = [after - own for after, own in zip(changes.get("ptq", ()), changes[key])] if key == "qat" else []
            gain, gain_sd = spread_over_seeds(gains)
            rows.append(results.row(name, {
                "way": title, "perplexity": mean, "sd": sd, "change": change, "change_sd": change_sd, "gain": gain,
                "gain_error": None if gain_sd is None else gain_sd / len(gains) ** 0.5}, {
                    "sd": "needs two seeds", "change": "the model to compare with",
                    "change_sd": "the model to compare with" if key == "float" else "needs two seeds",
                    "gain": "only of quantization-aware training",
                    "gain_error": "needs two seeds" if key == "qat" else "only of quantization-aware training"}))
        return rows

    def layout_rows(self, results):
        rows, one = [], [result.steps() for result in results.finished("quantize-layout-one")]
        for name, (title, ranks, _) in LAYOUTS.items():
            run = f"quantize-layout-{name}"
            cells = {"layout": title, "ranks": ranks}
            for result in results.finished(run):
                cells["loss"] = result.steps()[-1]["loss"]
                if name != "one" and one:
                    cells["worst"] = max(abs(a["loss"] / b["loss"] - 1) for a, b in zip(result.steps(), one[0]))
            rows.append(results.row(run, cells, {"worst": "the layout to compare with"}))
        return rows

    # ---- tables and figures ------------------------------------------------------------------

    def tables(self, facts, results):
        device, commit, shape = results.device, results.commit, Shape(**facts["base"])
        prompt = inference.prompt_tokens(shape)
        rows = [self.mode_row(facts, results, key) for key in MODES] + [
            Row({"mode": "4-bit weights"}, MEASURED, None, why={"": "this engine has no 4-bit weights"}),
            self.peer_row(facts, results)]
        windows = self.windows(facts, facts["samples"])
        notes = [base_text(facts), f"Prompts of {prompt} tokens; {inference.GENERATED} generated tokens; tokens/s of "
                 f"{inference.BATCH} sequences together. Perplexity of {windows * shape.T:,} held-out tokens in windows of "
                 f"{shape.T}; its change and the agreement of the most likely token compare with fp32. Accuracy: a classifier "
                 f"(all weights, {8 * BATCH * facts['samples']:,} sentences) on the test sentences."]
        return [Table("quantize", "Formats of inference", [
            Column("mode", "format"), Column("size", "weights, MiB", digits=1),
            Column("first", "ms to the first token", TIMED, 2), Column("token", "ms per token", TIMED, 3),
            Column("faster", "times as fast as fp32", TIMED, 2), Column("speed", "tokens/s", TIMED, 0),
            Column("joules", "J per token", TIMED, 4), Column("perplexity", "perplexity", digits=3),
            Column("change", "change, %", digits=3), Column("error", "standard error", digits=3),
            Column("agreement", "same token, %", digits=2), Column("accuracy", "accuracy", digits=4)], rows, device, commit, notes),
            Table("quantize-qat", "Quantization after training, and quantization-aware training", [
                Column("way", "model"), Column("perplexity", "perplexity", digits=3), Column("sd", "sd over seeds", digits=3),
                Column("change", "change to floats, %", digits=3), Column("change_sd", "sd over seeds", digits=3),
                Column("gain", "less change than PTQ, points", digits=3), Column("gain_error", "standard error", digits=3)],
                self.after_rows(results), device, commit, [
                    f"{facts['samples']} more steps of {BATCH} sequences from the base model; w8a8 without smoothing."]),
            Table("quantize-layouts", "Quantization-aware training on several ranks", [
                Column("layout", "layout"), Column("ranks", "ranks"), Column("loss", "last loss", TIMED, 6),
                Column("worst", "largest difference of a loss", TIMED)], self.layout_rows(results), device, commit, [
                    f"{LAYOUT_STEPS} steps with --qat w8a8; relative difference to one rank."])]

    def figures(self, facts, results, tables):
        def bars(key, title, label):
            rows = [(row.cells["mode"], [middle(row.cells[key])], False) for row in tables[0].rows if row.cells.get(key)]
            return Bars(f"quantize-{key}", title, label, [label], rows)
        return [bars("size", "Size of the weights", "MiB"), bars("token", "Time per token", "ms"),
                bars("perplexity", "Perplexity", "perplexity")]
