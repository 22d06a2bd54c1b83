"""How fast runs reach a loss: by global batch, and by size of the model. Three seeds each."""
import math
import statistics

from finetune_sentiment.metrics import mean_and_deviation
from studies.budget import shrunk_sizes
from studies.experiment import Experiment
from studies.experiments.common import (LEARNING_RATE, SEEDS, Training, model_text, our_cost_runs, our_run, scale_facts,
                                        windows_of)
from studies.experiments.gpt2_weights import weight_runs, weight_table
from studies.figures import Curve, Curves
from studies.inputs import VALIDATION_TOKENS, Shape
from studies.runs import WARMUP_STEPS
from studies.tables import TIMED, Column, Table, middle

MEAN_SAMPLES = 256   # of the running mean of a training loss
TARGET_STEP = 0.1    # targets are multiples of it
SHORTEST = 512       # samples of a run


def round_up(loss):
    return math.ceil(round(loss / TARGET_STEP, 6)) * TARGET_STEP


def smooth_losses(result, batch):
    """[(tokens, seconds, mean loss of the last MEAN_SAMPLES samples)]"""
    width = max(1, MEAN_SAMPLES // batch)
    steps, seconds, points = result.steps(), 0.0, []
    for i, step in enumerate(steps):
        seconds += step["step_ms"] / 1000
        if i + 1 >= width:
            points.append((step["tokens"], seconds, statistics.fmean(one["loss"] for one in steps[i + 1 - width:i + 1])))
    return points


def validation_losses(result):
    """[(tokens, seconds, validation loss)]"""
    seconds, at, points = 0.0, {0: (0, 0.0)}, []
    for step in result.steps():
        seconds += step["step_ms"] / 1000
        at[step["step"]] = (step["tokens"], seconds)
    for step, loss in result.validation():
        points.append((*at[step], loss))
    return points


def first_below(points, target):
    """(tokens, seconds) of the first point that is at most the target; None if none is."""
    return next(((tokens, seconds) for tokens, seconds, loss in points if loss <= target), None)


def spread_over_seeds(values):
    """(mean, standard deviation); None without values, the deviation also for one."""
    return mean_and_deviation(values) if values else (None, None)


def reach(all_points, target):
    """Means over seeds of (tokens, seconds) to the target; None unless all seeds reach it."""
    firsts = [first_below(points, target) for points in all_points]
    if not firsts or None in firsts:
        return None, None
    return tuple(statistics.fmean(values) for values in zip(*firsts))


class Convergence(Experiment):
    share = 1.5

    cost_runs = staticmethod(our_cost_runs)


class Batch(Convergence):
    name, title = "batch", "Global batch"
    question = "How many tokens, and how much time, does a larger batch need to reach a loss, and what does it send?"
    FACTORS, SMALLEST = (1, 2, 4, 8, 16, 32, 64), 2
    SENT_BATCHES, MICRO = (16, 32, 64, 128), 8   # of two ranks

    def facts(self, study):
        return scale_facts(study)

    def sizes(self, study, facts):
        few = self.FACTORS[1::2]
        points = [(self.FACTORS, SEEDS), (self.FACTORS[1:], SEEDS), (few, SEEDS), (few, SEEDS[:2]), (few, SEEDS[:1])]
        return shrunk_sizes([8192, 4096, 2048, 1024, SHORTEST], points, 1)

    @staticmethod
    def rate(batch):
        """Square-root scaling from 32 samples on, and below."""
        return LEARNING_RATE * math.sqrt(batch / 32)

    def batches(self, points):
        return [self.SMALLEST * factor for factor in points[0]]

    def plan(self, study, facts, size):
        runs = []
        for seed in size.points[1]:
            for batch in self.batches(size.points):
                run = Training(f"batch-{batch}", batch, size.samples // batch,
                               windows_of(study, size.samples, facts["shape"]["T"]), cores=facts["all_cores"], seed=seed,
                               rate=self.rate(batch), timed=False)
                runs.append(our_run(study, run))
        for batch in self.SENT_BATCHES:
            run = Training(f"batch-sent-{batch}", batch, WARMUP_STEPS + (4 if size.samples > SHORTEST else 1),
                           windows_of(study, size.samples, facts["shape"]["T"]), 2, 2, facts["cores"], ("--zero", 0),
                           batch // 2 // self.MICRO, timed=False)
            runs.append(our_run(study, run))
        return runs

    def tables(self, facts, results):
        batches = self.batches(facts["points"])
        points = {batch: [smooth_losses(result, batch) for result in results.finished(f"batch-{batch}")] for batch in batches}
        finals = {batch: [one[-1][2] for one in all_points] for batch, all_points in points.items()}
        target = round_up(max(max(values) for values in finals.values() if values))
        rows = []
        for batch in batches:
            tokens, seconds = reach(points[batch], target)
            loss, sd = spread_over_seeds(finals[batch])
            speed, _ = spread_over_seeds([one[-1][0] / one[-1][1] for one in points[batch]])
            cells = {"batch": batch, "rate": self.rate(batch), "steps": facts["samples"] // batch, "tokens": tokens,
                     "seconds": seconds, "loss": loss, "sd": sd, "speed": speed}
            rows.append(results.row(f"batch-{batch}", cells, {"sd": "needs two seeds"}))
        fastest = min((row for row in rows if row.cells["seconds"]), key=lambda row: row.cells["seconds"], default=None)
        fewest = min((row for row in rows if row.cells["tokens"]), key=lambda row: row.cells["tokens"], default=None)
        notes = [model_text(facts), f"{facts['samples']:,} samples per run; means over seeds "
                 f"{', '.join(map(str, facts['points'][1]))}. Loss: mean of the last {MEAN_SAMPLES} samples. Learning rates "
                 "follow the square root of the batch.", f"Target: a loss of {target:.1f}, the lowest multiple of "
                 f"{TARGET_STEP} that all batches reach."]
        if fastest and fewest:
            notes.append(f"Batch {fewest.cells['batch']} needs the fewest tokens, and batch {fastest.cells['batch']} the least "
                         "time: a larger batch does not help from there on.")
        return [Table("batch", "Global batch: tokens and time to a loss", [
            Column("batch", "global batch"), Column("rate", "learning rate", digits=6), Column("steps", "steps"),
            Column("tokens", "tokens to the target", digits=0), Column("seconds", "seconds to it", TIMED, 2),
            Column("speed", "tokens/s", TIMED, 0), Column("loss", "last loss", digits=4),
            Column("sd", "sd over seeds", digits=4)], rows, results.device, results.commit, notes), self.sent(facts, results)]

    def sent(self, facts, results):
        rows = []
        for batch in self.SENT_BATCHES:
            name, tokens = f"batch-sent-{batch}", batch * facts["shape"]["T"]
            count = batch // 2 // self.MICRO
            cells = {"batch": batch, "micro": f"{count} x {self.MICRO}",
                     "bytes": results.exact(name, lambda result: result.steps()[-1]["comm_bytes_dp"])}
            cells["per_token"] = None if cells["bytes"] is None else cells["bytes"] / tokens
            wait = results.spread(name, lambda result: result.timed_mean("comm_ms"))
            cells["wait"] = None if wait is None else 1e6 * middle(wait) / tokens
            rows.append(results.row(name, cells))
        return Table("batch-sent", "Gradient accumulation: what two data ranks send", [
            Column("batch", "global batch"), Column("micro", "micro-batches of a rank"),
            Column("bytes", "bytes per step", digits=0), Column("per_token", "bytes per token", digits=1),
            Column("wait", "waiting for communication, µs per token", TIMED, 2)],
            rows, results.device, results.commit, ["Gradients are reduced once per step, however many micro-batches it has."])

    def figures(self, facts, results, tables):
        curves = []
        for batch in self.batches(facts["points"]):
            for result in results.finished(f"batch-{batch}")[:1]:
                curves.append(Curve(f"batch {batch}", [(tokens, loss) for tokens, _, loss in smooth_losses(result, batch)]))
        to_target = [(row.cells["batch"], row.cells["tokens"]) for row in tables[0].rows if row.cells["tokens"]]
        return [Curves("batch-loss", "Training loss by batch", "tokens", "loss (nats per token)", curves, from_zero=False),
                Curves("batch-tokens", "Tokens to the target", "global batch", "tokens",
                       [Curve("tokens", to_target, dots=True)])]


SIZES = (Shape(1, 2, 32, 64), Shape(2, 2, 64, 64), Shape(4, 4, 128, 64), Shape(4, 4, 192, 64))
CUDA_SIZES = (Shape(4, 4, 256, 1024, 50257), Shape(8, 8, 512, 1024, 50257), Shape(12, 12, 768, 1024, 50257),
              Shape(24, 16, 1024, 1024, 50257))
SIZE_BATCH, EVALUATIONS = 32, 8


class ModelSize(Convergence):
    name, title = "model-size", "Size of the model"
    question = "Do larger models reach a loss with fewer tokens, and in less time?"

    def facts(self, study):
        shapes = SIZES if study.machine.device == "host" else CUDA_SIZES
        return {**scale_facts(study), "sizes": [shape._asdict() for shape in shapes]}

    def sizes(self, study, facts):
        return shrunk_sizes([8192, 6144, 4096, 2048, 1024, 512], [SEEDS, SEEDS[:2], SEEDS[:1]], 1)

    @staticmethod
    def run_name(shape):
        return f"size-{shape.layers}x{shape.channels}"

    def plan(self, study, facts, size):
        steps = size.samples // SIZE_BATCH
        return [our_run(study, Training(self.run_name(shape), SIZE_BATCH, steps,
                                        windows_of(study, size.samples, shape.T), cores=facts["all_cores"], shape=shape, seed=seed,
                                        evaluate_every=steps // EVALUATIONS, timed=False))
                for seed in size.points for shape in self.shapes(facts)] + weight_runs(study)

    @staticmethod
    def shapes(facts):
        return [Shape(**sizes) for sizes in facts["sizes"]]

    def points(self, results, shape):
        return [validation_losses(result) for result in results.finished(self.run_name(shape))]

    def targets(self, facts, results):
        """The loss that the smallest model reaches, and two higher ones."""
        smallest = self.points(results, self.shapes(facts)[0])
        first = round_up(max(one[-1][2] for one in smallest)) if smallest else 0.0
        return [first + 1.0, first + 0.5, first]

    def tables(self, facts, results):
        rows, targets = [], self.targets(facts, results)
        for shape in self.shapes(facts):
            points = self.points(results, shape)
            loss, sd = spread_over_seeds([one[-1][2] for one in points])
            seconds, _ = spread_over_seeds([one[-1][1] for one in points])
            cells = {"size": f"{shape.layers} x {shape.channels}", "parameters": shape.parameters(), "loss": loss, "sd": sd,
                     "seconds": seconds}
            for i, target in enumerate(targets):
                cells[f"tokens{i}"], cells[f"seconds{i}"] = reach(points, target)
            why = {"sd": "needs two seeds"} | {f"{key}{i}": "not every seed reached it" for key in ("tokens", "seconds")
                                               for i in range(len(targets))}
            rows.append(results.row(self.run_name(shape), cells, why))
        tokens = facts["samples"] * self.shapes(facts)[0].T
        return [Table("model-size", f"Size of the model: validation loss after {tokens:,} tokens", [
            Column("size", "layers x channels"), Column("parameters", "parameters", digits=0),
            Column("loss", "validation loss", digits=4), Column("sd", "sd over seeds", digits=4),
            Column("seconds", "seconds", TIMED, 1),
            *(Column(f"tokens{i}", f"tokens to {target:.1f}", digits=0) for i, target in enumerate(targets)),
            *(Column(f"seconds{i}", f"seconds to {target:.1f}", TIMED, 1) for i, target in enumerate(targets))], rows,
            results.device, results.commit, [f"Means over seeds {', '.join(map(str, facts['points']))}; the loss is measured "
                                             f"{EVALUATIONS} times on {VALIDATION_TOKENS:,} held-out tokens."]),
                weight_table(results)]

    def figures(self, facts, results, tables):
        curves = [(shape, self.points(results, shape)) for shape in self.shapes(facts)]
        by_tokens = [Curve(f"{shape.parameters() / 1e6:.2f} million", [(tokens, loss) for tokens, _, loss in points[0]])
                     for shape, points in curves if points]
        by_time = [Curve(f"{shape.parameters() / 1e6:.2f} million", [(seconds, loss) for _, seconds, loss in points[0]])
                   for shape, points in curves if points]
        return [Curves("model-size-tokens", "Validation loss over tokens", "tokens", "loss (nats per token)", by_tokens,
                       from_zero=False),
                Curves("model-size-time", "Validation loss over time", "seconds of training steps", "loss (nats per token)",
                       by_time, from_zero=False)]
