#!/usr/bin/env python3
"""Times generation on the CPU: infer_gpt2, CTranslate2 and transformers, in turns, and prints their ratios.

    PYTHON=python3 python3 dev/peers/infer_peers.py MODEL [--infer-gpt2 ./infer_gpt2] [--threads 2]
        [--dtypes fp32,bf16] [--repetitions 5] [--json FILE|-] [--gguf FILE] [--llama-cpp TOK_PER_S]

MODEL is a directory that transformers saved or train_gpt2 wrote, with its tokenizer. PYTHON names an
interpreter with the peers: torch and transformers, and ctranslate2. What is not installed, or does not run the
model or a dtype, is reported and skipped.

Two speeds are measured at batch size 1. Decode: tokens per second of 64 greedy tokens after a prompt of 16.
Prefill: tokens per second of a prompt of 512 (less if the model's context is shorter). Decode time excludes the
prompt: ours and transformers time it apart; CTranslate2 does not, so the time of a call for one token is
subtracted from that for 65. Loading is excluded. Every side has one turn per repetition, and every second
repetition is in reverse order; peers have a warm-up turn. A ratio is our speed divided by the peer's in the
same repetition and dtype; above 1, ours is faster.

llama.cpp is timed if its program llama-bench is in PATH and --gguf names MODEL in its format (F32, F16 or BF16; the
last two are compared with our bf16). Its tokens follow an empty context instead of a prompt of 16. --llama-cpp names a
published decode speed (tokens per second, on this machine or a like one), which is then printed next to ours.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from side_process import PYTHON, SideFailed, SideProcess, last_line, quiet_threads, serve

ROOT = Path(__file__).resolve().parent.parent.parent
DTYPES = ("fp32", "bf16")
DECODE_TOKENS, DECODE_PROMPT, PREFILL_PROMPT = 64, 16, 512
PEERS = ("CTranslate2", "transformers")
MODULES = {"CTranslate2": "ctranslate2, transformers, torch", "transformers": "transformers, torch"}


def prompt_text(tokens):
    """A text of this many tokens, in GPT-2's tokenizer and in those that are cut from it."""
    return " ".join(["the"] * tokens)


# ---- ours ----------------------------------------------------------------------------------


class OurSide:
    """infer_gpt2, in a new process for every turn."""

    def __init__(self, options, dtype):
        self.options, self.dtype, self.name, self.notes = options, dtype, f"ours {dtype}", []

    def generate(self, prompt_tokens, tokens):
        """Returns the JSON object that infer_gpt2 prints."""
        o = self.options
        command = [str(o.infer_gpt2), "-m", str(o.model), "-p", prompt_text(prompt_tokens), "-n", str(tokens), "--temp",
                   "0", "--json", "--quiet", "--ignore-eos", "--dtype", self.dtype, *o.ours]
        environment = {**os.environ, "LLMC_HOST_THREADS": str(o.threads), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        if done.returncode != 0:
            raise SideFailed(last_line(done.stderr, f"exit code {done.returncode}"))
        try:
            report = json.loads(done.stdout)
            read = report.get("prompt_tokens", prompt_tokens)
            if report["timings"]["prompt_ms"] <= 0:
                raise SideFailed("timings.prompt_ms is not positive")
        except (ValueError, KeyError, TypeError, AttributeError):
            raise SideFailed("the output is no JSON object with \"timings\"") from None
        if read != prompt_tokens:
            note = f"the prompts of ours have other lengths, {read} instead of {prompt_tokens} tokens"
            self.notes = self.notes or [note]
        return {**report["timings"], "prompt_tokens": read}

    def turn(self):
        decode = self.generate(DECODE_PROMPT, DECODE_TOKENS)
        prefill = self.generate(self.options.prefill, 1)
        if not decode.get("tokens_per_second"):
            raise SideFailed("timings.tokens_per_second is missing or 0")
        return {"decode": decode["tokens_per_second"], "prefill": 1e3 * prefill["prompt_tokens"] / prefill["prompt_ms"]}

    def close(self):
        pass


# ---- peers ---------------------------------------------------------------------------------


class PeerSide:
    """A peer in one dtype, in a process that waits between its turns."""

    def __init__(self, options, peer, dtype):
        self.options, self.peer, self.dtype, self.notes = options, peer, dtype, []
        self.name = f"{peer} {dtype}"
        settings = {"peer": peer, "dtype": dtype, "model": str(options.model), "threads": options.threads,
                    "prefill": options.prefill, "folder": str(options.folder)}
        environment = {**quiet_threads(options.threads), "TOKENIZERS_PARALLELISM": "false"}
        self.process = SideProcess(__file__, settings, environment)

    def turn(self):
        return self.process.turn()

    def close(self):
        self.process.close()


def seconds_of(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


class Transformers:
    """GPT2LMHeadModel in eager mode with a key-value cache. Only the last position's logits are computed."""

    def __init__(self, settings):
        import torch
        from transformers import GPT2LMHeadModel
        torch.set_num_threads(settings.threads)
        torch.set_grad_enabled(False)
        self.torch, self.prefill_tokens = torch, settings.prefill
        self.model = GPT2LMHeadModel.from_pretrained(settings.model).eval()
        self.model.to(torch.float32 if settings.dtype == "fp32" else torch.bfloat16)

    def read(self, tokens, cache=None):
        out = self.model(tokens, past_key_values=cache, use_cache=True, logits_to_keep=1)
        return out.logits[:, -1:].argmax(-1), out.past_key_values

    def prompt(self, count):
        return self.torch.full((1, count), 1, dtype=self.torch.long)

    def turn(self):
        token, cache = self.read(self.prompt(DECODE_PROMPT))

        def decode():
            nonlocal token, cache
            for _ in range(DECODE_TOKENS):
                token, cache = self.read(token, cache)

        decode_seconds = seconds_of(decode)
        prefill_seconds = seconds_of(lambda: self.read(self.prompt(self.prefill_tokens)))
        return {"decode": DECODE_TOKENS / decode_seconds, "prefill": self.prefill_tokens / prefill_seconds}


# Names of the tokenizer's files in OpenAI's release, which transformers does not read.
OPENAI_NAMES = {"encoder.json": "vocab.json", "vocab.bpe": "merges.txt"}


def linked_model(model, folder):
    """Links the files of `model` in `folder` under the names that transformers reads, and returns `folder`."""
    folder.mkdir()
    for file in model.resolve().iterdir():
        (folder / file.name).symlink_to(file)
    for ours, theirs in OPENAI_NAMES.items():
        if (model / ours).exists() and not (folder / theirs).exists():
            (folder / theirs).symlink_to((model / ours).resolve())
    return folder


class CTranslate2:
    """A model that ctranslate2's converter writes to a temporary folder."""

    def __init__(self, settings):
        import ctranslate2
        from ctranslate2.converters import TransformersConverter
        compute_type = {"fp32": "float32", "bf16": "bfloat16", "int8": "int8_float32"}[settings.dtype]
        supported = ctranslate2.get_supported_compute_types("cpu")
        if compute_type not in supported:
            raise SideFailed(f"does not support {compute_type} on this CPU (only {', '.join(sorted(supported))})")
        folder = Path(settings.folder) / f"ctranslate2_{settings.dtype}"
        linked = linked_model(Path(settings.model), Path(settings.folder) / f"model_{settings.dtype}")
        TransformersConverter(str(linked)).convert(str(folder), quantization=compute_type, force=True)
        self.generator = ctranslate2.Generator(str(folder), device="cpu", compute_type=compute_type,
                                               inter_threads=1, intra_threads=settings.threads)
        vocabulary = json.loads((folder / "vocabulary.json").read_text())
        self.token, self.prefill_tokens = vocabulary[1], settings.prefill

    def generate(self, prompt, tokens):
        """Reads `prompt` tokens and generates `tokens`."""
        result, = self.generator.generate_batch([[self.token] * prompt], max_length=tokens, min_length=tokens,
                                                sampling_topk=1, beam_size=1, include_prompt_in_result=False)
        if len(result.sequences_ids[0]) != tokens:
            raise SideFailed(f"generated {len(result.sequences_ids[0])} tokens instead of {tokens}")

    def turn(self):
        one = seconds_of(lambda: self.generate(DECODE_PROMPT, 1))
        all_tokens = seconds_of(lambda: self.generate(DECODE_PROMPT, DECODE_TOKENS + 1))
        prefill_seconds = seconds_of(lambda: self.generate(self.prefill_tokens, 1))
        return {"decode": DECODE_TOKENS / max(all_tokens - one, 1e-9), "prefill": self.prefill_tokens / prefill_seconds}


class LlamaBench:
    """llama.cpp's llama-bench, in a new process for every turn. It warms up by itself."""

    DTYPES = {"F32": "fp32", "F16": "bf16", "BF16": "bf16"}

    def __init__(self, options):
        self.options, self.notes, self.name = options, [], "llama.cpp"
        model_type = self.measure(1, 1)[0]["model_type"]  # such as "gpt2 0.1B F16"
        self.dtype = self.DTYPES.get(model_type.split()[-1])
        if self.dtype not in options.dtypes:
            raise SideFailed(f"{options.gguf} is {model_type}; --dtypes {','.join(options.dtypes)} has no counterpart")
        self.name = f"llama.cpp {self.dtype}"

    def measure(self, prompt, tokens):
        command = ["llama-bench", "-m", str(self.options.gguf), "-t", str(self.options.threads), "-p", str(prompt), "-n",
                   str(tokens), "-r", "1", "-o", "json"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise SideFailed(last_line(done.stderr, f"exit code {done.returncode}"))
        return json.loads(done.stdout)

    def turn(self):
        tests = {test["n_gen"]: test["avg_ts"] for test in self.measure(self.options.prefill, DECODE_TOKENS)}
        return {"decode": tests[DECODE_TOKENS], "prefill": tests[0]}

    def close(self):
        pass


def llama_bench(options):
    """The side of llama.cpp; raises SideFailed if it cannot run."""
    if shutil.which("llama-bench") is None:
        raise SideFailed("llama-bench is not in PATH")
    if options.gguf is None:
        raise SideFailed("--gguf names no model for llama-bench")
    return LlamaBench(options)


def serve_peer(settings):
    """The process of a peer."""
    peer = None

    def turn():
        nonlocal peer
        if peer is None:
            peer = {"CTranslate2": CTranslate2, "transformers": Transformers}[settings.peer](settings)
            peer.turn()  # the warm-up
        return peer.turn()

    serve(turn)


# ---- turns and report ----------------------------------------------------------------------


def missing_modules(peer):
    """Returns the reason why the peer cannot be imported, or None."""
    try:
        done = subprocess.run([PYTHON, "-c", f"import {MODULES[peer]}"], capture_output=True, text=True)
    except OSError as error:
        return f"{PYTHON}: {error.strerror}"
    if done.returncode == 0:
        return None
    return f"{last_line(done.stderr, 'cannot be imported')} ({PYTHON} -m pip install {MODULES[peer].replace(',', '')})"


def measure(options):
    """Returns (speeds by side and quantity, reasons of skipped sides, notes)."""
    skipped = {peer: reason for peer in PEERS if (reason := missing_modules(peer))}
    sides = [OurSide(options, dtype) for dtype in options.dtypes]
    sides += [PeerSide(options, peer, dtype) for peer in PEERS if peer not in skipped for dtype in options.dtypes]
    try:
        sides.append(llama_bench(options))
    except SideFailed as reason:
        skipped["llama.cpp"] = str(reason)
    speeds = {side.name: [] for side in sides}
    try:
        for index in range(options.repetitions):
            for side in sides[::-1 if index % 2 else 1]:
                if side.name in skipped:
                    continue
                try:
                    speeds[side.name].append(side.turn())
                except SideFailed as reason:
                    if isinstance(side, OurSide):
                        raise SystemExit(f"infer_peers.py: {side.name}: {reason}") from None
                    skipped[side.name] = str(reason)
                    continue
                decode, prefill = (speeds[side.name][-1][key] for key in ("decode", "prefill"))
                print(f"repetition {index + 1}/{options.repetitions}: {side.name}: decode {decode:.1f} tok/s, prefill "
                      f"{prefill:.1f} tok/s", file=sys.stderr, flush=True)
    finally:
        for side in sides:
            side.close()
    notes = sorted({note for side in sides for note in side.notes})
    return {name: turns for name, turns in speeds.items() if name not in skipped}, skipped, notes


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "repetitions": values}


def make_record(options, speeds, skipped, notes):
    record = {"model": str(options.model), "threads": options.threads, "repetitions": options.repetitions,
              "decode": {"prompt": DECODE_PROMPT, "tokens": DECODE_TOKENS}, "prefill": {"prompt": options.prefill},
              "sides": [], "llama_cpp_decode": options.llama_cpp, "skipped": skipped, "notes": notes}
    for name, turns in speeds.items():
        dtype = name.split()[-1]
        side = {"name": name, "dtype": dtype}
        for key in ("decode", "prefill"):
            side[key] = spread([turn[key] for turn in turns])
            if not name.startswith("ours"):
                ours = [turn[key] for turn in speeds[f"ours {dtype}"]]
                side[f"{key}_ratio"] = spread([a / b for a, b in zip(ours, side[key]["repetitions"])])
        record["sides"].append(side)
    return record


def show(record):
    print(f"{record['model']}: {record['threads']} threads, {record['repetitions']} repetitions; median (min to max) "
          f"in tokens per second; ratio: ours / theirs")
    print(f"{'side':24}{f'decode {DECODE_TOKENS}':>28}{'ratio':>8}{'prefill %d' % record['prefill']['prompt']:>30}{'ratio':>8}")
    for side in record["sides"]:
        cells = []
        for key, width in (("decode", 28), ("prefill", 30)):
            speed, ratio = side[key], side.get(f"{key}_ratio")
            cells.append(f"{speed['median']:.1f} ({speed['min']:.1f} to {speed['max']:.1f})".rjust(width))
            cells.append((f"{ratio['median']:.2f}" if ratio else "-").rjust(8))
        print(f"{side['name']:24}{''.join(cells)}")
    if record["llama_cpp_decode"] is not None:
        ours = record["sides"][0]["decode"]["median"] / record["llama_cpp_decode"]
        print(f"llama.cpp: published decode speed {record['llama_cpp_decode']:.1f}, ratio {ours:.2f}")
    for name, reason in record["skipped"].items():
        print(f"skipped {name}: {reason}")
    for note in record["notes"]:
        print(f"note: {note}")


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     allow_abbrev=False)
    parser.add_argument("model", type=Path, help="directory with config.json, weights and a tokenizer")
    parser.add_argument("--infer-gpt2", type=Path, default=ROOT / "infer_gpt2", help="our program [./infer_gpt2]")
    parser.add_argument("--ours", default="", help="more flags of infer_gpt2, separated by spaces")
    parser.add_argument("--threads", type=int, default=2, help="threads of every side [2]")
    parser.add_argument("--dtypes", default="fp32,bf16", help="fp32, bf16 or both [fp32,bf16]")
    parser.add_argument("--repetitions", type=int, default=5, help="turns of every side [5]")
    parser.add_argument("--gguf", type=Path, metavar="FILE", help="the model for llama.cpp's llama-bench")
    parser.add_argument("--llama-cpp", type=float, metavar="TOK_PER_S", help="published decode speed of llama.cpp")
    parser.add_argument("--json", metavar="FILE", help="write the numbers as JSON; -: to stdout instead of the table")
    o = parser.parse_args()
    o.dtypes, o.ours = o.dtypes.split(","), o.ours.split()
    if any(dtype not in DTYPES for dtype in o.dtypes) or len(set(o.dtypes)) != len(o.dtypes):
        parser.error(f"--dtypes {','.join(o.dtypes)}; allowed: {', '.join(DTYPES)}")
    for name in ("threads", "repetitions"):
        if getattr(o, name) < 1:
            parser.error(f"--{name} {getattr(o, name)}; allowed: 1 or more")
    if o.llama_cpp is not None and not o.llama_cpp > 0:
        parser.error(f"--llama-cpp {o.llama_cpp}; allowed: a positive number")
    if not o.infer_gpt2.is_file():
        parser.error(f"--infer-gpt2 {o.infer_gpt2}: no such file")
    o.infer_gpt2 = o.infer_gpt2.resolve()  # a bare name would be searched in PATH
    try:
        config = json.loads((o.model / "config.json").read_text())
        context = int(config.get("n_positions") or config["n_ctx"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        parser.error(f"{o.model} has no config.json of a GPT-2")
    o.prefill = min(PREFILL_PROMPT, context - 1)
    if context < DECODE_PROMPT + DECODE_TOKENS + 1:
        parser.error(f"{o.model} has a context of {context} tokens; allowed: {DECODE_PROMPT + DECODE_TOKENS + 1} or more")
    return o


def main():
    options = parse_options()
    with tempfile.TemporaryDirectory() as folder:
        options.folder = Path(folder)
        record = make_record(options, *measure(options))
    text = json.dumps(record, indent=1)
    if options.json == "-":
        print(text)
        return
    show(record)
    if options.json:
        Path(options.json).write_text(text + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve_peer(argparse.Namespace(**json.loads(sys.argv[2])))
    else:
        sys.path.append(str(Path(__file__).resolve().parent.parent.parent / "scripts"))
        import standard_output
        standard_output.run(main)
