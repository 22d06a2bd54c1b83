#!/usr/bin/env python3
"""OpenAI's GPT-2 as a folder that infer_gpt2 and train_gpt2 read: weights and vocabulary, checked.

    data/gpt2.py [124M|355M|774M|1558M] [DIR]

scripts/get_gpt2.sh is the short way to start this. Downloads the missing files into DIR [models/gpt2-SIZE].
If GPT2_DIR names a folder, nothing is downloaded: that copy is checked instead. Prints only the folder on
standard output. Exit code 0: the model is there; 1: it is not, and stderr has the reason; 2: the command
line is wrong; 130: interrupted, run again to resume.
"""
import argparse
import json
import math
import os
import sys
from pathlib import Path

import download
import prepare
import sources
from download import DownloadError

MODELS = Path(__file__).resolve().parent / "models.json"
TOKENS = 50257
# transformers reads these; our programs do not need them.
OPTIONAL = {"generation_config.json", "tokenizer.json", "tokenizer_config.json"}
VOCABULARY = {"vocab.json", "merges.txt"}
BYTES_OF = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
MAX_HEADER_BYTES = 100 << 20


class ModelError(Exception):
    pass


def read_json(path):
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise ModelError(f"{path}: not JSON ({error})") from None
    if not isinstance(value, dict):
        raise ModelError(f"{path}: not a JSON object")
    return value


def tensors_of(path):
    """{name: shape} of a safetensors file. Throws ModelError unless its header parses and its tensors fill it
    to its last byte."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(size - 8, MAX_HEADER_BYTES):
                raise ModelError(f"{path}: not a complete safetensors file: a header of {length} bytes in {size}")
            header = json.loads(file.read(length))
        shapes, end = {}, 0
        entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
        for name, entry in sorted(entries.items(), key=lambda item: item[1]["data_offsets"]):
            begin, stop = entry["data_offsets"]
            if begin != end or stop - begin != math.prod(entry["shape"]) * BYTES_OF[entry["dtype"]]:
                raise ModelError(f"{path}: tensor {name} does not have the bytes of its shape and type")
            shapes[name], end = tuple(entry["shape"]), stop
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{path}: the safetensors header does not parse ({type(error).__name__}: {error})") from None
    if 8 + length + end != size:
        raise ModelError(f"{path}: {size} bytes, but its tensors end at {8 + length + end}")
    return shapes


def check_weights(path, layers, channels, tokens, positions):
    """Throws ModelError unless the tensors that define a GPT-2 of that size exist with the right shapes."""
    shapes = {name[len("transformer."):] if name.startswith("transformer.") else name: shape
              for name, shape in tensors_of(path).items()}
    expected = {"wte.weight": (tokens, channels), "wpe.weight": (positions, channels), "ln_f.weight": (channels,)}
    for layer in range(layers):
        expected[f"h.{layer}.attn.c_attn.weight"] = (channels, 3 * channels)
        expected[f"h.{layer}.mlp.c_fc.weight"] = (channels, 4 * channels)
    for name, shape in expected.items():
        if shapes.get(name) != shape:
            raise ModelError(f"{path}: {name} is {shapes.get(name, 'missing')}; expected {shape}")


def check_vocabulary(folder):
    """Throws ModelError unless GPT-2's tokens and merges exist, under one of their two pairs of names."""
    for vocabulary, merges in (("encoder.json", "vocab.bpe"), ("vocab.json", "merges.txt")):
        if (folder / vocabulary).is_file() and (folder / merges).is_file():
            break
    else:
        raise ModelError(f"{folder}: has neither vocab.json and merges.txt nor encoder.json and vocab.bpe")
    numbers = read_json(folder / vocabulary).values()
    if sorted(n for n in numbers if type(n) is int) != list(range(len(numbers))) or len(numbers) != TOKENS:
        raise ModelError(f"{folder / vocabulary}: expected {TOKENS} tokens, numbered from 0 without gaps")
    try:
        lines = (folder / merges).read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"{folder / merges}: {error}") from None
    pairs = [line for line in lines if line and not line.startswith("#version")]
    if len(pairs) != TOKENS - 257 or any(len(pair.split(" ")) != 2 for pair in pairs):  # 256 bytes, <|endoftext|>
        raise ModelError(f"{folder / merges}: expected {TOKENS - 257} pairs, one per line")


def check_model(folder, source=None):
    """Throws ModelError unless the folder holds a GPT-2: config.json, weights of its shape, a vocabulary.
    source: the expected model (None: any)."""
    if not folder.is_dir():
        raise ModelError(f"{folder}: no such folder")
    config = read_json(folder / "config.json")
    layers, channels, tokens, positions = (config.get(key) for key in ("n_layer", "n_embd", "vocab_size", "n_positions"))
    if not all(type(n) is int and n > 0 for n in (layers, channels, tokens, positions)):
        raise ModelError(f"{folder / 'config.json'}: n_layer, n_embd, vocab_size and n_positions must be positive integers")
    if source and [layers, channels] != source.shape:
        raise ModelError(f"{folder}: {layers} layers and {channels} channels are not GPT-2 {source.name}, which has "
                         f"{source.shape[0]} and {source.shape[1]}")
    check_weights(folder / "model.safetensors", layers, channels, tokens, positions)
    check_vocabulary(folder)


def get(source, folder, options):
    folder.mkdir(parents=True, exist_ok=True)
    sums = sources.Sums(folder)
    print(f"{source.about}; licence: {source.licence}", file=sys.stderr)
    download.require_space(folder, prepare.missing_bytes(source, folder, sums))
    for file in source.files:
        inspect = tensors_of if file.name == "model.safetensors" else lambda path: None
        try:
            prepare.obtain(file, folder, sums, options, inspect)
        except DownloadError as error:
            if file.name not in OPTIONAL:
                raise
            print(f"{error}\nonly transformers needs {file.name}; continuing without it", file=sys.stderr)


def arguments():
    parser = argparse.ArgumentParser(prog=os.environ.get("GET_GPT2_NAME"), description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("size", nargs="?", choices=sources.names(MODELS), help="size of the model [124M]")
    parser.add_argument("folder", nargs="?", metavar="DIR", help="folder to write [models/gpt2-SIZE]")
    prepare.add_download_flags(parser.add_argument)
    parser.add_argument("--vocabulary", action="store_true",
                        help="only the vocabulary, which is the same for all sizes and sufficient for --tokenizer gpt2")
    parser.add_argument("--sources", default=str(MODELS), metavar="FILE", help="table of models [data/models.json]")
    options = parser.parse_args()
    options.copy = os.environ.get("GPT2_DIR")
    if options.copy and options.folder:
        parser.error(f"DIR is {options.folder}, but GPT2_DIR names a copy in {options.copy}; give only one of them")
    return options


def main():
    options = arguments()
    size = options.size or "124M"
    source = sources.load_source(size, options.sources)
    if options.vocabulary:
        source.files = [file for file in source.files if file.name in VOCABULARY]
    if options.copy:
        folder = Path(options.copy)
        print(f"GPT2_DIR: checking the copy in {folder}, downloading nothing", file=sys.stderr)
        check_vocabulary(folder) if options.vocabulary else check_model(folder, source if options.size else None)
    else:
        folder = Path(options.folder or Path("models") / f"gpt2-{size}")
        if options.dry_run:
            prepare.describe(source, folder, options, sources.Sums(folder))
            return
        get(source, folder, options)
        check_vocabulary(folder) if options.vocabulary else check_model(folder, source)
    print(folder)
    if options.vocabulary:
        return print("next: ./train_gpt2 --tokenizer gpt2 --train FILE", file=sys.stderr)
    print(f"next: ./infer_gpt2 -m {folder} -p 'Once upon a time'\n"
          f"      ./train_gpt2 --init-from {folder} --tokenizer {folder} --train FILE", file=sys.stderr)


if __name__ == "__main__":
    download.run(main, (ModelError, sources.SourceError))
