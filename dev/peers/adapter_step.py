#!/usr/bin/env python3
"""Times a training step with LoRA on the CPU: ours, ours with all weights, and PEFT's, in turns, and prints ratios.

    PYTHON=python3 python3 dev/peers/adapter_step.py [--model d12] [--rank 8] [--dropout 0] [--batch-size 4]
        [--seq-len 64] [--threads N] [--rounds 5] [--steps 6] [--train-gpt2 build/host/train_gpt2]

PYTHON names an interpreter with PyTorch, transformers and PEFT; without PEFT, only ours is timed. LoRA is on all four
linear layers of a block. All sides have the same sizes, batches, fp32, AdamW (fused in PyTorch) and clipping. In every
round each side has one turn, and every second round is in reverse order; the time of a turn is the median of its
steps. A ratio is our time divided by the other's of the same round; below 1, ours is faster.
"""
import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

from host_step import CORES, LEARNING_RATE, MODELS, PROGRAM, OurSide, make_inputs, spread_of
from side_process import SideFailed, SideProcess, quiet_threads, serve


def serve_steps(settings):
    """The process of PEFT's side."""
    import numpy as np
    import peft
    import torch
    import transformers
    torch.set_num_threads(settings["threads"])
    layers, heads, channels = MODELS[settings["model"]]
    dropout = dict.fromkeys(("embd_pdrop", "attn_pdrop", "resid_pdrop"), 0.0)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=settings["vocabulary"], n_layer=layers, n_head=heads, n_embd=channels, **dropout))
    model = peft.get_peft_model(model, peft.LoraConfig(
        task_type="CAUSAL_LM", r=settings["rank"], lora_alpha=2 * settings["rank"], lora_dropout=settings["dropout"],
        target_modules=["c_attn", "attn.c_proj", "c_fc", "mlp.c_proj"], fan_in_fan_out=True))
    model.train()
    learning = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(learning, lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    B, T = settings["batch_size"], settings["seq_len"]
    tokens = torch.from_numpy(np.random.default_rng(1).integers(0, settings["vocabulary"], (B, T + 1)))

    def turn():
        times = []
        for _ in range(settings["warmup"] + settings["steps"]):
            start = time.perf_counter()
            optimizer.zero_grad()
            logits = model(input_ids=tokens[:, :-1]).logits
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            loss.backward()
            torch.nn.utils.clip_grad_norm_(learning, 1.0)
            optimizer.step()
            times.append(1e3 * (time.perf_counter() - start))
        return {"ms": times[settings["warmup"]:]}

    serve(turn)


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     allow_abbrev=False)
    parser.add_argument("--train-gpt2", type=Path, default=PROGRAM, metavar="FILE",
                        help="our program [build/host/train_gpt2]")
    parser.add_argument("--model", choices=MODELS, default="d12", help="sizes of the model [d12, which is GPT-2 124M]")
    parser.add_argument("--dropout", type=float, default=0.0, metavar="P", help="dropout of the adapters' inputs [0]")
    for flag, value, text in (("rank", 8, "rank of LoRA"), ("batch-size", 4, "sequences per step"),
                              ("seq-len", 64, "tokens per sequence"), ("threads", CORES, "threads of each side"),
                              ("rounds", 5, "turns of each side"), ("steps", 6, "timed steps per turn"),
                              ("warmup", 2, "steps before them")):
        parser.add_argument(f"--{flag}", type=int, default=value, metavar="N", help=f"{text} [{value}]")
    options = parser.parse_args()
    options.vocabulary, options.train = 50257, None
    return options


def run_rounds(options, sides):
    """{name: times of the turns}. PEFT's side is left out if it fails."""
    turns = {name: [] for name in sides}
    for index in range(options.rounds):
        for name in list(sides)[::-1 if index % 2 else 1]:
            try:
                if name in turns:
                    turns[name].append(statistics.median(sides[name]()))
            except SideFailed as reason:
                if name != "PEFT":
                    raise SystemExit(f"adapter_step.py: {name}: {reason}") from reason
                print(f"not available: PEFT: {reason}")
                turns.pop(name)
    return turns


def main():
    if sys.argv[1:2] == ["--serve"]:
        import json
        return serve_steps(json.loads(sys.argv[2]))
    options = read_options()
    settings = {key: getattr(options, key) for key in ("model", "rank", "dropout", "batch_size", "seq_len", "threads",
                                                       "steps", "warmup", "vocabulary")}
    with tempfile.TemporaryDirectory() as folder:
        make_inputs(options, Path(folder), with_weights=True)
        base = ["--init-from", str(options.weights)]
        lora = [*base, "--lora", str(options.rank), "--lora-targets", "all", "--lora-dropout", str(options.dropout)]
        ours = {"LoRA": OurSide(options, "fp32", flags=lora), "all weights": OurSide(options, "fp32", flags=base)}
        theirs = SideProcess(__file__, settings, quiet_threads(options.threads))
        sides = {name: (lambda side=side: side.turn()["step_ms"]) for name, side in ours.items()}
        sides["PEFT"] = lambda: theirs.turn()["ms"]
        try:
            turns = run_rounds(options, sides)
        finally:
            theirs.close()
    print(f"step: {options.model}, {options.batch_size} x {options.seq_len} tokens, rank {options.rank}, dropout "
          f"{options.dropout:g}, {options.threads} threads, rounds: {options.rounds}")
    for name, ms in turns.items():
        print(f"{name:<11} {statistics.median(ms):7.1f} ms, {min(ms):.1f} to {max(ms):.1f}")
    for name in list(turns)[1:]:
        ratio = spread_of([own / other for own, other in zip(turns["LoRA"], turns[name])])
        print(f"result: time ratio LoRA / {name}: median {ratio['median']:.3f}, {ratio['min']:.3f} to {ratio['max']:.3f} "
              "over the rounds; below 1, our LoRA is faster")


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parent.parent.parent / "scripts"))
    import standard_output
    standard_output.run(main)
