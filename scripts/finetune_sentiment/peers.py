#!/usr/bin/env python3
"""Fine-tunes the same weights on the same sentences with transformers, or with LoRA of PEFT.

    peers.py --reference MODEL --data DIR --method all|lora --lr X --steps N --evaluations N --batch-size B --length T
             --seed S --weight-decay X --dropout P --rank R [--rendezvous FILE] --out FILE.json

Several ranks divide each batch, with DDP; they meet in the file --rendezvous. With --steps 0, the model is only tested.

The loop is that of Trainer with its defaults: batches of random sentences that are padded to the longest one, AdamW,
clipping at 1, and a cosine schedule after 5% warm-up. The weights with the best validation macro F1 are tested.
"""
import argparse
import copy
import json
import math
import resource
import sys
import time
from pathlib import Path

import torch
import transformers

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.append(str(Path(__file__).resolve().parent.parent.parent / "dev/peers"))
from finetune_sentiment.data import LABELS, read_parts  # noqa: E402
from finetune_sentiment.metrics import classification, confusion_matrix  # noqa: E402
from ranks import find_ranks, join_ranks, leave_ranks  # noqa: E402
import standard_output  # noqa: E402


def parse_command_line():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("reference", "data", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--method", choices=("all", "lora"), required=True)
    for name in ("steps", "evaluations", "batch-size", "length", "seed", "rank"):
        parser.add_argument(f"--{name}", type=int, required=True)
    for name in ("lr", "weight-decay", "dropout"):
        parser.add_argument(f"--{name}", type=float, required=True)
    parser.add_argument("--rendezvous", type=Path)
    options = parser.parse_args()
    options.rank_of_process, options.ranks, options.local_rank = find_ranks()
    if options.ranks > 1 and not options.rendezvous:
        parser.error(f"{options.ranks} ranks need --rendezvous FILE")
    return options


def load_tokenizer(folder):
    if (folder / "tokenizer.json").exists():
        return transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    return transformers.AutoTokenizer.from_pretrained(folder)


def load_model(options):
    dropout = options.dropout if options.method == "all" else 0.0
    config = transformers.AutoConfig.from_pretrained(options.reference, num_labels=len(LABELS), embd_pdrop=dropout,
                                                     attn_pdrop=dropout, resid_pdrop=dropout)
    config.pad_token_id = config.eos_token_id if config.eos_token_id is not None else config.vocab_size - 1
    model = transformers.GPT2ForSequenceClassification.from_pretrained(options.reference, config=config,
                                                                       dtype=torch.float32)
    if options.method == "lora":
        import peft
        model = peft.get_peft_model(model, peft.LoraConfig(
            task_type="SEQ_CLS", r=options.rank, lora_alpha=2 * options.rank, fan_in_fan_out=True,
            target_modules=["c_attn", "c_proj", "c_fc"]))
    return model


class Batches:
    """Padded batches of the texts of a part."""

    def __init__(self, part, tokenizer, options, pad, device):
        self._ids = [tokenizer(text)["input_ids"][:options.length] for text in part.texts]
        self._labels, self._pad, self._device = part.labels, pad, device
        self.count = len(self._ids)

    def order_by_length(self):
        return sorted(range(self.count), key=lambda i: -len(self._ids[i]))

    def batch(self, rows):
        length = max(len(self._ids[i]) for i in rows)
        ids = torch.tensor([self._ids[i] + [self._pad] * (length - len(self._ids[i])) for i in rows])
        mask = torch.tensor([[1] * len(self._ids[i]) + [0] * (length - len(self._ids[i])) for i in rows])
        labels = torch.tensor([self._labels[i] for i in rows])
        return {"input_ids": ids.to(self._device), "attention_mask": mask.to(self._device),
                "labels": labels.to(self._device)}


@torch.no_grad()
def evaluate(model, batches, labels, size):
    model.eval()
    predictions, order = [0] * batches.count, batches.order_by_length()
    for first in range(0, len(order), size):
        rows = order[first:first + size]
        for row, prediction in zip(rows, model(**batches.batch(rows)).logits.argmax(-1).tolist()):
            predictions[row] = prediction
    model.train()
    return classification(confusion_matrix(labels, predictions, len(LABELS)))


def learning_rate(step, options):
    warmup = max(1, options.steps // 20)
    if step < warmup:
        return options.lr * (step + 1) / warmup
    return options.lr * 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, options.steps - warmup)))


def train(model, parts, batches, options):
    """Returns (best validation metrics with their step, best weights that learn, mean ms per step)."""
    runner = torch.nn.parallel.DistributedDataParallel(model) if options.ranks > 1 else model
    learning = {name: value for name, value in model.named_parameters() if value.requires_grad}
    optimizer = torch.optim.AdamW(learning.values(), lr=options.lr, betas=(0.9, 0.95), weight_decay=options.weight_decay)
    every = max(1, math.ceil(options.steps / options.evaluations))
    order, best, weights, times = [], None, None, []
    model.train()
    for step in range(options.steps):
        start = time.monotonic()
        if len(order) < options.batch_size:
            order = torch.randperm(batches["train"].count).tolist()
        rows, order = order[:options.batch_size], order[options.batch_size:]
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, options)
        optimizer.zero_grad()
        runner(**batches["train"].batch(rows[options.rank_of_process::options.ranks])).loss.backward()
        torch.nn.utils.clip_grad_norm_(learning.values(), 1.0)
        optimizer.step()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        times.append(time.monotonic() - start)
        if (step + 1) % every == 0 or step + 1 == options.steps:
            result = evaluate(model, batches["validation"], parts["validation"].labels, options.batch_size)
            if best is None or result["macro"]["f1"] > best["macro_f1"]:
                best = {"step": step + 1, "macro_f1": result["macro"]["f1"], "accuracy": result["accuracy"], "loss": None}
                weights = copy.deepcopy({name: value.detach() for name, value in learning.items()})
    times = times[2:] or times
    return best, weights, 1000 * sum(times) / len(times)


def run(options, device):
    parts, model, tokenizer = read_parts(options.data), load_model(options).to(device), load_tokenizer(options.reference)
    batches = {name: Batches(part, tokenizer, options, model.config.pad_token_id, device) for name, part in parts.items()}
    validation, step_ms = None, None
    if options.steps > 0:
        validation, weights, step_ms = train(model, parts, batches, options)
        model.load_state_dict(weights, strict=False)
    test = evaluate(model, batches["test"], parts["test"].labels, options.batch_size)
    memory = torch.cuda.max_memory_allocated() / 2**20 if device.type == "cuda" else \
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"method": options.method, "rate": options.lr, "seed": options.seed, "steps": options.steps,
            "epoch_steps": batches["train"].count / options.batch_size,
            "validation": validation, "test": test, "planned_mib": None, "peak_mib": memory, "step_ms": step_ms,
            "trained_parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
            "parameters": sum(p.numel() for p in model.parameters()),
            "versions": {"torch": torch.__version__, "transformers": transformers.__version__}}


def main():
    options = parse_command_line()
    transformers.logging.set_verbosity_error()
    torch.manual_seed(options.seed)
    device = torch.device("cuda", options.local_rank) if torch.cuda.is_available() else torch.device("cpu")
    if options.ranks > 1:
        join_ranks(torch.distributed, options.rendezvous, options.rank_of_process, options.ranks,
                   "nccl" if device.type == "cuda" else "gloo")
    result = run(options, device)
    if options.rank_of_process == 0:
        options.out.write_text(json.dumps(result) + "\n", encoding="utf-8")
    if options.ranks > 1:
        leave_ranks(torch.distributed)


if __name__ == "__main__":
    standard_output.run(main)
