"""Permitted differences: what is not compared, what may be renamed, and which text is prose.

Every entry has a reason. File names are those of a run's folder; standard output and standard error of
the second command are called "2.train_gpt2.stdout" and "2.train_gpt2.stderr". Patterns of file names and
of keys are those of fnmatch, patterns of lines are regular expressions.
"""
import re

# Old name -> new name, for flags in any text and for keys of JSON. Each side may have either name; the value
# must be the same.
RENAMES = {
    "--sample-tokens": "--sample-length",
    "--samples-tokens": "--final-samples-tokens",
    "--samples-out": "--final-samples-out",
    "--final-lr": "--final-lr-fraction",
    "--keep": "--keep-checkpoints",
    "--clip": "--grad-clip",
}

# (file, reason): files that are not compared.
IGNORED_FILES = [("*/status.json", "it has times, and older builds have no such file")]

# (file, key, reason): keys of JSON whose values are not compared.
IGNORED_KEYS = [
    ("*.jsonl", "tok_per_s", "a speed"),
    ("*.jsonl", "*_ms", "a time"),
    ("*.jsonl", "comm_ms_*", "a time"),
    ("*.jsonl", "mfu", "a speed"),
    ("*.jsonl", "mfu_full", "a speed"),
    ("*.jsonl", "cpu_percent", "the load of the machine"),
    ("*.jsonl", "host_mem_mb*", "resident memory varies from process to process"),
    ("*.jsonl", "planned_mem_mb_ranks", "older builds have no such key; tests compare it with --dry-run"),
    ("*.jsonl", "--bin-format", "older builds have no such setting"),
    ("*.jsonl", "--skip-bad-lines", "older builds have no such setting"),
    ("*.jsonl", "--split-on", "older builds have no such setting"),
    ("*.jsonl", "--text-format", "older builds have no such setting"),
    *[(file, prefix + flag, "older builds have no such setting") for file, prefix in (("*.jsonl", ""), ("*/manifest.json", "state."))
      for flag in ("--recompute", "--offload", "--optimizer-on", "--train-only", "--freeze", "--lora", "--lora-alpha",
                   "--lora-targets", "--lora-dropout", "--rslora", "--ia3", "--ia3-targets", "--adapter", "--base-quant",
                   "--task", "--classes", "--split", "--test", "--chat-template", "--keep-best-by")],
    ("*/manifest.json", "state.--bin-format", "older builds have no such setting"),
    ("*/manifest.json", "state.--skip-bad-lines", "older builds have no such setting"),
    ("*/manifest.json", "state.--split-on", "older builds have no such setting"),
    ("*/manifest.json", "state.--text-format", "older builds have no such setting"),
    ("*/manifest.json", "state.*_xxh3", "older builds record no hash of the data"),
    ("*.profile.jsonl", "ms_per_step", "a time"),
    ("*.profile.jsonl", "percent", "a share of a time"),
    ("*.profile.jsonl", "flop_per_s", "a speed"),
    ("*.profile.jsonl", "bytes_per_s", "a speed"),
    ("*/manifest.json", "files.*.bytes", "the file itself is compared; renames and wording may change its size"),
    ("*/manifest.json", "files.*.xxh64", "the file itself is compared; renames and wording may change its checksum"),
    ("*/manifest.json", "xxh64", "a checksum of the manifest, in which flags may be renamed"),
]

# (file, line, reason): lines that are removed before texts are compared.
IGNORED_LINES = [
    ("*.train_gpt2.stderr", r"step \d+/\d+ \| ", "times and speeds; losses are in the log"),
    ("*.train_gpt2.stderr", r".*: \d+% \| ETA ", "printed after an elapsed time"),
    ("*.train_gpt2.stderr", r"(done|stopped): .* in ", "times and speeds; the steps are in the log"),
    ("*.train_gpt2.stderr", r"device: ", "free memory of the machine"),
    ("*.infer_gpt2.stderr", r"device: ", "free memory of the machine"),
    ("*.train_gpt2.stderr", r"data: --val .* tokens, \d+ windows", "older builds have no such line"),
    ("*.train_gpt2.stderr", r"(profile of|operation  |.{34} [ \d.e+-]{8} [ \d]{6}\.\d{3} )",
     "the table of --profile has times; --profile-out has its other values"),
]

# (file, pattern, replacement, reason): parts of lines that are masked before texts are compared.
MASKED_PARTS = [
    ("*.train_gpt2.stderr", r"[\d.]+ MiB are free", "# MiB are free", "free memory of the machine"),
    ("*.infer_gpt2.stderr", r"[\d.]+ ms\b", "# ms", "a time"),
    ("*.infer_gpt2.stdout", r'"timings":\{[^}]*\}', '"timings":#', "times"),
    ("*.infer_gpt2.stderr", r"[\d.na]+ tok/s", "# tok/s", "a speed"),
]

# (file, line, reason): blocks of consecutive lines that match are sorted, after renaming.
SORTED_LINES = [
    ("*.train_gpt2.stderr", r"resume: --", "notes are in the order of the names of flags, which may be renamed"),
    ("*.jsonl", r'.*"resumed"', "the same notes in the log"),
]

# (file, line, reason): prose. Lines that differ only in wording are listed under "messages that differ"; their
# numbers, flags, true and false must be the same, in the same order.
PROSE_LINES = [
    ("*.stderr", r"(?!sample:|  \|)", "messages; generated text is the exception"),
    ("*.train_gpt2.stdout", r"# ", "descriptions of evaluation tasks"),
    ("*.tokenize.stdout", r"(documents: |\S+: \d+ documents, )", "the summary of the documents"),
    ("*.toy_language.stdout", r"", "the description of the language, the number of sentences"),
    ("*/README.md", r"", "the model card"),
]

# (file, key, reason): strings in JSON that are prose.
PROSE_KEYS = [
    ("*.jsonl", "resumed", "notes on flags that differ from those of the checkpoint"),
]

_RENAMED = re.compile(r"(?<![\w-])(" + "|".join(map(re.escape, sorted(RENAMES, key=len, reverse=True))) + r")(?![\w-])")
_VALUES = re.compile(r"--[a-z][a-z0-9-]*|(?:(?<![\w-])-)?\d+(?:\.\d+)?(?:e[+-]?\d+)?|\b(?:true|false|nan|inf)\b")


def with_new_names(text):
    """The text with every old name replaced by the new one."""
    return _RENAMED.sub(lambda match: RENAMES[match[0]], text) if RENAMES else text


def without_values(line):
    """The line with numbers, flags, truth values and quoted text replaced by #: its wording."""
    return re.sub(r'\\"[^"]*\\"', "#", _VALUES.sub("#", line))


def same_values(old, new):
    """Whether two lines of prose have the same numbers, flags and truth values in the same order."""
    return _VALUES.findall(old) == _VALUES.findall(new)
