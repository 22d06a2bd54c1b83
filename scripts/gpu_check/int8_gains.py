"""What INT8 gains: how many times faster it is than each baseline, from the rows of infer_speed.py.

A row is {side: result} with the key (model, variant, batch, test, size). A gain is the time per token of the baseline
divided by that of the INT8 variant. What was not measured has no gain, and is not judged.
"""
from variant import Variant

# (name, side, variant)
BASELINES = [("our fp32", "ours", "fp32"), ("our bf16", "ours", "bf16"),
             *((f"PyTorch {dtype} {side}", side, dtype) for dtype in ("fp32", "bf16") for side in ("eager", "compiled"))]
MARKS = {"124M": (("first mark", 167), ("goal", 95), ("stretch", 75)),  # us/token at batch size 1 and a short context
         "1558M": (("first mark", 897), ("goal", 627))}
PREFILL_MODEL, PREFILL_MODE = "1558M", "w8a8"  # its prompts must be faster than our bf16's
TESTS = {"step": ("position", "tokens"), "prompt": ("prompt", "prompts")}  # name of a size, and of the test
NAME_WIDTH = 46


def unique(values):
    return list(dict.fromkeys(values))


def modes_of(rows):
    """The INT8 variants."""
    return unique(key[1] for key in rows if Variant.parse(key[1]).quant != "none")


def time_of(rows, key, side="ours"):
    return rows.get(key, {}).get(side, {}).get("us_per_token")


def gain(rows, key, baseline):
    """The gain of an INT8 row, or None."""
    model, mode, *rest = key
    _, side, variant = baseline
    own, other = time_of(rows, key), time_of(rows, (model, variant, *rest), side)
    return other / own if own and other else None


def name_of(key):
    model, mode, batch, test, size = key
    return f"{model} {mode}, batch {batch}, {TESTS[test][0]} {size}"


def table(rows):
    """Every gain: a line per INT8 row, a column per baseline."""
    modes = modes_of(rows)
    if not modes:
        return
    yield ""
    yield f"{'INT8: times as fast as':{NAME_WIDTH}}" + "".join(f"{name:>24}" for name, *_ in BASELINES)
    for key in rows:
        if key[1] in modes:
            gains = [gain(rows, key, baseline) for baseline in BASELINES]
            yield f"{name_of(key):{NAME_WIDTH}}" + "".join(f"{'-' if g is None else format(g, '.2f'):>24}" for g in gains)


# ---- verdicts ------------------------------------------------------------------------------


def class_of(gain):
    return "below 2" if gain < 2 else "2-4" if gain <= 4 else "above 4"


def interval(gains, form="{:.2f}"):
    """Such as 1.52-1.71."""
    return "-".join(unique([form.format(min(gains)), form.format(max(gains))]))


def promise(rows, mode, test, baseline):
    """The "2-4 times" that quantization promises, judged for one mode, test and baseline. None without a measurement."""
    cells = []
    for model in unique(key[0] for key in rows):
        gains = {}
        for key in rows:
            if key[:2] == (model, mode) and key[3] == test and (g := gain(rows, key, baseline)):
                gains.setdefault(key[2], []).append(g)
        if gains:
            every = sum(gains.values(), [])
            classes = " to ".join(unique([class_of(min(every)), class_of(max(every))]))
            cells.append(f"{model} {classes} (" +
                         ", ".join(f"batch {batch}: {interval(values)}" for batch, values in gains.items()) + ")")
    return f"{mode} against {baseline[0]}, {TESTS[test][1]}: {'; '.join(cells)}" if cells else None


def promises(rows):
    for test in TESTS:
        for mode in modes_of(rows):
            for baseline in BASELINES:
                if test == "prompt" and baseline[1] == "compiled":  # prompts are eager
                    continue
                yield (promise(rows, mode, test, baseline) or
                       f"{mode} against {baseline[0]}, {TESTS[test][1]}: not measured")


def marks(rows):
    """Time per token at batch size 1 and the shortest context, next to the marks."""
    for model, goals in MARKS.items():
        for mode in modes_of(rows):
            keys = [key for key in rows if key[:4] == (model, mode, 1, "step") and time_of(rows, key)]
            if keys:
                first = min(keys, key=lambda key: key[4])
                us = time_of(rows, first)
                verdicts = ", ".join(f"{name} {limit}: {'reached' if us <= limit else 'missed'}" for name, limit in goals)
                yield f"{name_of(first)}: {us:.1f} us/token; {verdicts}"


def prefill(rows):
    """Whether INT8 prompts of PREFILL_MODEL are faster than those of our bf16, at every size that was measured."""
    mode = str(Variant("bf16", PREFILL_MODE))
    gains = {key[2:]: g for key in rows if key[:2] == (PREFILL_MODEL, mode) and key[3] == "prompt"
             and (g := gain(rows, key, ("our bf16", "ours", "bf16")))}
    start = f"INT8 prefill ({mode}) is faster than bf16 at {PREFILL_MODEL}: "
    if not gains:
        return start + "not measured"
    slow = [f"batch {batch}, prompt {size}: {g:.2f} times" for (batch, _, size), g in gains.items() if g <= 1]
    if slow:
        return f"{start}no, {len(slow)} of {len(gains)} measured sizes are not: {'; '.join(slow)}"
    return f"{start}yes, at all {len(gains)} measured sizes: {interval(list(gains.values()))} times"


def report(rows):
    """The verdicts, if there are INT8 rows."""
    if not modes_of(rows):
        return
    yield from marks(rows)
    yield prefill(rows)
    yield 'INT8 and "2-4 times" (lowest to highest gain of the positions or prompts):'
    yield from (f"  {line}" for line in promises(rows))
