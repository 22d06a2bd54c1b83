#!/usr/bin/env python3
"""Times the AdamW update of GPT-2 on the CPU: --optimizer-on cpu and PyTorch's fused AdamW, in turns, and prints
their ratio.

    PYTHON=python3 python3 dev/peers/cpu_optimizer.py [--model d12] [--threads N] [--rounds 5] [--steps 6]
        [--train-gpt2 build/host/train_gpt2]

PYTHON names an interpreter with PyTorch. Ours is the optimizer_ms of train_gpt2, which includes the gradient norm;
PyTorch's is optimizer.step() over tensors of the same sizes, without a norm. All are fp32 and in host memory. In
every round each side has one turn, and every second round is in reverse order; the time of a turn is the median of
its steps. A ratio is our time divided by PyTorch's of the same round; below 1, ours is faster.
"""
import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

from host_step import CONTEXT, CORES, MODELS, PROGRAM, OurSide, make_inputs, spread_of
from side_process import SideFailed, SideProcess, quiet_threads, serve

KINDS = "optimizer,gradients,parameters"


def tensor_sizes(layers, channels, vocabulary):
    """(elements, whether weight decay applies) of each tensor."""
    C = channels
    vectors = [(n * C, False) for n in (1, 1, 3, 1, 1, 1, 4, 1)]  # norms and biases of a layer
    matrices = [(n * C * C, True) for n in (3, 1, 4, 4)]
    return [(vocabulary * C, True), (CONTEXT * C, True), *(layers * (vectors + matrices)), (C, False), (C, False)]


def serve_updates(settings):
    """The process of PyTorch's side."""
    import torch
    torch.set_num_threads(settings["threads"])
    groups = {True: [], False: []}
    for size, decayed in settings["sizes"]:
        parameter = torch.randn(size).mul_(0.02).requires_grad_()
        parameter.grad = torch.randn(size)
        groups[decayed].append(parameter)
    optimizer = torch.optim.AdamW([{"params": groups[True], "weight_decay": 0.1},
                                   {"params": groups[False], "weight_decay": 0.0}], lr=1e-4, fused=True)

    def turn():
        times = []
        for _ in range(settings["warmup"] + settings["steps"]):
            start = time.perf_counter()
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
    for flag, value, text in (("threads", CORES, "threads of each side"), ("rounds", 5, "turns of each side"),
                              ("steps", 6, "timed steps per turn"), ("warmup", 2, "steps before them")):
        parser.add_argument(f"--{flag}", type=int, default=value, metavar="N", help=f"{text} [{value}]")
    options = parser.parse_args()
    options.vocabulary, options.batch_size, options.seq_len, options.train = 50304, 1, 64, None
    return options


def main():
    if sys.argv[1:2] == ["--serve"]:
        import json
        return serve_updates(json.loads(sys.argv[2]))
    options = read_options()
    layers, _, channels = MODELS[options.model]
    sizes = tensor_sizes(layers, channels, options.vocabulary)
    settings = {"threads": options.threads, "steps": options.steps, "warmup": options.warmup, "sizes": sizes}
    ours = OurSide(options, "fp32", flags=["--offload", KINDS, "--optimizer-on", "cpu"], key="optimizer_ms")
    theirs = SideProcess(__file__, settings, quiet_threads(options.threads))
    turns = {"ours": [], "PyTorch": []}
    sides = [("ours", lambda: ours.turn()["step_ms"]), ("PyTorch", lambda: theirs.turn()["ms"])]
    with tempfile.TemporaryDirectory() as folder:
        make_inputs(options, Path(folder), with_weights=False)
        try:
            for index in range(options.rounds):
                for name, turn in sides[::-1 if index % 2 else 1]:
                    turns[name].append(statistics.median(turn()))
        except SideFailed as reason:
            raise SystemExit(f"cpu_optimizer.py: {reason}")
        finally:
            theirs.close()
    print(f"update of {sum(size for size, _ in sizes):,} parameters, {options.threads} threads, rounds: "
          f"{options.rounds}, timed steps per turn: {options.steps}")
    for name, ms in turns.items():
        print(f"{name:<8} {statistics.median(ms):7.1f} ms, {min(ms):.1f} to {max(ms):.1f}")
    ratio = spread_of([ours / other for ours, other in zip(*turns.values())])
    print(f"result: time ratio ours / PyTorch: median {ratio['median']:.3f}, {ratio['min']:.3f} to "
          f"{ratio['max']:.3f} over the rounds; below 1, ours is faster")


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parent.parent.parent / "scripts"))
    import standard_output
    standard_output.run(main)
