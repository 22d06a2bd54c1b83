#!/usr/bin/env python3
"""Tests that ranks of train_gpt2 that disagree are refused: with other flags, another program, other files, or a
command line that is wrong on one rank. Every pair must end with one error, on every mesh.

    python3 test/test_agreement_programs.py build/host [PATTERN]

Prints and exits as test_programs.py does. Skipped if the program was built without MPI or mpirun is missing.
LLMC_LONG=1 starts a run for each flag alone, instead of one for several flags.
"""
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from free_ports import master_port
from runner import Skip, expect
from test_checkpoint_programs import QUIET, TINY, with_flags
from test_data_programs import write_megatron
from test_programs import TEXT, run_program_tests, settings_of, write_bin
from test_rank_programs import RUN, environment, require_mpi
from test_tensor_programs import write_lines

LONG = os.environ.get("LLMC_LONG")
SECONDS = 100  # a run that takes longer hangs
TRAIN = [*with_flags(TINY, layers=2, heads=4, channels=32), *QUIET, "--steps", 2]
# The ranks and the flags of the meshes.
MESHES = [(2, ["--zero", 0]), (2, ["--tp", 2]), (2, ["--pp", 2, "--grad-accum", 2]), (2, ["--zero", 2]),
          (4, ["--tp", 2, "--zero", 3]), (4, ["--pp", 2, "--grad-accum", 2]), (4, ["--shard-group", 2, "--zero", 3]),
          (4, ["--tp", 2, "--pp", 2, "--grad-accum", 2])]
# Values for rows that do not accept a plain number.
VALUES = {"--offload": "optimizer", "--train-only": "ln_f.*", "--freeze": "wte.*", "--lora-targets": "all", "--ia3-targets": "kv", "--classes": "a=text.txt,b=text.txt",
          "--split": "80/20", "--chat-template": "{role} {content}", "--eval": "perplexity:text.txt", "--dump-schedule": "x.csv", "--plan-out": "x.csv", "--measure-machine": "x.json", "--device": "host", "--comm": "mpi",
          "--loss-scale": 2, "--heartbeat-timeout": 20, "--comm-timeout": 20, "--dtype": "bf16", "--dropout": 0.5, "--embedding-dropout": 0.5, "--attention-dropout": 0.5,
          "--residual-dropout": 0.5}
NEEDED = {"--ranks": ["--dry-run"], "--gpu-memory": ["--dry-run"], "--machine": ["--plan"]}  # in addition to the flags that the table lists
MAX_SHOWN = 4  # names of flags that differ in one error


def mesh_of(number):
    """The ranks of a mesh, its flags, and the rank that gets something else."""
    ranks, flags = MESHES[number % len(MESHES)]
    return ranks, flags, 1 + number % (ranks - 1)


def run_ranks(program, contexts, timeout=SECONDS, **more):
    """Runs ranks that are started differently. A context: the number of ranks, their folder, program and arguments."""
    require_mpi(program)
    words = [RUN]
    for count, folder, binary, arguments in contexts:
        words += [*([":"] if len(words) > 1 else []), "-np", count, "-wdir", folder, binary, *arguments]
    return subprocess.run([str(word) for word in words], cwd=program.folder, text=True, capture_output=True,
                          stdin=subprocess.DEVNULL, timeout=timeout, check=False, env={**environment(), **more})


def run_with_odd_rank(program, ranks, odd, common, other, folder=None, binary=None):
    """Runs ranks of which one, `odd`, has other arguments, another folder or another program."""
    usual = (program.folder, program.binary, common)
    contexts = [(odd, *usual), (1, folder or program.folder, binary or program.binary, other), (ranks - odd - 1, *usual)]
    return run_ranks(program, [context for context in contexts if context[0] > 0])


def at_the_same_time(starts):
    """Calls all functions, six at a time: a start mostly waits for the launcher. Throws the first failure."""
    with ThreadPoolExecutor(6) as pool:
        for future in [pool.submit(start) for start in starts]:
            future.result()


def expect_refused(result, *phrases, code=2):
    """The run ended with this exit code and one error, with all phrases."""
    expect(result.returncode == code, f"exit code {result.returncode}, not {code}: {result.stderr[-1500:]}")
    expect(result.stderr.count("train_gpt2: ") == 1, f"not one error: {result.stderr}")
    for phrase in phrases:
        expect(phrase in result.stderr, f"'{phrase}' is not in: {result.stderr}")


def others_than(odd, ranks):
    numbers = [str(rank) for rank in range(ranks) if rank != odd]
    joined = ", ".join(numbers).replace("0, 1, 2", "0 to 2").replace("1, 2, 3", "1 to 3")
    return ("rank " if len(numbers) == 1 else "ranks ") + joined


# ---- flags -----------------------------------------------------------------------------------


def value_of(row):
    """The words after the flag of a row, and the value in an error."""
    if row["switch"]:
        return [], "true"
    value = VALUES.get(row["flag"])
    if value is None and "|" in row["unit"] and row["unit"].islower():
        value = row["unit"].split("|")[-1]
    if value is None:
        value = 0.5 if isinstance(row["default"], float) else 3
    return [value], str(value)


def without(flag, arguments):
    """The arguments without a flag that has a value. Returns its value as well, or None."""
    if flag not in arguments:
        return arguments, None
    at = arguments.index(flag)
    return [*arguments[:at], *arguments[at + 2:]], arguments[at + 1]


def needed_flags(row, rows):
    """The flags that a row needs, and those that these need."""
    needed = {*row["needs"], *NEEDED.get(row["flag"], [])}
    for other in rows:
        if other["flag"] in needed:
            needed |= needed_flags(other, rows)
    return needed


def excluded_flags(row, rows):
    """The flags that exclude the row, or that it excludes."""
    return {*row["excludes"], *(other["flag"] for other in rows if row["flag"] in other["excludes"])}


def groups_of(rows):
    """The rows in groups that may be given together, on one rank and not on the others."""
    def excluded_by(flags):
        return {name for other in rows if other["flag"] in flags for name in excluded_flags(other, rows)}

    def fit(row, other):
        flags = [{one["flag"], *needed_flags(one, rows)} for one in (row, other)]
        return (not flags[0] & excluded_by(flags[1])
                and row["flag"] not in flags[1] and other["flag"] not in flags[0])

    groups = []
    for row in rows:
        for group in groups:
            if len(group) < (1 if LONG else MAX_SHOWN) and all(fit(row, other) for other in group):
                group.append(row)
                break
        else:
            groups.append([row])
    return groups


def test_ranks_with_different_flags_are_refused(program):
    rows = {row["flag"]: row for row in settings_of(program)}
    compared = [row for row in rows.values() if not row["may_differ"]]
    expect(len(compared) >= len(rows) - 10, "more than ten flags may differ")

    def start(number, group):
        ranks, flags, odd = mesh_of(number)
        common, given, phrases = [*TRAIN, *flags], [], []
        for row in group:
            for needed in sorted(needed_flags(row, rows.values())):
                if needed not in common:
                    common += [needed, *([] if rows[needed]["switch"] else value_of(rows[needed])[0])]
            for excluded in excluded_flags(row, compared):
                common, _ = without(excluded, common)
            _, usual = without(row["flag"], common)
            words, value = value_of(row)
            if value == str(usual):
                words, value = [1], "1"
            given.append((row["flag"], words))
            where = "the default" if usual is None else usual
            phrases.append(f"{row['flag']} is {value} on rank {odd}, {where} on {others_than(odd, ranks)}")
        other = common
        for flag, words in given:
            other = [*without(flag, other)[0], flag, *words]
        result = run_with_odd_rank(program, ranks, odd, common, other)
        expect_refused(result, "the ranks have different flags: ", *phrases)

    at_the_same_time([partial(start, *each) for each in enumerate(groups_of(compared))])


def test_flags_that_may_differ_change_nothing(program):
    for number in (0, 7):
        ranks, flags, odd = mesh_of(number)
        run = [*TRAIN, *flags, "--profile", 1]
        (program.folder / f"cache{number}").mkdir()
        other = ["--log", "other.jsonl", "--profile-out", "other-profile.jsonl", "--quiet", "--cache-dir", f"cache{number}"]
        result = run_with_odd_rank(program, ranks, odd, [*run, "--log", f"{number}.jsonl"], [*run, *other])
        expect(result.returncode == 0, result)
        expect(len(program.log(f"{number}.jsonl")) == 2 and not (program.folder / "other.jsonl").exists(), result)


def test_values_in_files_of_flags_are_compared_and_spellings_are_not(program):
    (program.folder / "a.toml").write_text("lr = 0.01\n")
    (program.folder / "b.toml").write_text("lr = 0.011\n")
    ranks, flags, odd = mesh_of(1)
    run = [*TRAIN, *flags]
    result = run_with_odd_rank(program, ranks, odd, [*run, "--config", "a.toml"], [*run, "--config", "b.toml"])
    expect_refused(result, "the ranks have different flags: --lr is 0.011 on rank 1, 0.01 on rank 0")
    result = run_with_odd_rank(program, ranks, odd, [*run, "--config", "a.toml"], [*run, "--lr", "1e-2"])
    expect(result.returncode == 0, result)


# ---- ranks that cannot start -----------------------------------------------------------------


def test_a_rank_that_cannot_start_ends_all(program):
    run = [*TRAIN, "--zero", 1]
    cases = [(1, ["--stepz", 3], 2, "rank 1: there is no flag --stepz"), (0, ["--stepz", 3], 2, "rank 0: there is no flag --stepz"),
             (2, ["--lr", "x"], 2, "rank 2: "),
             (1, ["--device", "cuda"], 1, "rank 1: --device cuda: this is the host build"),
             (0, ["--help"], 2, "the request is a run on ranks 1, 2, --help, --help-json or --version on rank 0"),
             (2, ["--version"], 2, "the request is --help, --help-json or --version on rank 2, a run on ranks 0, 1")]

    def start(odd, words, code, phrase):
        expect_refused(run_with_odd_rank(program, 3, odd, run, [*run, *words]), phrase, code=code)

    def answer(words):
        result = run_ranks(program, [(3, program.folder, program.binary, words)])
        expect(result.returncode == 0 and result.stdout == program.run(*words).stdout, result)

    at_the_same_time([*(partial(start, *case) for case in cases),
                      *(partial(answer, [flag]) for flag in ("--help", "--help-json", "--version"))])


def test_another_program_is_refused_and_another_build_reported(program):
    commit = re.search(r"\(commit ([0-9a-f]{7,40}[^)]*)\)", program.run("--version").stdout)
    if commit is None:
        raise Skip("the commit of the program is not known")
    data, name = program.binary.read_bytes(), commit[1].encode() + b"\0"
    expect(data.count(name) == 1, "the program has its commit twice")
    other = program.folder / "other"
    changed = ("0" if commit[1][0] != "0" else "1") + commit[1][1:]
    run = [*TRAIN, "--zero", 1]
    for content, code in ((data.replace(name, changed.encode() + b"\0"), 2), (data + b"another build", 0)):
        other.write_bytes(content)
        other.chmod(0o755)
        result = run_with_odd_rank(program, 2, 1, run, run, binary=other)
        if code == 2:
            expect_refused(result, f"the ranks run different programs: the commit is {changed} on rank 1, {commit[1]} on rank 0")
        else:
            expect(result.returncode == 0 and "the ranks run different builds of this commit" in result.stderr, result)


def test_ranks_of_torchrun_are_compared_too(program):
    require_mpi(program)
    port = master_port()
    ranks = []
    for rank in range(3):
        words = [program.binary, *TRAIN, *(["--lr", 0.5, "--comm", "mpi"] if rank == 2 else [])]
        variables = {"RANK": str(rank), "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        ranks.append(subprocess.Popen([str(word) for word in words], cwd=program.folder, text=True, stderr=subprocess.PIPE,
                                      stdout=subprocess.PIPE, env={**environment(), **variables}))
    messages = [process.communicate(timeout=SECONDS)[1] for process in ranks]
    expect([process.returncode for process in ranks] == [2, 2, 2], messages)
    expect("--comm is mpi on rank 2, the default on ranks 0, 1" in messages[0], messages)
    expect("--lr is 0.5 on rank 2" in messages[0] and messages[1:] == ["", ""], messages)


# ---- files -----------------------------------------------------------------------------------


def write_files(folder, other):
    """Writes files of the same names into two folders; the contents in `other` are different."""
    tokens = [i * 7 % 250 for i in range(200000)]
    for place, change in ((folder, False), (other, True)):
        (place / "text.txt").write_text(TEXT)
        (place / "longer.txt").write_text(TEXT + "more" * change)
        (place / "edited.txt").write_text(TEXT.replace("fox", "FOX") if change else TEXT)
        write_bin(place / "first.bin", [tokens[0] + change, *tokens[1:]])
        write_bin(place / "last.bin", [*tokens[:-1], tokens[-1] + change])
        write_bin(place / "all.bin", [token + change for token in tokens])
        write_bin(place / "ids.bin", [i % 4 for i in range(500)])
        write_megatron(place / "wide", [[i % 250 for i in range(17)] for _ in range(50)], wide=change)
        write_megatron(place / "parts", [[i % 250 for i in range(17 + change)] for _ in range(50 - change)])
        (place / "words.txt").write_text("the\nfox\ndog\n" + ("cat\n" if change else "bird\n"))
        write_lines(place / "task.jsonl", [{"text": "the fox " + ("cat" if change and i == 3 else "dog")} for i in range(5)])


SIZES = ["--layers", 2, "--heads", 4, "--channels", 32, "--context", 8]
STEPS = ["--batch-size", 1, *QUIET, "--steps", 2]
ON_TEXT = [*SIZES, *STEPS, "--train", "text.txt"]
BLOCKS = "the checksum of blocks "
# The flags that read a file, and the begin of the error.
FILE_CASES = [
    ([*SIZES, *STEPS, "--train", "longer.txt"], "the number of tokens of --train longer.txt is "),
    ([*SIZES, *STEPS, "--train", "edited.txt"], BLOCKS + "of tokens of --train edited.txt is "),
    ([*SIZES, *STEPS, "--train", "first.bin"], BLOCKS + "of tokens of --train first.bin is "),
    ([*SIZES, *STEPS, "--train", "last.bin"], BLOCKS + "of tokens of --val the end of last.bin is "),
    ([*SIZES, *STEPS, "--train", "all.bin:0.5,text.txt:0.5", "--tokenizer", "bytes"], BLOCKS + "of tokens of --train all.bin is "),
    ([*SIZES, *STEPS, "--train", "wide"], "the type of the tokens of --train wide is 32-bit on rank"),
    ([*SIZES, *STEPS, "--train", "parts", "--document-mask"], "of --train parts is "),
    ([*ON_TEXT, "--val", "edited.txt"], BLOCKS + "of tokens of --val edited.txt is "),
    ([*ON_TEXT, "--eval", "lambada:task.jsonl"], "the checksum of rows of --eval lambada:task.jsonl is "),
    ([*ON_TEXT, "--eval", "perplexity:longer.txt"], "the number of rows of --eval perplexity:longer.txt is "),
    ([*SIZES, *STEPS, "--train", "ids.bin", "--tokenizer", "words:words.txt"],
     "the checksum of the vocabulary of --tokenizer words:words.txt is "),
    (["--batch-size", 1, "--val", "edited.txt", "--init-from", "weights", "--steps", 0],
     BLOCKS + "of tokens of --val edited.txt is "),
    ([*STEPS, "--train", "text.txt", "--init-from", "weights"], BLOCKS + "of --init-from weights/model.safetensors is "),
    ([*SIZES, "--batch-size", 1, *QUIET, "--train", "longer.txt", "--epochs", 1], "the number of tokens of --train longer.txt is "),
    (["--out", "run", "--resume", "--steps", 5], "the checksum of the manifest of run/step_000002 is "),
]


def write_weights(program, folder, seed):
    """Writes a run and its weights into the folder."""
    program.run(*ON_TEXT, "--seed", seed, "--out", folder / "run")
    (folder / "weights").mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copy(folder / "run/step_000002" / name, folder / "weights" / name)


def test_ranks_with_different_files_are_refused(program):
    require_mpi(program)
    other = program.folder / "elsewhere"
    other.mkdir()
    write_files(program.folder, other)
    write_weights(program, program.folder, 1)
    write_weights(program, other, 2)

    def start(number, case):
        flags, phrase = case
        ranks, mesh, odd = mesh_of(number)
        arguments = [*flags, *mesh]
        result = run_with_odd_rank(program, ranks, odd, arguments, arguments, folder=other)
        expect_refused(result, phrase, f" on rank {odd}, ", f" on {others_than(odd, ranks)}")

    at_the_same_time([partial(start, *each) for each in enumerate(FILE_CASES)])


def test_a_file_that_only_one_rank_lacks_ends_all(program):
    require_mpi(program)
    other = program.folder / "elsewhere"
    other.mkdir()
    for number in (2, 4):
        ranks, mesh, odd = mesh_of(number)
        arguments = [*TRAIN, *mesh]
        result = run_with_odd_rank(program, ranks, odd, arguments, arguments, folder=other)
        expect_refused(result, f"rank {odd}: ", "text.txt", code=1)


if __name__ == "__main__":
    sys.exit(run_program_tests(globals(), "train_gpt2"))
