"""Flags and model sizes that experiments share."""
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


class Training(NamedTuple):
    """A training run: global batch, number of data ranks, steps, windows of an epoch, flags of the layout. A run of another
    shape than the study's starts from random weights of its seed."""
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


def shared_flags(study, run):
    """Flags that both programs have, and their input files."""
    inputs, shape = study.inputs, run.shape or study.scale.shape
    paths = [inputs.windows(run.windows, shape.T)]
    model = shape.flags()
    if run.shape is None:
        paths.append(inputs.weights(shape))
        model = ["--init-from", paths[-1]]
    micro, count = micro_batches(run.batch // run.data_ranks, study.scale.max_micro_batch, run.at_least)
    flags = [*model, "--train", paths[0], "--dtype", run.dtype or study.scale.dtype, "--batch-size", micro,
             "--grad-accum", count, "--seq-len", shape.T, "--steps", run.steps, "--lr", run.rate, "--warmup", 0,
             "--schedule", "constant", "--weight-decay", 0.1, "--grad-clip", run.grad_clip, "--seed", run.seed,
             "--log", "{run}/log.jsonl"]
    return flags, paths


def our_run(study, run):
    flags, paths = shared_flags(study, run)
    paths += [study.inputs.validation((run.shape or study.scale.shape).T)]
    flags += ["--device", study.machine.device, "--val", paths[-1], "--tokenizer", study.inputs.tokenizer(),
              "--eval-every", run.evaluate_every, "--sample-every", 0, "--log-ranks"]
    if study.machine.device == "host":
        flags += ["--peak-tflops", 1]  # so that it is not measured
    return make_spec(study, "ours", run, [*flags, *run.layout], paths)


def peer_run(study, run, strategy):
    flags, paths = shared_flags(study, run)
    device = "cpu" if study.machine.device == "host" else "cuda"
    return make_spec(study, "pytorch", run, [*flags, "--device", device, "--strategy", strategy, "--rendezvous",
                                             "{run}/rendezvous", *run.layout], paths)


def make_spec(study, side, run, flags, paths):
    return Spec(run.name, side, tuple(map(str, flags)), run.ranks, run.cores, run.seed, run.repeat, run.steps, run.batch,
                tuple((str(path), study.inputs.hash_of(path)) for path in paths), run.timed, work_of(study, run))


def work_of(study, run):
    """Operations of a sample, relative to one of the study's model: products and attention."""
    def operations(shape):
        return shape.T * (6 * shape.parameters() + 12 * shape.layers * shape.T * shape.channels)
    return operations(run.shape) / operations(study.scale.shape) if run.shape else 1.0


def windows_of(samples, T):
    """Windows of an epoch for a run of so many samples: different ones, as far as a small text has them."""
    return min(samples, MAX_TOKENS // T)


def plan_run(name, flags):
    """A --dry-run."""
    return Spec(name, "plan", tuple(map(str, flags)), timed=False)


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
