"""Runs that fine-tune the base model as a classifier of sentences, and what they measure."""
from typing import NamedTuple

from finetune_sentiment import methods
from finetune_sentiment.data import label_files
from finetune_sentiment.metrics import mean_and_deviation
from finetune_sentiment.runs import read_log, test_record
from studies.experiments.base import OnBase
from studies.experiments.common import KEEP_WEIGHTS, Model, hashed, work_of
from studies.runs import FIRST_SEED, Spec

BATCH = methods.BATCH_SIZE
PADDED_TOKENS = 40              # of a sentence in a batch, about
SCORES = ("accuracy", "precision", "recall", "f1")
SUBSET = 120                    # sentences of each class in the smallest size of an experiment
NO_SENTENCES = "there are no labelled sentences; --sentences names a folder with positive.txt and negative.txt"


class Classifying(OnBase):
    """An experiment that cannot do without labelled sentences."""

    def missing(self, study):
        return "" if study.inputs.has_sentences() else NO_SENTENCES


class Tuning(NamedTuple):
    """A run that fine-tunes with a Method on the first `lines` sentences of each class; None: all."""
    name: str
    method: methods.Method
    samples: int
    seed: int = FIRST_SEED
    ranks: int = 1
    data_ranks: int = 1
    cores: int = 1
    layout: tuple = ()
    micro_batches: int = 1    # of a data rank
    lines: int | None = None
    keep: bool = False        # the weights
    evaluations: int = 0      # of the validation part

    @property
    def steps(self):
        return max(1, self.samples // BATCH)


def sentiment_model(model):
    return methods.Model(model.path, model.shape.layers, model.shape.channels, model.shape.T)


def all_methods(study):
    return methods.all_methods(study.base.shape.layers)


def sentences_in(folder):
    """Number of sentences of all classes."""
    return sum(len(path.read_bytes().splitlines()) for path in label_files(folder).values())


def input_pairs(study, model, folder):
    return ((str(model.path), model.digest), *(hashed(study, path) for path in label_files(folder).values()))


def tuning_work(study, run, folder):
    """Work of a sample, with the share of evaluations: a tenth of the sentences before the first step, several times, and
    the test part."""
    evaluated = 0.1 * sentences_in(folder) * (run.evaluations + 1 + bool(run.evaluations)) / 3
    return work_of(study, study.base.shape._replace(T=PADDED_TOKENS)) * (1 + evaluated / (run.steps * BATCH))


def tuning_run(study, run):
    folder = study.inputs.sentences(run.lines)
    size = BATCH // run.data_ranks // run.micro_batches
    flags = methods.training_flags(run.method, sentiment_model(study.base), folder, run.method.rates[0], run.seed, run.steps,
                                   (size, run.micro_batches), run.evaluations)
    flags += ["--device", study.machine.device, "--log", "{run}/log.jsonl", "--log-ranks", *run.layout,
              *(KEEP_WEIGHTS if run.keep else ())]
    return Spec(run.name, "ours", tuple(map(str, flags)), run.ranks, run.cores, run.seed, steps=run.steps, samples=BATCH,
                inputs=input_pairs(study, study.base, folder), timed=False, work=tuning_work(study, run, folder),
                needs=study.base.needs)


def peer_tuning(study, run, model: Model | None = None):
    """The same with transformers, on one rank or with DDP. With `model`, a classifier, only its test."""
    folder, base = study.inputs.sentences(run.lines), model or study.base
    shared = sentiment_model(study.base)
    flags = ["--reference", base.path, "--data", folder, "--method", run.method.name, "--lr", run.method.rates[0], "--steps",
             0 if model else run.steps, "--evaluations", max(1, run.evaluations), "--batch-size", BATCH, "--length", shared.length,
             "--seed", run.seed, "--weight-decay", methods.WEIGHT_DECAY, "--dropout", methods.DROPOUT, "--rank",
             methods.LORA_RANK, "--rendezvous", "{run}/rendezvous", "--out", "{run}/peer.json"]
    pairs = input_pairs(study, base, folder)
    return Spec(run.name, "transformers", tuple(map(str, flags)), run.ranks, run.cores, run.seed, steps=run.steps,
                samples=BATCH, inputs=(*pairs, (str(folder), folder.name)), timed=False,
                work=tuning_work(study, run, folder), needs=base.needs)


# ---- what runs measure -----------------------------------------------------------------------


def test_of(result):
    """The classification of the test part: examples, accuracy, macro, confusion_matrix."""
    if result.facts["side"] == "transformers":
        return result.peer()["test"]
    log = result.folder / "log.jsonl"
    return test_record(read_log(log), log)


def scores_of(result):
    """{name of SCORES: value}"""
    test = test_of(result)
    return {"accuracy": test["accuracy"], **test["macro"]}


def mean_scores(finished):
    """Means over runs, and "sd", the deviation of the accuracy (None for one run)."""
    if not finished:
        return {}
    scores = [scores_of(result) for result in finished]
    means = {key: mean_and_deviation([one[key] for one in scores])[0] for key in SCORES}
    return {**means, "sd": mean_and_deviation([one["accuracy"] for one in scores])[1]}


def step_seconds(result):
    """Mean seconds of a step."""
    if result.facts["side"] == "transformers":
        return result.peer()["step_ms"] / 1000
    return result.timed_mean("step_ms")


def epoch_seconds(result):
    """Seconds of the steps of an epoch."""
    if result.facts["side"] == "transformers":
        return step_seconds(result) * result.peer()["epoch_steps"]
    last = result.steps()[-1]
    return step_seconds(result) * last["step"] / last["epoch"]


def tokens_per_second(result):
    """Of the timed steps; padding does not count."""
    steps, first = result.steps(), len(result.steps()) - len(result.timed_steps())
    begin = steps[first - 1]["tokens"] if first else 0
    return (steps[-1]["tokens"] - begin) / result.timed_sum("step_ms")
