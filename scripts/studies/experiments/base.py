"""The language model that experiments on fine-tuning and inference share. It is trained once, in at most ten minutes."""
import math
import os
from pathlib import Path

from studies.budget import Size, shrunk_sizes
from studies.experiment import Experiment
from studies.experiments.common import KEEP_WEIGHTS, Model, Training, our_cost_runs, our_run, scale_facts, windows_of
from studies.experiments.convergence import validation_losses
from studies.figures import Curve, Curves
from studies.inputs import VALIDATION_TOKENS, Shape, shape_of
from studies.machine import SIMULATED
from studies.tables import TIMED, Column, Row, Table

# Shape, sequences of a step, learning rate, steps from the largest size on; and a shape for less time than that.
BASES = {"host": (Shape(5, 4, 256, 256), 16, 2e-3, (1200, 800, 600, 400, 300, 200, 100, 50, 25), Shape(2, 4, 64, 128)),
         "cuda": (Shape(12, 12, 768, 1024, 50257), 32, 6e-4, (300, 200, 100, 50, 25, 10), None)}
EVALUATIONS, SMALLEST = 5, 20  # the second: steps of the smallest shape


def given_model():
    """The directory with GPT-2's own weights, or None."""
    path = os.environ.get("GPT2_DIR")
    return Path(path).resolve() if path else None


class Base(Experiment):
    name, title = "base", "The model that other experiments share"
    question = "From which model do the experiments on fine-tuning and inference start?"
    share, most_seconds = 2.5, 600.0

    cost_runs = staticmethod(our_cost_runs)

    def facts(self, study):
        """On a GPU, GPT2_DIR replaces the training; on the host, models have another vocabulary."""
        path = given_model() if study.machine.device == "cuda" else None
        return {**scale_facts(study), "given": str(path) if path else ""}

    def sizes(self, study, facts):
        """The points are the shape."""
        shape, _, _, steps, smallest = BASES[study.machine.device]
        if facts["given"]:
            return [Size(0, tuple(shape_of(Path(facts["given"]))), 1)]
        return shrunk_sizes(steps, [tuple(shape)], 1) + ([Size(SMALLEST, tuple(smallest), 1)] if smallest else [])

    def plan(self, study, facts, size):
        if facts["given"]:
            return []
        shape, (_, batch, rate, *_) = Shape(*size.points), BASES[study.machine.device]
        run = Training("base", batch, size.samples, windows_of(study, size.samples * batch, shape.T), cores=facts["all_cores"],
                       shape=shape, rate=rate, timed=False, evaluate_every=max(5, size.samples // EVALUATIONS),
                       schedule=("--schedule", "cosine"), layout=KEEP_WEIGHTS)
        return [our_run(study, run)]

    @staticmethod
    def model(study, plan):
        """The Model, once its run has ended."""
        facts = plan["facts"]
        shape = Shape(*facts["points"])
        if facts["given"]:
            return Model(Path(facts["given"]), study.inputs.version_of(Path(facts["given"])), shape)
        folder = study.out / "logs" / plan["runs"][0]["folder"]
        return Model(folder / "weights" / f"step_{facts['samples']:06d}", folder.name, shape, (folder,))

    def tables(self, facts, results):
        shape = Shape(*facts["points"])
        cells, why = {"model": shape.text()}, {}
        if facts["given"]:
            rows = [Row(cells, SIMULATED, None, why={"": "GPT-2's own weights, which GPT2_DIR names"})]
        else:
            for result in results.finished("base"):
                tokens, seconds, loss = validation_losses(result)[-1]
                cells |= {"steps": result.steps()[-1]["step"], "tokens": tokens, "epochs": result.steps()[-1]["epoch"],
                          "loss": loss, "perplexity": math.exp(loss), "seconds": seconds}
            rows = [results.row("base", cells, why)]
        return [Table("base", self.title, [
            Column("model", "model"), Column("steps", "steps", digits=0), Column("tokens", "tokens", digits=0),
            Column("epochs", "epochs", digits=2), Column("loss", "validation loss", digits=4),
            Column("perplexity", "perplexity per token", digits=2), Column("seconds", "seconds of steps", TIMED, 1)], rows,
            results.device, results.commit, [f"{facts['dtype']}, AdamW; validated on {VALIDATION_TOKENS:,} held-out tokens."])]

    def figures(self, facts, results, tables):
        curves = [Curve("validation", [(tokens, loss) for tokens, _, loss in validation_losses(result)], dots=True)
                  for result in results.finished("base")]
        return [Curves("base-loss", "Validation loss of the base model", "tokens", "loss (nats per token)", curves,
                       from_zero=False)]


class OnBase(Experiment):
    """An experiment whose runs start from the base model."""
    needs_base = True

    cost_runs = staticmethod(our_cost_runs)

    def facts(self, study):
        return {**scale_facts(study), "base": study.base.shape._asdict()}


def base_text(facts):
    """A note for tables whose runs start from the model."""
    return f"All start from the base model (experiment base): {Shape(**facts['base']).text()}."
