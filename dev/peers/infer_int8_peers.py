#!/usr/bin/env python3
"""Times INT8 generation on the CPU: infer_gpt2, CTranslate2, PyTorch and transformers, in turns.

    PYTHON=python3 python3 dev/peers/infer_int8_peers.py MODEL [--infer-gpt2 ./infer_gpt2] [--threads 2]
        [--repetitions 3] [--sides NAME,...] [--tokens FILE.bin] [--json FILE]

MODEL and PYTHON are those of infer_peers.py. The sides are infer_gpt2 in fp32, w8, w8a8 and w8a8 with --dtype bf16
(its command bench), CTranslate2 in int8, PyTorch's dynamic INT8 (quantize_dynamic of transformers' model, whose Conv1D
become Linear), and transformers in fp32. What is not installed is reported and skipped. If build/host/host_roof is
built, the limit of a prompt is printed: the speed if only the products of codes took time, at the rate that it measures.

Each turn measures tokens per second of 64 greedy tokens for one sequence and for 8 sequences, and of reading a prompt of
512 (less if the context is shorter), the median of three passes. Peers' decode follows a prompt of 16 and excludes it, as
in infer_peers.py; ours starts at position 1. Every second repetition is in reverse order. A ratio is the speed of w8a8
divided by that of the side in the same repetition. With --tokens, a turn of PyTorch and of transformers also has the
perplexity of the file's windows of the whole context, and the MiB of the model's saved state.
"""
import argparse
import io
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from infer_peers import DECODE_PROMPT, DECODE_TOKENS, PREFILL_PROMPT, CTranslate2, Transformers, missing_modules, \
    seconds_of
from side_process import SideFailed, SideProcess, last_line, quiet_threads, serve

ROOT = Path(__file__).resolve().parent.parent.parent
OURS = {"ours fp32": ("none", "fp32"), "ours w8": ("w8", "fp32"), "ours w8a8": ("w8a8", "fp32"),
        "ours w8a8 bf16": ("w8a8", "bf16")}  # --quant and --dtype
HOST_ROOF = ROOT / "build/host/host_roof"
PEERS = {"CTranslate2 int8": "CTranslate2", "PyTorch dynamic INT8": "transformers", "transformers fp32": "transformers"}
QUANTITIES = ("batch 1", "batch 8", "prefill")
PASSES = 3  # over the prompt in a turn, because a pass is short


def median_seconds(work):
    return statistics.median(seconds_of(work) for _ in range(PASSES))


class OurSide:
    """`infer_gpt2 bench`, in a new process for every turn."""

    def __init__(self, options, name):
        self.options, self.name = options, name

    def turn(self):
        o, (quant, dtype) = self.options, OURS[self.name]
        command = [str(o.infer_gpt2), "bench", "-m", str(o.model), "--quant", quant, "--dtype", dtype, "--batches", "1,8",
                   "--gen-tokens", str(DECODE_TOKENS), "--prompt-tokens", str(o.prefill), "--positions", "0",
                   "--repetitions", str(PASSES), "--quiet"]
        environment = {**os.environ, "LLMC_HOST_THREADS": str(o.threads), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        if done.returncode != 0:
            raise SystemExit(f"infer_int8_peers.py: {self.name}: {last_line(done.stderr, str(done.returncode))}")
        speed = {(r["test"], r["batch"]): 1e6 / statistics.median(r["samples_us"])
                 for r in json.loads(done.stdout.splitlines()[-1])["results"]}
        return {"batch 1": speed["generate", 1], "batch 8": speed["generate", 8], "prefill": speed["prompt", 1]}

    def close(self):
        pass


class PeerSide:
    """A peer in a process that waits between its turns."""

    def __init__(self, options, name):
        self.name = name
        settings = {"name": name, "dtype": "int8" if name.startswith("CTranslate2") else "fp32",
                    "model": str(options.model), "threads": options.threads, "prefill": options.prefill,
                    "folder": str(options.folder), "tokens": str(options.tokens or ""), "windows": options.windows}
        environment = {**quiet_threads(options.threads), "TOKENIZERS_PARALLELISM": "false"}
        self.process = SideProcess(__file__, settings, environment)

    def turn(self):
        return self.process.turn()

    def close(self):
        self.process.close()


class BatchedCTranslate2(CTranslate2):
    def generate_batch(self, batch, prompt, tokens):
        results = self.generator.generate_batch([[self.token] * prompt] * batch, max_length=tokens, min_length=tokens,
                                                sampling_topk=1, beam_size=1, include_prompt_in_result=False)
        if any(len(result.sequences_ids[0]) != tokens for result in results):
            raise SideFailed(f"did not generate {tokens} tokens")

    def decode(self, batch):
        one = seconds_of(lambda: self.generate_batch(batch, DECODE_PROMPT, 1))
        all_tokens = seconds_of(lambda: self.generate_batch(batch, DECODE_PROMPT, DECODE_TOKENS + 1))
        return batch * DECODE_TOKENS / max(all_tokens - one, 1e-9)

    def turn(self):
        seconds = median_seconds(lambda: self.generate_batch(1, self.prefill_tokens, 1))
        return {"batch 1": self.decode(1), "batch 8": self.decode(8), "prefill": self.prefill_tokens / seconds}


class BatchedTransformers(Transformers):
    def __init__(self, settings):
        super().__init__(settings)
        self.settings = settings
        if settings.name.startswith("PyTorch"):
            self.quantize()

    def quantize(self):
        from transformers.pytorch_utils import Conv1D
        nn = self.torch.nn
        for module in list(self.model.modules()):
            for name, child in module.named_children():
                if not isinstance(child, Conv1D):
                    continue
                linear = nn.Linear(*child.weight.shape)
                linear.weight, linear.bias = nn.Parameter(child.weight.T.contiguous()), child.bias
                setattr(module, name, linear)
        self.model = self.torch.ao.quantization.quantize_dynamic(self.model, {nn.Linear}, dtype=self.torch.qint8)

    def decode(self, batch):
        token, cache = self.read(self.prompt(DECODE_PROMPT).repeat(batch, 1))

        def tokens():
            nonlocal token, cache
            for _ in range(DECODE_TOKENS):
                token, cache = self.read(token, cache)

        return batch * DECODE_TOKENS / seconds_of(tokens)

    def quality(self):
        """Perplexity as `infer_gpt2 perplexity --stride T` has it, and MiB. One <|endoftext|>, if the model has it, precedes
        the text; else the first token is not scored."""
        from files import read_tokens
        T, count = self.model.config.n_positions, self.settings.windows
        end, texts = self.model.config.eos_token_id, read_tokens(self.settings.tokens).astype("int64")
        start = [] if end in (None, texts[0]) else [end]
        tokens = self.torch.cat([self.torch.tensor(start, dtype=self.torch.long), self.torch.from_numpy(texts)])
        nll = 0.0
        for i in range(count):
            window = tokens[i * T:(i + 1) * T + 1]
            logits = self.model(window[None, :-1]).logits[0]
            nll += float(self.torch.nn.functional.cross_entropy(logits, window[1:], reduction="sum"))
        state = io.BytesIO()
        self.torch.save(self.model.state_dict(), state)
        return {"perplexity": math.exp(nll / (count * T)), "MiB": len(state.getvalue()) / 2 ** 20}

    def turn(self):
        seconds = median_seconds(lambda: self.read(self.prompt(self.prefill_tokens)))
        speed = {"batch 1": self.decode(1), "batch 8": self.decode(8), "prefill": self.prefill_tokens / seconds,
                 "prompt tokens": self.prefill_tokens}
        return {**speed, **(self.quality() if self.settings.tokens else {})}


def serve_peer(settings):
    peer = None

    def turn():
        nonlocal peer
        if peer is None:
            peer = (BatchedCTranslate2 if settings.dtype == "int8" else BatchedTransformers)(settings)
            peer.turn()  # the warm-up
        return peer.turn()

    serve(turn)


def measure(options):
    """Returns (turns by side, reasons of skipped sides)."""
    skipped = {name: reason for name, peer in PEERS.items() if name in options.sides and (reason := missing_modules(peer))}
    sides = [OurSide(options, name) for name in OURS if name in options.sides]
    sides += [PeerSide(options, name) for name in PEERS if name in options.sides and name not in skipped]
    turns = {side.name: [] for side in sides}
    try:
        for index in range(options.repetitions):
            for side in sides[::-1 if index % 2 else 1]:
                if side.name in skipped:
                    continue
                try:
                    turns[side.name].append(side.turn())
                except SideFailed as reason:
                    skipped[side.name] = str(reason)
                    continue
                print(f"repetition {index + 1}/{options.repetitions}: {side.name}: " +
                      ", ".join(f"{key} {turns[side.name][-1][key]:.1f}" for key in QUANTITIES), file=sys.stderr,
                      flush=True)
    finally:
        for side in sides:
            side.close()
    return {name: values for name, values in turns.items() if name not in skipped}, skipped


def prompt_limit(options):
    """Prompt tokens per second if the products of codes took all of the time, at the rate that host_roof measures."""
    command = [str(HOST_ROOF), "--model", "tiny", "--batch-size", "1", "--seq-len", "16", "--steps", "1", "--product-ms", "1"]
    environment = {**os.environ, "LLMC_HOST_THREADS": str(options.threads)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        raise SystemExit(f"infer_int8_peers.py: {last_line(done.stderr, str(done.returncode))}")
    rate = json.loads(done.stdout)["code_gop_s"]
    config = json.loads((options.model / "config.json").read_text())
    weights = 12 * config.get("n_layer", 12) * config.get("n_embd", 768) ** 2  # defaults of transformers
    return rate, 1e9 * rate / (2 * weights)


def show(options, turns, skipped):
    print(f"{options.model}: {options.threads} threads, {options.repetitions} repetitions; median (min to max) in tokens "
          f"per second; ratio: ours w8a8 / the side")
    print("side".ljust(22) + "".join(f"{key:>30}{'ratio':>7}" for key in QUANTITIES))
    for name, values in turns.items():
        line = name.ljust(22)
        for key in QUANTITIES:
            speeds = [turn[key] for turn in values]
            ratios = [a[key] / b for a, b in zip(turns.get("ours w8a8", []), speeds)]
            line += f"{statistics.median(speeds):.1f} ({min(speeds):.1f} to {max(speeds):.1f})".rjust(30)
            line += f"{statistics.median(ratios):7.2f}" if ratios else "-".rjust(7)
        print(line)
    for name, reason in skipped.items():
        print(f"skipped {name}: {reason}")
    if HOST_ROOF.is_file():
        rate, limit = prompt_limit(options)
        print(f"limit of a prompt with w8a8: {limit:.0f} tokens per second, at {rate:.0f} operations per nanosecond on codes")


def parse_sides(text):
    names = text.split(",")
    for name in names:
        if name not in OURS and name not in PEERS:
            raise argparse.ArgumentTypeError(f"'{name}' is no side; allowed: {', '.join([*OURS, *PEERS])}")
    return names


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     allow_abbrev=False)
    parser.add_argument("model", type=Path, help="directory with config.json, weights and a tokenizer")
    parser.add_argument("--infer-gpt2", type=Path, default=ROOT / "infer_gpt2", help="our program [./infer_gpt2]")
    parser.add_argument("--threads", type=int, default=2, help="threads of every side [2]")
    parser.add_argument("--repetitions", type=int, default=3, help="turns of every side [3]")
    parser.add_argument("--sides", type=parse_sides, default=[*OURS, *PEERS], metavar="NAME,...",
                        help=f"sides to measure, of: {', '.join([*OURS, *PEERS])} [all]")
    parser.add_argument("--tokens", type=Path, metavar="FILE.bin", help="held-out tokens, for the perplexity [none]")
    parser.add_argument("--windows", type=int, default=8, help="windows of --tokens [8]")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers as JSON")
    options = parser.parse_args()
    for name in ("threads", "repetitions", "windows"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} {getattr(options, name)}; allowed: 1 or more")
    if not options.infer_gpt2.is_file() and set(options.sides) & OURS.keys():
        parser.error(f"--infer-gpt2 {options.infer_gpt2}: no such file")
    options.infer_gpt2 = options.infer_gpt2.resolve()
    try:
        config = json.loads((options.model / "config.json").read_text())
        options.prefill = min(PREFILL_PROMPT, int(config.get("n_positions") or config["n_ctx"]) - 1)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        parser.error(f"{options.model} has no config.json of a GPT-2")
    with tempfile.TemporaryDirectory() as folder:
        options.folder = Path(folder)
        turns, skipped = measure(options)
    show(options, turns, skipped)
    if options.json:
        options.json.write_text(json.dumps({"turns": turns, "skipped": skipped}, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve_peer(argparse.Namespace(**json.loads(sys.argv[2])))
    else:
        sys.path.append(str(Path(__file__).resolve().parent.parent.parent / "scripts"))
        import standard_output
        standard_output.run(main)
