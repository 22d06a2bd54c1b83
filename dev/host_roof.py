#!/usr/bin/env python3
"""Times training steps of GPT-2 on the CPU next to their roof: how the share of the roof changes with the length of
the sequences, the model, the threads and the dtype.

    make build/host/host_roof
    python3 dev/host_roof.py [--models d12,d24] [--seq-lens 64,128,256,512,1024,2048] [--tokens-per-step 256]
        [--dtypes fp32,bf16] [--threads 1,2] [--rounds 3] [--json FILE] [--plot FILE.svg] [--dry]

The roof of a step is the sum of three times, all measured in the process that runs the steps (dev/host_roof.cu):
    products    its matrix products alone, with operands that come from memory
    traffic     the bytes of its other operations, at the rate of a copy by all threads
    attention   the FLOP of its attention, at the mean rate of the products
Operations without a roof, such as the embeddings, count as 0. An operation can be faster than its roof if its arrays
fit into the caches, or if it reads more than it writes, as AdamW does.

Every sequence length runs with the most threads, and the shortest one with every number of threads. A step has
--tokens-per-step tokens, or one sequence if that is longer. In every round each setting has one turn, and every
second round is in reverse order. Numbers are medians of the rounds, with the smallest and largest one.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path += [str(ROOT / "scripts"), str(ROOT / "dev/peers")]
import standard_output  # noqa: E402
from host_step import CORES, describe_machine, spread_of  # noqa: E402
from run_view import gnuplot  # noqa: E402
from run_view.panels import COLOURS  # noqa: E402
from side_process import last_line  # noqa: E402
from token_files import replace_file  # noqa: E402

PROGRAM = ROOT / "build/host/host_roof"
KINDS = ("product", "attention", "traffic", "other")
NUMBERS = ("step_ms", "products_ms", "traffic_ms", "attention_roof_ms", "share_of_roof", "share_of_products",
           "product_gflop_s", "copy_gb_s")
DRY = {"models": ["tiny"], "seq_lens": [16, 64], "tokens_per_step": 32, "rounds": 2, "steps": 20, "product_ms": 2,
       "memory_mib": 16}


def count_text(count, noun):
    return f"{count} {noun}{'' if count == 1 else 's'}"


# ---- runs ----------------------------------------------------------------------------------


class Setting:
    """A model, its batch, dtype and threads, and the reports of its turns."""

    def __init__(self, options, model, seq_len, dtype, threads):
        self.options, self.model, self.dtype, self.threads = options, model, dtype, threads
        self.seq_len, self.batch_size = seq_len, max(1, options.tokens_per_step // seq_len)
        self.turns = []

    def name(self):
        return f"{self.model} {self.batch_size}x{self.seq_len} {self.dtype}, {count_text(self.threads, 'thread')}"

    def command(self):
        o = self.options
        flags = {"model": self.model, "batch-size": self.batch_size, "seq-len": self.seq_len, "dtype": self.dtype,
                 "steps": o.steps, "vocabulary": o.vocabulary, "product-ms": o.product_ms, "memory-mib": o.memory_mib}
        return [str(o.program), *(word for flag, value in flags.items() if value is not None
                                  for word in (f"--{flag}", str(value)))]

    def turn(self):
        environment = {**os.environ, "LLMC_HOST_THREADS": str(self.threads), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(self.command(), capture_output=True, text=True, env=environment)
        if done.returncode != 0:
            sys.exit(f"host_roof.py: {self.name()}: {last_line(done.stderr, f'exit code {done.returncode}')}")
        self.turns.append(json.loads(done.stdout))

    def measured_ms(self, kind):
        """Returns the time of all operations of a kind, in each turn."""
        return [sum(o["ms"] for o in turn["operations"] if o["kind"] == kind) for turn in self.turns]

    def operations(self):
        """Returns the operations of the first turn, with the median times of all turns."""
        times = {}
        for turn in self.turns:
            for operation in turn["operations"]:
                for key in ("ms", "roof_ms"):
                    times.setdefault((operation["name"], key), []).append(operation[key])
        return [{**o, **{key: statistics.median(times[o["name"], key]) for key in ("ms", "roof_ms")}}
                for o in self.turns[0]["operations"]]

    def record(self):
        return {"model": self.model, "batch_size": self.batch_size, "seq_len": self.seq_len, "dtype": self.dtype,
                "threads": self.turns[0]["threads"], "steps_ms": [turn["steps_ms"] for turn in self.turns],
                **{key: spread_of([t[key] for t in self.turns]) for key in NUMBERS},
                "measured_ms": {kind: spread_of(self.measured_ms(kind)) for kind in KINDS},
                "operations": self.operations(), "products": [turn["products"] for turn in self.turns]}


def settings_of(options):
    """For every model and dtype: all lengths with the most threads, then the shortest one with fewer threads."""
    most, shortest = max(options.threads), min(options.seq_lens)
    runs = [(seq_len, most) for seq_len in options.seq_lens]
    runs += [(shortest, threads) for threads in options.threads if threads != most]
    return [Setting(options, model, seq_len, dtype, threads)
            for model in options.models for dtype in options.dtypes for seq_len, threads in runs]


def run_rounds(options, settings, after_round):
    for index in range(options.rounds):
        for setting in settings[::-1 if index % 2 else 1]:
            setting.turn()
            turn = setting.turns[-1]
            print(f"round {index + 1}/{options.rounds}: {setting.name()}: {turn['step_ms']:.1f} ms, "
                  f"{100 * turn['share_of_roof']:.0f}% of the roof", file=sys.stderr, flush=True)
        after_round()


# ---- report --------------------------------------------------------------------------------


def record_of(options, settings):
    machine = describe_machine(argparse.Namespace(threads=max(options.threads)), None)
    del machine["torch"]
    return {"machine": {**machine, "matrix_library": settings[0].turns[0]["matrix_library"]},
            "tokens_per_step": options.tokens_per_step, "rounds": len(settings[0].turns), "steps": options.steps,
            "settings": [setting.record() for setting in settings]}


def percent(spread):
    return f"{100 * spread['median']:>5.1f} ({100 * spread['min']:.0f}..{100 * spread['max']:.0f})"


def print_settings(record):
    machine = record["machine"]
    print(f"machine: {machine['cpu']}, {machine['cores']} cores, {' '.join(machine['flags']) or 'no AVX2'}, "
          f"{machine['matrix_library']}")
    print(f"rounds: {record['rounds']}, timed steps per turn: {record['steps']}; ms per step, shares in %")
    print(f"{'setting':<24} {'threads':>7} {'step':>9} {'min .. max':>20} {'products':>9} {'attention':>9} "
          f"{'traffic':>8} {'GFLOP/s':>8} {'GB/s':>6}  {'products/step':<16} roof/step")
    for s in record["settings"]:
        step = s["step_ms"]
        print(f"{s['model'] + ' ' + s['dtype']:<12}{s['batch_size']:>4} x {s['seq_len']:<5} {s['threads']:>7} "
              f"{step['median']:>9.2f} {step['min']:>8.2f} .. {step['max']:>8.2f} {s['products_ms']['median']:>9.2f} "
              f"{s['attention_roof_ms']['median']:>9.2f} {s['traffic_ms']['median']:>8.2f} "
              f"{s['product_gflop_s']['median']:>8.1f} {s['copy_gb_s']['median']:>6.1f}  "
              f"{percent(s['share_of_products']):<16} {percent(s['share_of_roof'])}")


def print_operations(setting):
    """The table of one setting: slowest first."""
    step_ms = setting["step_ms"]["median"]
    print(f"\noperations of {setting['model']} {setting['dtype']}, {setting['batch_size']} x {setting['seq_len']}, "
          f"{count_text(setting['threads'], 'thread')}; step {step_ms:.2f} ms")
    print(f"{'operation':<36} {'kind':<10} {'calls':>5} {'ms':>9} {'% step':>7} {'roof ms':>9} {'% roof':>7}")
    for o in sorted(setting["operations"], key=lambda o: -o["ms"]):
        share = f"{100 * o['roof_ms'] / o['ms']:>7.1f}" if o["roof_ms"] > 0 < o["ms"] else f"{'-':>7}"
        print(f"{o['name']:<36} {o['kind']:<10} {o['calls']:>5.0f} {o['ms']:>9.3f} {100 * o['ms'] / step_ms:>7.2f} "
              f"{o['roof_ms']:>9.3f} {share}")


def setting_of_table(options, record):
    """The first model in the last dtype with the most threads, and the length of --operations-at."""
    return next(s for s in record["settings"] if s["seq_len"] == options.operations_at
                and s["dtype"] == options.dtypes[-1] and s["threads"] == max(options.threads))


# ---- plot ----------------------------------------------------------------------------------


def panel_lines(number, title, settings):
    """The gnuplot commands of a panel: bars of measured times on top of each other, and the roof as a line."""
    lines = []
    for i, s in enumerate(settings):
        measured = {kind: s["measured_ms"][kind]["median"] for kind in KINDS}
        products = measured["product"]
        attention = products + measured["attention"]
        roof = s["products_ms"]["median"] + s["traffic_ms"]["median"] + s["attention_roof_ms"]["median"]
        lines.append(f"{i} {products!r} {attention!r} {s['step_ms']['median']!r} {roof!r}")
    ticks = ", ".join(f"'{s['batch_size']}x{s['seq_len']}' {i}" for i, s in enumerate(settings))
    bars = [(4, "rest", COLOURS[2]), (3, "attention", COLOURS[1]), (2, "products", COLOURS[0])]
    plots = [f"$p{number} using 1:{column} with boxes fs solid 0.75 noborder lc rgb '{colour}' title '{name}'"
             for column, name, colour in bars]
    plots.append(f"$p{number} using 1:5 with linespoints pt 7 ps 0.8 lw 2 lc rgb '#222222' title 'roof'")
    return [f"$p{number} << EOD\n" + "\n".join(lines) + "\nEOD", f"set title {gnuplot.quote(title)} noenhanced",
            f"set xtics ({ticks})", f"set xrange [-0.6:{len(settings) - 0.4}]", "plot " + ", ".join(plots)]


def plot_script(record, out):
    most = max(s["threads"] for s in record["settings"])
    panels = {}
    for s in record["settings"]:
        if s["threads"] == most:
            panels.setdefault(f"{s['model']} {s['dtype']}, {count_text(most, 'thread')}", []).append(s)
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    lines = [gnuplot.terminal(out, 560 * columns, 400 * rows), f"set output {gnuplot.quote(str(out))}",
             "set encoding utf8", "set border 3 lc rgb '#666666'", "set tics nomirror out", "set boxwidth 0.7",
             "set grid ytics lc rgb '#e4e4e4' lt 1 lw 1", "set key tmargin left horizontal noenhanced",
             "set yrange [0:*]", "set xlabel 'sequences x tokens'", "set ylabel 'ms per step'",
             f"set multiplot layout {rows},{columns}"]
    for number, (title, settings) in enumerate(panels.items()):
        lines += panel_lines(number, title, settings)
    return "\n".join(lines) + "\nunset multiplot\n"


# ---- options -------------------------------------------------------------------------------


class Parser(argparse.ArgumentParser):
    """Reports a wrong command line in one line."""

    def error(self, message):
        self.exit(2, f"{self.prog}: {message}\n")


def names(pattern, allowed):
    def parse(text):
        words = list(dict.fromkeys(text.split(",")))
        if not all(re.fullmatch(pattern, word) for word in words):
            raise argparse.ArgumentTypeError(f"'{text}'; allowed: {allowed}, separated by commas")
        return words
    return parse


def numbers(largest, description):
    def parse(text):
        words = text.split(",")
        if not all(word.isdecimal() and 1 <= int(word) <= largest for word in words):
            raise argparse.ArgumentTypeError(f"'{text}'; allowed: {description} from 1 to {largest}")
        return sorted({int(word) for word in words})
    return parse


def number(largest):
    parse_list = numbers(largest, "a number")

    def parse(text):
        if "," in text:
            raise argparse.ArgumentTypeError(f"'{text}'; allowed: a number from 1 to {largest}")
        return parse_list(text)[0]
    return parse


def read_options():
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    parser.add_argument("--program", type=Path, default=PROGRAM, metavar="FILE", help="[build/host/host_roof]")
    parser.add_argument("--models", type=names(r"tiny|d[1-9]\d{0,2}", "tiny and dN for N layers"), metavar="LIST",
                        default=["d12"], help="models, such as d12,d24 [d12, which is GPT-2 124M]")
    parser.add_argument("--seq-lens", type=numbers(1 << 16, "numbers"), metavar="LIST",
                        default=[64, 128, 256, 512, 1024, 2048], help="tokens per sequence [64,128,...,2048]")
    parser.add_argument("--tokens-per-step", type=number(1 << 16), default=256, metavar="N",
                        help="tokens per step; sequences that are longer run one by one [256]")
    parser.add_argument("--dtypes", type=names("fp32|bf16", "fp32 and bf16"), default=["fp32", "bf16"], metavar="LIST",
                        help="[fp32,bf16]")
    parser.add_argument("--threads", type=numbers(CORES, "numbers"), default=list(range(1, CORES + 1)), metavar="LIST",
                        help=f"numbers of threads [1 to {CORES}]")
    for flag, value, text in (("rounds", 3, "turns of each setting"), ("steps", 5, "timed steps per turn")):
        parser.add_argument(f"--{flag}", type=number(1 << 16), default=value, metavar="N", help=f"{text} [{value}]")
    parser.add_argument("--vocabulary", type=number(1 << 16), metavar="N", help="number of token ids [of the model]")
    parser.add_argument("--product-ms", type=number(1 << 16), metavar="N", help="time for each product alone [200]")
    parser.add_argument("--memory-mib", type=number(1 << 16), metavar="N",
                        help="memory that repeated products and copies cycle over [four times the last-level cache, at "
                             "least 256 and at most 1024]")
    parser.add_argument("--operations-at", type=number(1 << 16), metavar="T",
                        help="length of the sequences in the table of operations [the shortest]")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to this file")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="also draw them; FILE ends in .svg or .png")
    parser.add_argument("--dry", action="store_true", help="change the defaults to a check that takes seconds")
    if "--dry" in sys.argv[1:]:
        parser.set_defaults(**DRY)
    options = parser.parse_args()
    check_options(parser, options)
    return options


def check_options(parser, options):
    """Finds mistakes before the measurements, which can take hours."""
    options.operations_at = options.operations_at or min(options.seq_lens)
    if options.operations_at not in options.seq_lens:
        parser.error(f"--operations-at {options.operations_at}; allowed: "
                     f"{', '.join(map(str, options.seq_lens))} (--seq-lens)")
    if options.plot and options.plot.suffix not in (".svg", ".png"):
        parser.error(f"--plot {options.plot}: the name must end in .svg or .png")
    for flag, path in (("json", options.json), ("plot", options.plot)):
        if path and not path.resolve().parent.is_dir():
            parser.error(f"--{flag} {path}: no such folder: {path.resolve().parent}")
    if not options.program.is_file():
        hint = "; `make build/host/host_roof` builds it" if options.program == PROGRAM else ""
        parser.error(f"--program {options.program}: no such file{hint}")
    options.program = options.program.resolve()
    if options.plot:
        try:
            gnuplot.find_gnuplot()
        except gnuplot.GnuplotError:
            parser.error("--plot needs gnuplot; install package gnuplot-nox")


def main():
    options = read_options()
    settings = settings_of(options)

    def write_json():
        if options.json:
            text = json.dumps(record_of(options, settings), indent=1) + "\n"
            replace_file(options.json, lambda file: file.write(text.encode()))

    run_rounds(options, settings, write_json)
    record = record_of(options, settings)
    print_settings(record)
    print_operations(setting_of_table(options, record))
    if options.plot:
        try:
            gnuplot.write_picture(options.plot, lambda draft: plot_script(record, draft))
        except gnuplot.GnuplotError as error:
            sys.exit(f"host_roof.py: {error}")


if __name__ == "__main__":
    standard_output.run(main)
