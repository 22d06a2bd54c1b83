"""The figures of a finished run of train_gpt2, from its log and its messages."""
import re
import statistics


def first_match(pattern, messages):
    """The first group of the pattern's first match, or None."""
    match = re.search(pattern, messages, re.MULTILINE)
    return match[1] if match else None


def speed_of(lines, messages):
    """`lines`: the timed steps. MFU is proportional to tok/s, with the same factor in every step."""
    tokens = lines[-1]["tokens"] - lines[-2]["tokens"]
    step_ms = statistics.fmean(line["step_ms"] for line in lines)
    return {"step_ms": step_ms, "step_ms_median": statistics.median(line["step_ms"] for line in lines),
            "tok_per_s": 1e3 * tokens / step_ms, "mfu_per_tok_per_s": lines[-1]["mfu"] / lines[-1]["tok_per_s"],
            "memory_planned": first_match(r"^memory: .*in all (.*)$", messages)}
