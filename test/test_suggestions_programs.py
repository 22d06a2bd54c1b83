#!/usr/bin/env python3
"""Tests what train_gpt2, infer_gpt2 and tokenize answer to mistyped flags, values and words, the warnings about
texts that are not UTF-8, the examples of --help, and --version.

    python3 test/test_suggestions_programs.py build/host [PATTERN]

Prints and exits as test_programs.py does.
"""
import os
import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent / "oracle"))
import greedy  # noqa: E402
from runner import Skip, expect, run_unprivileged  # noqa: E402
from test_programs import SMALL, Program, run_program_tests  # noqa: E402

NAMES = ("train_gpt2", "infer_gpt2", "tokenize")
STORY = "Once upon a time there was a fox. " * 40


def programs(program):
    """The programs of the build, by name; a CUDA build has no tokenize."""
    paths = {name: program.binary.parent / name for name in NAMES}
    return {name: Program(path, program.folder) for name, path in paths.items() if path.exists()}


def lines_of(program, *arguments, code=2):
    """The lines of the error without the program's name, and without the hint, which must be the last one."""
    lines = program.run(*arguments, code=code).stderr.splitlines()
    name = program.binary.name
    if code == 2:
        expect(lines[-1] == f"  hint: {name} --help lists all flags", lines)
    return [line.removeprefix(name + ": ") for line in lines if not line.startswith("  hint")]


def expect_lines(program, arguments, lines):
    actual = lines_of(program, *arguments)
    expect(actual == lines, f"{arguments}: {actual}, not {lines}")


def check_flags(program, answers):
    for flag, answer in answers.items():
        expect_lines(program, [flag, "x"], [f"there is no flag {flag}" + (f"; did you mean {answer}?" if answer else "")])


# ---- flags -----------------------------------------------------------------------------------


def test_an_unknown_flag_gets_the_nearest_one(program):
    built = programs(program)
    check_flags(built["train_gpt2"], {
        "--batch_size": "--batch-size", "--learning-rate": "--lr", "--learning_rate": "--lr", "--max-lr": "--lr", "--lr0": "--lr",
        "--Steps": "--steps", "--stpes": "--steps", "--max-iters": "--steps", "--batch": "--batch-size", "-b": "--batch-size",
        "--block_size": "--seq-len", "--gradient-accumulation-steps": "--grad-accum", "--data": "--train", "--out_dir": "--out",
        "--sampel-tokens": "--sample-length", "--sample": "--sample-every or --sample-length", "--learning": "--lr", "--weather": None,
        "--tensor-model-parallel-size": "--tp", "--tensor_parallel": "--tp", "--tp-size": "--tp", "--sp": "--sequence-parallel",
        "--sequence-paralel": "--sequence-parallel", "--q": None, "-q": None})
    check_flags(built["infer_gpt2"], {"--max-new-tokens": "--tokens", "--n_predict": "--tokens", "--checkpoint": "--model",
                                      "--temperatur": "--temperature", "--promt": "--prompt", "--hepl": "--help", "-x": None})
    if "tokenize" in built:
        check_flags(built["tokenize"], {"--tokeniser": "--tokenizer", "--output_file": "--out", "--split_on": "--split-on",
                                        "-j": "--threads", "--Force": "--force", "--quick": None})


def test_unknown_flags_come_in_the_order_typed_before_wrong_values(program):
    expect_lines(program, ["--dtype", "fp9", "--max_lr=3", "--steps", 2, "--seqlen", 8, "word"],
                 ["there is no flag --max_lr; did you mean --lr?", "there is no flag --seqlen; did you mean --seq-len?",
                  "unexpected argument 'word'"])
    for name in ("infer_gpt2", "tokenize"):
        if name in programs(program):
            expect_lines(programs(program)[name], ["--zz", "--outt=a", "--aa"],
                         ["there is no flag --zz", "there is no flag --outt" + "; did you mean --out?" * (name == "tokenize"),
                          "there is no flag --aa"])


def test_suggested_names_are_not_accepted(program):
    program.fails("--learning-rate", "1e-3", phrases=["did you mean --lr?"], code=2)
    (program.folder / "run.toml").write_text("learning_rate = 1e-3\n")
    for child in programs(program).values():
        (program.folder / "run.toml").write_text("devise = 'host'\ntokeniser = 'bytes'\n")
        errors = lines_of(child, "--config", "run.toml")
        expect(errors[0].startswith("--config run.toml: there is no flag --"), errors)
        expect(re.search(r"; did you mean --(device|tokenizer)\?$|--devise$", errors[0]), errors)


def test_names_of_other_programs_get_the_way_that_exists_here(program):
    built = programs(program)
    ways = {"train_gpt2": {"--wandb": "scripts/export_run.py RUN.jsonl --wandb", "--tensorboard-dir": "--tensorboard DIR",
                           "--Use_FSDP": "--zero 3 divides", "--deepspeed": "--zero 1, 2 or 3", "--lora-r": "--lora R trains LoRA",
                           "--fp8": "--qat w8", "--torch-compile": "nothing is compiled", "--ddp": "scripts/run.sh -np N",
                           "--num-gpus": "scripts/run.sh -np N", "--num-beams": "in infer_gpt2, beam search is not supported"},
            "infer_gpt2": {"--beam": "beam search is not supported; --temperature 0", "--gptq": "--quant w8",
                           "--activation": "in train_gpt2, a config.json of transformers sets it: --model FILE.json",
                           "--wandb": "in train_gpt2, scripts/export_run.py", "--n-gpu-layers": "--device"},
            "tokenize": {"--vocab-size": "tokenizers are not trained here", "--wandb": "in train_gpt2, "}}
    for name, flags in ways.items():
        for flag, way in flags.items():
            if name in built:
                lines = lines_of(built[name], flag, "x")
                expect(len(lines) == 1 and lines[0].startswith(f"there is no flag {flag}: ") and way in lines[0], lines)
    check_flags(program, {"--flash-attn": "--attention", "--max-new-tokens": "--sample-length", "--activatio": None})
    check_flags(built["infer_gpt2"], {"--max-new-tokens": "--tokens", "--compare": None})
    (program.folder / "run.toml").write_text("wandb = true\n")
    expect("there is no flag --wandb: scripts/export_run.py" in program.run("--config", "run.toml", code=2).stderr, "config")


def test_sections_and_lines_without_a_value_in_a_config_file_are_named(program):
    for text, answer in (("[train]\nlr = 1\n", "the section [train] is not supported; write the flags without sections"),
                         ("lr 1\n", "the line 'lr 1' has no '='; write name = value"),
                         ("stpes = 1\n", "there is no flag --stpes; did you mean --steps?")):
        (program.folder / "run.toml").write_text(text)
        expect_lines(program, ["--config", "run.toml"], [f"--config run.toml: {answer}"])


# ---- files -----------------------------------------------------------------------------------


def test_a_mistyped_path_gets_the_name_in_its_folder(program):
    built = programs(program)
    greedy.write_model(program.folder / "models/small", layers=2, heads=3, channels=24, context=40)
    (program.folder / "run.toml").write_text("seed = 1\n")
    small, answer = [*SMALL, "--steps", 1], "; did you mean {}?"
    for name, arguments, meant in (
            ("train_gpt2", ["--train", "tetx.txt", *small], "text.txt"), ("train_gpt2", ["--train", "./text.tx", *small], "./text.txt"),
            ("train_gpt2", ["--train", "text.txt", "--val", "text", *small], "text.txt"),
            ("train_gpt2", ["--train", "text.txt", "--init-from", "modles/small", *small[-2:]], "models/small"),
            ("train_gpt2", ["--config", "rum.toml"], "run.toml"), ("train_gpt2", ["--train", "text.txt", "--tokenizer", "model"], "models"),
            ("infer_gpt2", ["-m", "models/smal", "-p", "x"], "models/small"), ("infer_gpt2", ["-m", "models/small", "-f", "txt.txt"], "text.txt"),
            ("tokenize", ["--tokenizer", "bytes", "tect.txt", "-o", "a.bin"], "text.txt")):
        if name in built:
            done = built[name].run(*arguments, code=2 if "--config" in arguments else 1)
            expect(answer.format(meant) in done.stderr, f"{name} {arguments}: {done.stderr}")
    for path in ("nothing.txt", "tetx.txt/a", "modles/large"):
        expect("did you mean" not in program.run("--train", path, *small, code=1).stderr, path)


# ---- values ----------------------------------------------------------------------------------


def test_an_unknown_choice_gets_the_nearest_one(program):
    built = programs(program)
    for name in ("train_gpt2", "infer_gpt2"):
        for flag, names, answers in (
                ("--dtype", "fp32, bf16, fp16", {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32",
                                                 "float": "fp32", "BF16": "bf16", "int8": None}),
                ("--device", "auto, cuda, host", {"gpu": "cuda", "cpu": "host", "cude": "cuda", "vulkan": None})):
            for value, answer in answers.items():
                expect_lines(built[name], [flag, value],
                             [f"{flag}: '{value}' is not one of {names}" + (f"; did you mean {answer}?" if answer else "")])
    expect_lines(program, ["--schedule", "cos"], ["--schedule: 'cos' is not one of cosine, linear, constant, wsd; did you mean cosine?"])
    if "tokenize" in built:
        expect_lines(built["tokenize"], ["--dedup", "exakt"], ["--dedup: 'exakt' is not one of none, exact, near; did you mean exact?"])


def test_other_names_of_gpt2_get_the_depth(program):
    for name, depth in {"gpt2": "d12", "gpt2-small": "d12", "124M": "d12", "openai-community/gpt2-medium": "d24", "350M": "d24",
                        "gpt2-large": "d36", "GPT2-XL": "d48", "1558M": "d48", "1.5B": "d48", "6": "d6", "8.3b": "megatron-8.3b"}.items():
        program.fails("--model", name, "--steps", 0, phrases=[f"--model '{name}' is not known; did you mean {depth}?"], code=2)
    expect("did you mean" not in program.run("--model", "gpt5", code=2).stderr, "an answer to gpt5")


def test_whole_numbers_may_have_an_exponent(program):
    quiet = ["--eval-every", 0, "--sample-every", 0, "--out", "run"]
    program.train("--steps", "2e0", "--seed", "1e3", *quiet)
    manifest = (program.folder / "run/step_000002/manifest.json").read_text()
    expect(re.search(r'"--steps": ?2\b(?!\.)', manifest), "--steps is not stored as the integer 2")
    expect_lines(program, ["--steps", "1.5"], ["--steps: '1.5' is not a whole number from 0 up"])
    expect_lines(program, ["--steps", "1e-3"], ["--steps: '1e-3' is not a whole number from 0 up"])
    expect_lines(program, ["--steps", "1e30"], ["--steps: '1e30' is not a whole number from 0 up"])
    for value, meant in {"10k": "10000", "0.5M": "500000", "1_000": "1000", "1,000": "1000", "1e3k": "1000000", "12q": None}.items():
        expect_lines(program, ["--total-batch-tokens", value], [
            f"--total-batch-tokens: '{value}' is not a whole number from 1 up" + (f"; did you mean {meant}?" if meant else "")])
    built = programs(program)
    greedy.write_model(program.folder / "model", layers=2, heads=3, channels=24, context=40)
    built["infer_gpt2"].run("-m", "model", "-n", "1e1", "--top-k", "2.5e1", "-p", "x")
    expect_lines(built["infer_gpt2"], ["-n", "1k"], ["--tokens: '1k' is not a whole number from 1 up; did you mean 1000?"])
    if "tokenize" in built:
        built["tokenize"].run("--tokenizer", "bytes", "text.txt", "-o", "a.bin", "--shard-tokens", "2.5e3", "--threads", "1e0")
        expect(len(list(program.folder.glob("a_*.bin"))) == -(-(os.path.getsize(program.folder / "text.txt") + 1) // 2500), "shards")


# ---- words without a flag --------------------------------------------------------------------


def test_words_of_a_prompt_are_answered_with_its_flag(program):
    infer = programs(program)["infer_gpt2"]
    text = "Once upon a time"
    expect_lines(infer, [text], [f"unexpected argument '{text}'; did you mean --prompt '{text}'?"])
    expect_lines(infer, text.split(), ["unexpected arguments 'Once', 'upon', 'a', 'time'; did you mean --prompt 'Once upon a time'?"])
    rest = "unexpected arguments 'upon', 'a', 'time'; did you mean "
    expect_lines(infer, ["-m", "x", "-p", *text.split(), "-n", 3], [f"{rest}-p '{text}'?"])
    expect_lines(infer, ["--prompt=Once", "upon", "a", "time"], [f"{rest}--prompt '{text}'?"])
    expect_lines(infer, ["It's"], ["unexpected argument 'It's'; did you mean --prompt 'It'\\''s'?"])


def test_paths_are_answered_with_their_flag(program):
    built = programs(program)
    greedy.write_model(program.folder / "run/step_000010", layers=2, heads=3, channels=24, context=40)
    (program.folder / "b.txt").write_text("b")
    answers = {"infer_gpt2": {"run/step_000010": "--model", "gpt2.bin": "--model", "run.toml": "--config"},
               "train_gpt2": {"text.txt": "--train", "shards/a.bin": "--train", "data/*.txt": "--train", "d6": "--model",
                              "run/step_000010": "--init-from", "run.toml": "--config"}}
    for name, words in answers.items():
        for word, flag in words.items():
            shown = f"'{word}'" if "*" in word else word
            expect_lines(built[name], [word], [f"unexpected argument '{word}'; did you mean {flag} {shown}?"])
    expect_lines(program, ["text.txt", "b.txt"], ["unexpected arguments 'text.txt', 'b.txt'; did you mean --train text.txt,b.txt?"])
    expect_lines(program, ["--steps", 3, "--val", "text.txt", "b.txt"],
                 ["unexpected argument 'b.txt'; did you mean --val text.txt,b.txt?"])
    expect_lines(program, ["one", "--tf32", "false", "--", "two"],
                 ["unexpected argument 'one'", "unexpected argument 'false'; did you mean --tf32=false?", "unexpected argument 'two'"])


def test_a_missing_config_file_names_the_flag(program):
    (program.folder / "folder").mkdir()
    secret = program.folder / "secret.toml"
    secret.write_text("seed = 1\n")
    secret.chmod(0)
    for child in programs(program).values():
        expect_lines(child, ["--config", "none.toml"], ["--config none.toml does not exist"])
        expect_lines(child, ["--config", "folder"], ["--config folder is a directory; give a file"])
        try:
            done = run_unprivileged([child.binary, "--config", "secret.toml"], program.folder)
        except Skip:
            continue
        expect(done.returncode == 2 and "--config secret.toml cannot be read: Permission denied" in done.stderr, done.stderr)


# ---- texts -----------------------------------------------------------------------------------


ENCODINGS = {
    "utf16le.txt": (STORY.encode("utf-16-le"), "UTF-16 (little endian)", "UTF-16LE"),
    "utf16be.txt": (STORY.encode("utf-16-be"), "UTF-16 (big endian)", "UTF-16BE"),
    "bom16.txt": ("\ufeff".encode("utf-16-le") + ("\u4f60\u597d" * 90).encode("utf-16-le"), "UTF-16 (little endian)", "UTF-16LE"),
    "utf32.txt": (STORY.encode("utf-32"), "UTF-32 (little endian)", "UTF-32LE"),
    "latin.txt": ("Un caf\u00e9 na\u00efve. ".encode("latin-1") * 40, "Latin-1 (ISO 8859-1)", "ISO-8859-1"),
    "windows.txt": ("\u201cUn caf\u00e9\u201d ".encode("cp1252") * 40, "Windows-1252", "WINDOWS-1252"),
}


def warnings_of(result, file):
    return [line for line in result.stderr.splitlines() if line.startswith(f"warning: {file} ")]


def write_texts(folder):
    """Writes the texts and returns {file: warning}."""
    warnings = {}
    for file, (content, name, iconv) in ENCODINGS.items():
        (folder / file).write_bytes(content)
        warnings[file] = (f"warning: {file} looks like {name}: its bytes are used as they are; convert it with "
                          f"iconv -f {iconv} -t UTF-8")
    (folder / "zero.txt").write_bytes(bytes(2000))
    warnings["zero.txt"] = "warning: zero.txt has many NUL bytes: it is damaged, or not a text"
    return warnings


def test_tokenize_warns_once_about_each_text_that_is_not_utf8(program):
    tokenize = programs(program).get("tokenize")
    if tokenize is None:
        raise Skip("a CUDA build has no tokenize")
    warnings = write_texts(program.folder)
    (program.folder / "late.txt").write_bytes(STORY.encode() * 200 + "caf\u00e9 ".encode("latin-1") * 9000)
    (program.folder / "good.txt").write_bytes("\ufeffna\u00efve \u4f60\u597d \U0001f642 ".encode() * 9000)
    result = tokenize.run("--tokenizer", "bytes", *warnings, "late.txt", "good.txt", "-o", "a.bin")
    for file, warning in warnings.items():
        expect(warnings_of(result, file) == [warning], f"{file}: {warnings_of(result, file)}, not {warning}")
    expect("Latin-1" in "".join(warnings_of(result, "late.txt")), result.stderr)
    expect(not warnings_of(result, "good.txt"), result.stderr)


def test_training_and_evaluation_warn_about_texts_that_are_not_utf8(program):
    warnings = write_texts(program.folder)
    used = ["--train", "utf16le.txt,text.txt", "--val", "latin.txt", "--eval", "perplexity:windows.txt", "--steps", 1,
            "--sample-every", 0]
    for run in ("first", "with the cache"):
        result = program.run(*SMALL, *used)
        for file in ("utf16le.txt", "latin.txt", "windows.txt"):
            expect(warnings_of(result, file) == [warnings[file]], f"{run}: {file}: {result.stderr[-900:]}")
        expect(not warnings_of(result, "text.txt"), result.stderr)


def test_too_few_documents_suggest_split_on(program):
    tokenize = programs(program).get("tokenize")
    if tokenize is None:
        raise Skip("a CUDA build has no tokenize")
    (program.folder / "b.txt").write_text("b")
    flags = ["--tokenizer", "bytes", "-o", "a.bin", "--val", "v.bin", "--val-fraction", 0.001]
    tokenize.fails("text.txt", "b.txt", *flags, phrases=["no document is left for v.bin: 2 read", "--split-on ''", "--val-fraction"])
    (program.folder / "a.jsonl").write_text('{"text": "one"}\n')
    for inputs in (["a.jsonl"], ["text.txt", "--split-on", "--"]):
        result = tokenize.run(*inputs, *flags, "--force", code=1)
        expect("--split-on" not in result.stderr and "give more documents" in result.stderr, result.stderr)


def test_a_config_file_may_begin_with_a_byte_order_mark(program):
    wrong = {"train_gpt2": "lr", "infer_gpt2": "top-p", "tokenize": "dedup-threshold"}
    for name, child in programs(program).items():
        (program.folder / "bom.toml").write_bytes(f"\ufeff{wrong[name]} = -7\nquiet = 1\n".encode())
        errors = lines_of(child, "--config", "bom.toml")
        expect("there is no flag" not in errors[0] and f"--{wrong[name]}" in errors[0], f"{name}: {errors}")


# ---- help and version ------------------------------------------------------------------------


def test_help_shows_every_default_in_one_way(program):
    for name, child in programs(program).items():
        page = child.run("--help").stdout
        options = page[page.index("\nOptions:"):page.index("\nExamples:")]
        entries = [" ".join(entry.split()) for entry in re.split(r"\n  (?=\S)", options) if entry.startswith(("-", "inputs"))]
        expect(len(entries) > 10, entries)
        for entry in entries:
            entry = re.sub(r" \w[^:\]]*:$", "", entry)  # the heading of the next group
            shown = re.findall(r"\[(?:default: [^\[\]]*(?:\[[^\[\]]*\])?|required)\]", entry)
            action = entry.startswith(("-h,--help ", "--help-json ", "--version "))
            expect(len(shown) == (0 if action else 1), f"{name}: {entry}: {shown}")
        expect(not re.search(r"Excludes:|Needs:|:\{|REQUIRED|\[--|\n\n\n", page), f"{name}: notes of the parser")


def test_help_of_a_flag_or_a_group_is_that_part(program):
    built = programs(program)
    for name, arguments, first, flags in (
            ("train_gpt2", ["--help", "--lr"], "Steps and learning rate:", {"--lr"}), ("train_gpt2", ["-h", "learning_rate"], None, {"--lr"}),
            ("train_gpt2", ["--help", "zero"], None, {"--zero", "--zero-points"}), ("train_gpt2", ["--help=config"], None, {"--config"}),
            ("train_gpt2", ["--steps", "x", "--help", "Dropout"], "Dropout:", None), ("infer_gpt2", ["-h", "-n"], None, {"-n,--tokens"}),
            ("train_gpt2", ["--help", "parallelism"], "Ranks and parallelism (scripts/run.sh -np N ./train_gpt2 ... starts N):", None),
            ("infer_gpt2", ["--help", "bench"], "Command bench:", None), ("tokenize", ["--help", "inputs"], "Files:", {"inputs"})):
        if name not in built:
            continue
        lines = built[name].run(*arguments).stdout.splitlines()
        shown = {line.split()[0] for line in lines if re.match(r"  \S", line)}
        expect(shown == flags if flags else len(shown) > 2, f"{arguments}: {shown}")
        expect(first is None or lines[0] == first, lines[0])
    expect_lines(program, ["--help", "optimizr"], ["--help: there is no flag and no group 'optimizr'; did you mean optimizer?"])
    expect_lines(program, ["--help", "wandb"],
                 ["there is no flag --wandb: scripts/export_run.py RUN.jsonl --wandb PROJECT exports the file of --log"])


def test_the_examples_of_help_work(program):
    folder = program.folder
    built = programs(program)
    (folder / "text.txt").write_text("Once upon a time")
    (folder / "val.txt").write_text(STORY)
    (folder / "docs.jsonl").write_text("".join('{"text": "a story %d"}\n' % i for i in range(60)))
    greedy.write_model(folder / "gpt2", layers=2, heads=3, channels=24, context=400)
    for name, child in built.items():
        (folder / name).symlink_to(child.binary)
        page = child.run("--help").stdout
        examples = page[page.index("\nExamples:\n"):].splitlines()[2:]
        expect(len(examples) == 3, examples)
        for example in examples:
            expect(example.startswith(f"  ./{name}"), example)
            if name == "train_gpt2":
                (folder / "text.txt").write_text(STORY)
                example += " --steps 2 --eval-every 1 " + " ".join(SMALL).replace("--context 16", "--context 400")
            if "gpt2 docs" in example:
                example = example.replace("--tokenizer gpt2", "--tokenizer bytes")  # the model has no tokenizer files
            done = subprocess.run(example, shell=True, cwd=folder, capture_output=True, text=True, timeout=300)
            expect(done.returncode == 0, f"{example}: {done.stderr[-500:]}")
        (folder / "text.txt").write_text("Once upon a time")


def test_version_names_commit_target_and_libraries(program):
    for name, child in programs(program).items():
        lines = child.run("--version").stdout.splitlines()
        expect(len(lines) == 4, lines)
        expect(re.fullmatch(name + r" \d+\.\d+\.\d+ \(commit ([0-9a-f]{7,40}(, modified)?|unknown)\)", lines[0]), lines[0])
        is_cuda = child.binary.resolve().parent.name == "cuda"
        expect(re.match(r"target: CUDA for compute capability \d" if is_cuda else r"target: host ", lines[1]), lines[1])
        expect(lines[2].startswith("compiler: "), lines[2])
        compute = r"CUDA \d+\.\d+, cuBLASLt \d+\.\d+\.\d+" if is_cuda else r"(oneDNN \d+\.\d+\.\d+( \([\w -]+\))?|OpenBLAS \d+\.\d+\.\d+)"
        number = r"\d+\.\d+(\.\d+)?"
        expect(re.fullmatch(f"libraries: {compute}, CLI11 {number}, nlohmann-json {number}, PCRE2 {number}, "
                            f"xxHash {number}, zlib {number}, zstd {number}",
                            lines[3]), lines[3])


if __name__ == "__main__":
    sys.exit(run_program_tests(globals(), "train_gpt2"))
