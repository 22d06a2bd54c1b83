#!/usr/bin/env python3
"""Computes the scores of evaluation tasks with transformers, one text at a time without padding.

    eval_scores.py DIR T STRIDE TOKENIZER TASK:FILE...

TOKENIZER is "bytes" or a directory with encoder.json and vocab.bpe. Prints a JSON list with one object
of metrics per task. Its "lead" is the smallest margin of an answer in nats: smaller errors of the scores
change no answer. Needs torch, transformers and tokenizers.
"""
import json
import math
import sys
from pathlib import Path

import torch
from transformers import GPT2LMHeadModel

import greedy


class Model:
    def __init__(self, folder, tokenizer, T):
        self.model, self.T = GPT2LMHeadModel.from_pretrained(folder).eval(), T
        self.encode, self.end = greedy.encode, 256
        if tokenizer != "bytes":
            from tokenizers import ByteLevelBPETokenizer
            files = [str(Path(tokenizer) / name) for name in ("encoder.json", "vocab.bpe")]
            bpe = ByteLevelBPETokenizer.from_file(*files)
            self.encode, self.end = lambda text: bpe.encode(text).ids, 50256

    @torch.no_grad()
    def logits(self, ids):
        return self.model(torch.tensor([ids])).logits[0].double()

    def continuation(self, context, text):
        """Returns (log-probability of `text` after `context`, smallest lead of its tokens over every other
        token in nats, number of its tokens). The lead is negative if one of them is not the likeliest.
        The two are tokenized as one text."""
        ids = self.encode(context + text)
        count = len(ids) - len(self.encode(context))
        ids = ids[-(self.T + 1):]
        logits = self.logits(ids[:-1])[-count:]
        targets = torch.tensor(ids[-count:])[:, None]
        text_logits = logits.gather(1, targets)[:, 0]
        other_logits = logits.scatter(1, targets, -math.inf).amax(1)
        return (text_logits - logits.logsumexp(1)).sum().item(), (text_logits - other_logits).min().item(), count


def perplexity(model, stride, file):
    text = Path(file).read_bytes().decode()
    ids, nll, scored = [model.end, *model.encode(text)], 0.0, 1
    for begin in range(0, len(ids), stride):
        end = min(begin + model.T, len(ids) - 1)
        log_p = model.logits(ids[begin:end]).log_softmax(1)
        for i in range(scored, end + 1):
            nll -= log_p[i - 1 - begin, ids[i]].item()
        scored = end + 1
        if scored == len(ids):
            break
    tokens = len(ids) - 1
    return {"examples": tokens, "token_nll": nll / tokens, "token_perplexity": math.exp(nll / tokens),
            "word_perplexity": math.exp(nll / len(text.split())),
            "bits_per_byte": nll / math.log(2) / len(text.encode()), "lead": math.inf}


def lambada(model, _, file):
    results = []
    for line in Path(file).read_text().splitlines():
        context, word = json.loads(line)["text"].rsplit(" ", 1)
        results.append(model.continuation(context, " " + word))
    return {"examples": len(results), "accuracy": sum(lead > 0 for _, lead, _ in results) / len(results),
            "perplexity": math.exp(-sum(log_p for log_p, _, _ in results) / len(results)),
            "lead": min(abs(lead) for _, lead, _ in results)}


def choices(model, examples):
    """`examples`: tuples of a context, endings (without the space before them) and the index of the right one."""
    right, leads = {"accuracy": 0, "acc_norm": 0, "acc_norm_tokens": 0}, []
    for context, endings, label in examples:
        results = [model.continuation(context, " " + ending) for ending in endings]
        scores = {"accuracy": [log_p for log_p, _, _ in results],
                  "acc_norm": [log_p / len(e.encode()) for (log_p, _, _), e in zip(results, endings)],
                  "acc_norm_tokens": [log_p / count for log_p, _, count in results]}
        for name, values in scores.items():
            right[name] += values.index(max(values)) == label
            best, second = sorted(values)[:-3:-1]
            leads.append(best - second)
    count = len(examples)
    return {"examples": count, **{name: n / count for name, n in right.items()}, "lead": min(leads)}


def hellaswag(model, _, file):
    examples = [json.loads(line) for line in Path(file).read_text().splitlines()]
    return choices(model, [(example["ctx"], example["endings"], example["label"]) for example in examples])


def race(model, _, file):
    """Articles with lists of questions. A gap is written "_", with text after it, or there is none."""
    examples = []
    for line in Path(file).read_text().splitlines():
        item = json.loads(line)
        for question, options, answer in zip(item["questions"], item["options"], item["answers"]):
            before, _, after = (part.strip() for part in question.partition("_"))
            gap = "" if not after else after if after in ".?" else " " + after
            examples.append((f"{item['article']}\n{before}", [option + gap for option in options],
                             "ABCD".index(answer)))
    return choices(model, examples)


if __name__ == "__main__":
    if len(sys.argv) < 6:
        sys.exit(__doc__)
    torch.set_num_threads(1)  # small products; threads would only wait for each other
    model = Model(sys.argv[1], sys.argv[4], int(sys.argv[2]))
    tasks = {"perplexity": perplexity, "lambada": lambada, "hellaswag": hellaswag, "race": race}
    results = []
    for spec in sys.argv[5:]:
        task, path = spec.split(":", 1)
        results.append(tasks[task](model, int(sys.argv[3]), path))
    print(json.dumps(results))
