"""What made-up runs of classifiers, of infer_gpt2 and of peers leave, for study_samples.py."""
import json

CONFUSION = {"finetune-lora": [[5, 1], [2, 2]], "finetune-ia3": [[4, 2], [2, 2]], "finetune-tp-all": [[5, 1], [1, 3]]}
USUAL = [[5, 1], [0, 4]]
SPEED = {"none": 400.0, "w8": 200.0, "w8a8": 100.0, "w8a8-static": 80.0}  # us per token
PERPLEXITY = {"none": 100.0, "w8": 100.1, "w8a8": 100.2, "w8a8-static": 110.0}
ADAPTER_US = 4.0


def classification(matrix):
    total, right = sum(map(sum, matrix)), matrix[0][0] + matrix[1][1]
    return {"examples": total, "accuracy": right / total, "macro": {"precision": 0.75, "recall": 0.7, "f1": 0.72},
            "classes": [{"label": "negative"}, {"label": "positive"}], "confusion_matrix": matrix}


def test_line(spec):
    matrix = CONFUSION.get(spec.name, USUAL)
    return {"step": spec.steps, "test_loss": 0.5, "test_classification": json.dumps(classification(matrix))}


def first_lines(words):
    if "--lora" in words or "--ia3" in words:
        return "training 5000 of 1000000 parameters (0.5%), in 9 of 61 tensors\n"
    return "model: 5 layers: 1000000 parameters, fp32\n"


def bench(words):
    value = dict(zip(words, words[1:]))
    us = SPEED[value.get("--quant", "none")] + (ADAPTER_US if "--adapter" in words else 0.0)
    results = [{"test": test, "batch": int(batch), "tokens": int(value[count]), "us_per_token": us if test == "generate" else us / 10,
                "tokens_per_second": 1e6 / us, "joules_per_token": None}
               for batch in value["--batches"].split(",") for test, count in (("prompt", "--prompt-tokens"),
                                                                             ("generate", "--gen-tokens"))]
    return json.dumps({"results": results}) + "\n"


def losses(words):
    value = dict(zip(words, words[1:]))
    own, base = PERPLEXITY[value.get("--quant", "none")], PERPLEXITY["none"]
    lines = ["# a text", "task metric value std_err examples file", f"perplexity token_perplexity {own} 0.5 2048 f"]
    if "--base" in words:
        lines += [f"comparison base_token_perplexity {base} 0.5 2048 f",
                  f"comparison token_perplexity_difference {own - base} 0.05 2048 f", "comparison top1_agreement 0.99 0.001 2048 f"]
    return "\n".join(lines) + "\n"


def classes(count):
    """Every text is negative."""
    return '{"label":"negative","probabilities":{"negative":0.75,"positive":0.25}}\n' * count


def write(spec, folder, words):
    """The files of a run of infer_gpt2 or of a peer without a log."""
    if spec.side == "infer":
        line = "memory: INT8 weights 1.5 MiB, weights 0.5 MiB, activations 1.0 MiB; in all 3 MiB\n"
        (folder / "output.txt").write_text(f"device: a CPU\n{line}{line}")
        output = {"bench": bench, "perplexity": losses, "classify": lambda _: classes(10)}[words[0]]
        (folder / "stdout.txt").write_text(output(words))
    elif spec.side == "transformers":
        (folder / "peer.json").write_text(json.dumps({"test": classification(USUAL), "step_ms": 50.0, "epoch_steps": 10,
                                                      "peak_mib": 900.0}))
    else:
        turn = {"batch 1": 250.0, "batch 8": 1000.0, "prefill": 5000.0, "prompt tokens": 255, "perplexity": 101.0, "MiB": 9.0}
        (folder / "peer.json").write_text(json.dumps({"turns": {"PyTorch dynamic INT8": [turn]}, "skipped": {}}))
