#!/usr/bin/env python3
"""Writes small GPT-2s as directories in the format of save_pretrained, and generates from them
greedily with transformers.

    greedy.py DIR N              prompts (a JSON list of lists of ids) from stdin; prints a JSON list
                                 of {"ids": N generated ids, "logprobs": their log-probabilities,
                                 "margin": the smallest lead of a token over the second likeliest, in
                                 logits}
    greedy.py --remake           writes fixtures/greedy.json, what test_infer_programs.py expects

Both need torch and transformers. write_model() needs only the standard library: the weights come from
random.Random, whose random() is the same in all versions of Python, so no fixture stores them.
"""
import array
import json
import random
import struct
import sys
import tempfile
from pathlib import Path

FIXTURE = Path(__file__).resolve().parent / "fixtures" / "greedy.json"
FIXTURE_SHAPE = {"layers": 3, "heads": 5, "channels": 40, "context": 96}
FIXTURE_SEED = 1
PROMPTS = ["The king", "x", "\u00e9\u20ac\U0001f600", "0123456789 abcdefghij", "\n\n"]
TOKENS = 64

# The byte of each id 0 .. 255 of the byte tokenizer.
BYTE_ORDER = [*range(33, 127), *range(161, 173), *range(174, 256)]
BYTE_ORDER += [byte for byte in range(256) if byte not in BYTE_ORDER]


def encode(text):
    return [BYTE_ORDER.index(byte) for byte in text.encode()]


def decode(ids):
    """The bytes of ids, <|endoftext|> spelled out."""
    return b"".join(b"<|endoftext|>" if i == 256 else bytes([BYTE_ORDER[i]]) for i in ids)


def tensors(layers, channels, context, vocabulary, inner, untied):
    """Yields (name, shape, amplitude) of each tensor; amplitude None: constant LayerNorm weights. The
    amplitudes are large enough that the likeliest token leads clearly."""
    C, amplitude = channels, (3 / channels) ** 0.5
    yield "wte.weight", (vocabulary, C), 1.0
    yield "wpe.weight", (context, C), 2.0
    for layer in range(layers):
        h = f"h.{layer}."
        for name, rows, columns, gain in (("attn.c_attn", C, 3 * C, 1.5), ("attn.c_proj", C, C, 1.5),
                                          ("mlp.c_fc", C, inner, 1.0), ("mlp.c_proj", inner, C, 1.0)):
            yield h + name + ".weight", (rows, columns), gain * amplitude
            yield h + name + ".bias", (columns,), 0.1
        for name in ("ln_1", "ln_2"):
            yield h + name + ".weight", (C,), None
            yield h + name + ".bias", (C,), 0.1
    yield "ln_f.weight", (C,), None
    yield "ln_f.bias", (C,), 0.1
    if untied:
        yield "lm_head.weight", (vocabulary, C), 1.0


def write_model(folder, layers, heads, channels, context, vocabulary=257, seed=0, **config):
    """Writes config.json and model.safetensors to `folder`, which it creates if it is missing. Returns
    the folder. All other keyword arguments go into config.json; n_inner and tie_word_embeddings also
    change the tensors."""
    inner, untied = config.get("n_inner") or 4 * channels, not config.get("tie_word_embeddings", True)
    numbers, data, header = random.Random(seed), bytearray(), {}
    for name, shape, amplitude in tensors(layers, channels, context, vocabulary, inner, untied):
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        gain = 2.0 if name == "ln_f.weight" else 1.0
        values = [gain if amplitude is None else amplitude * (2 * numbers.random() - 1) for _ in range(count)]
        begin = len(data)
        data += array.array("f", values).tobytes()
        name = name if name.startswith("lm_head.") else "transformer." + name
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [begin, len(data)]}
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    text += b" " * (-len(text) % 8)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (folder / "config.json").write_text(json.dumps(
        {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "activation_function": "gelu_new",
         "vocab_size": vocabulary, "n_positions": context, "n_layer": layers, "n_head": heads,
         "n_embd": channels, "layer_norm_epsilon": 1e-5, "bos_token_id": vocabulary - 1,
         "eos_token_id": vocabulary - 1, **config}))
    return folder


def transformers_greedy(folder, prompts, count):
    import torch
    from transformers import GPT2LMHeadModel
    model = GPT2LMHeadModel.from_pretrained(folder).eval()
    model.generation_config.eos_token_id = None  # no token ends the text
    results = []
    for prompt in prompts:
        out = model.generate(torch.tensor([prompt]), max_new_tokens=count, do_sample=False, pad_token_id=0,
                             return_dict_in_generate=True, output_scores=True)
        best = [scores[0].topk(2).values for scores in out.scores]
        ids = out.sequences[0, len(prompt):].tolist()
        logprobs = [scores[0].double().log_softmax(0)[i].item() for i, scores in zip(ids, out.scores)]
        results.append({"ids": ids, "logprobs": [round(p, 7) for p in logprobs],
                        "margin": min((a - b).item() for a, b in best)})
    return results


def remake():
    with tempfile.TemporaryDirectory() as folder:
        write_model(folder, **FIXTURE_SHAPE, seed=FIXTURE_SEED)
        results = transformers_greedy(folder, [encode(prompt) for prompt in PROMPTS], TOKENS)
    lines = [json.dumps({"prompt": prompt, **result}) for prompt, result in zip(PROMPTS, results)]
    FIXTURE.write_text("[\n" + ",\n".join(lines) + "\n]\n")
    print("\n".join(lines))


if __name__ == "__main__":
    if sys.argv[1:] == ["--remake"]:
        remake()
    elif len(sys.argv) == 3:
        print(json.dumps(transformers_greedy(sys.argv[1], json.load(sys.stdin), int(sys.argv[2]))))
    else:
        sys.exit(__doc__)
