"""The ways to train a classifier that are compared, and their flags of train_gpt2."""
import json
from pathlib import Path
from typing import NamedTuple

from finetune_sentiment.data import classes_flag

BATCH_SIZE, MAX_LENGTH = 16, 128  # sequences, tokens
EVALUATIONS = 4  # of the validation part during a run
WEIGHT_DECAY, DROPOUT, LORA_RANK = 0.01, 0.1, 8


class Method(NamedTuple):
    name: str
    title: str
    flags: tuple        # of training
    rates: tuple        # learning rates; those that a smaller grid leaves out are last
    max_epochs: float
    pretrained: bool = True
    adapter: bool = False
    evaluation_flags: tuple = ()


class Model(NamedTuple):
    """The model that fine-tuning starts from, a directory with weights, shape and tokenizer."""
    path: Path
    layers: int
    channels: int
    context: int

    @property
    def length(self):
        """Maximum number of tokens per sentence."""
        return min(self.context, MAX_LENGTH)


class ModelError(Exception):
    """A directory has no model."""


def read_model(path):
    try:
        config = json.loads((Path(path) / "config.json").read_text(encoding="utf-8"))
        return Model(Path(path), *(int(config[key]) for key in ("n_layer", "n_embd", "n_positions")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{path} has no readable config.json of a GPT-2 model: {error}") from None


def upper_blocks(layers):
    """The upper half of the blocks, rounded down, but at least one."""
    return range(layers - max(1, layers // 2), layers)


def upper_patterns(layers):
    return ",".join([*(f"h.{block}.*" for block in upper_blocks(layers)), "ln_f.*"])


def all_methods(layers):
    """Method of each name, in the order of the table."""
    dropout = ("--dropout", DROPOUT)
    lora = ("--lora", LORA_RANK, "--lora-targets", "all")
    int8 = ("--base-quant", "w8")
    methods = [
        Method("scratch", "from nothing", dropout, (5e-4, 1e-3, 2.5e-4), 8, pretrained=False),
        Method("all", "all weights", dropout, (8e-4, 3e-4, 1.5e-3), 8),
        Method("head", "only the head", ("--freeze", "*"), (1e-2, 3e-3, 3e-2), 12),
        Method("upper", "upper half of the blocks", (*dropout, "--train-only", upper_patterns(layers)),
               (5e-4, 1e-3, 2e-4), 8),
        Method("lora", f"LoRA of rank {LORA_RANK}", lora, (1e-3, 3e-3, 3e-4), 8, adapter=True),
        Method("ia3", "IA3", ("--ia3",), (1e-2, 3e-3, 3e-2), 8, adapter=True),
        Method("lora-int8", f"LoRA of rank {LORA_RANK} on INT8 weights", (*lora, *int8), (1e-3, 3e-3, 3e-4), 8,
               adapter=True, evaluation_flags=int8),
    ]
    return {method.name: method for method in methods}


def data_flags(folder, length, micro_batch=BATCH_SIZE):
    """Flags that training and evaluation share. The peak rate needs no measurement: the table has no MFU."""
    return ["--task", "classify", "--classes", classes_flag(folder), "--split", "80/10/10", "--seq-len", length,
            "--batch-size", micro_batch, "--eval-batches", 0, "--peak-tflops", 1]


def training_flags(method, model, folder, rate, seed, steps, micro_batches=(BATCH_SIZE, 1), evaluations=EVALUATIONS):
    """`micro_batches`: sequences of one, of a rank, and their number per step. Without `evaluations`, only the test part is
    evaluated, at the end."""
    if method.pretrained:
        start = ["--init-from", model.path]
    else:
        start = ["--model", model.path / "config.json", "--tokenizer", model.path]
    return [*data_flags(folder, model.length, micro_batches[0]), *start, *method.flags, "--grad-accum", micro_batches[1],
            "--steps", steps, "--lr", rate, "--weight-decay", WEIGHT_DECAY, "--seed", seed, "--eval-every", -(-steps // evaluations) if evaluations else 0,
            "--sample-every", 0]


def keeping_flags(out):
    """Flags that keep the checkpoint with the best macro F1 of the validation part."""
    return ["--out", out, "--keep-best", "--keep-best-by", "macro-f1", "--keep-checkpoints", 1]


def evaluation_flags(method, model, folder, checkpoint):
    source = ["--init-from", model.path, "--adapter", checkpoint] if method.adapter else ["--init-from", checkpoint]
    return [*data_flags(folder, model.length), *source, *method.evaluation_flags, "--steps", 0]


def parameters_without_head(method, model):
    """Parameters that learn if the head does not, for the methods whose flags name parameters; None for others."""
    block = 12 * model.channels ** 2 + 13 * model.channels
    return {"head": 0, "upper": len(upper_blocks(model.layers)) * block + 2 * model.channels}.get(method.name)
