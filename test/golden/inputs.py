"""The made-up files that the runs read: texts, documents, token files, tokenizers, models."""
import json
import random
import shutil
import sys
from pathlib import Path

TEST = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TEST), str(TEST / "oracle")]
from greedy import BYTE_ORDER, write_model  # noqa: E402
from test_exchange_programs import write_llmc_model  # noqa: E402
from test_data_programs import write_documents, write_megatron  # noqa: E402
from test_evaluation_programs import write_files as write_task_files  # noqa: E402
from test_programs import write_bin  # noqa: E402
from test_tokenize_program import random_documents, write_json_lines  # noqa: E402

WORDS = "the king of small boats sleeps where no river bends and seven old doors ring na\u00efve bells".split()
MODEL = {"layers": 2, "heads": 3, "channels": 24, "context": 40}


def write_inputs(folder):
    """Writes all inputs and returns the folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    write_texts(folder)
    write_token_files(folder)
    write_tokenizers(folder)
    write_models(folder)
    write_configs(folder)
    return folder


def sentences(count, seed):
    numbers = random.Random(seed)
    return "".join(" ".join(numbers.choices(WORDS, k=numbers.randint(3, 12))) + " .\n" for _ in range(count))


def write_texts(folder):
    (folder / "text.txt").write_text(sentences(250, 1), encoding="utf-8")
    (folder / "other.txt").write_text(sentences(150, 2), encoding="utf-8")
    (folder / "val.txt").write_text(sentences(12, 3), encoding="utf-8")
    (folder / "prompt.txt").write_bytes(b"two\nlines \xff\n")
    (folder / "blocks.txt").write_bytes(b"one\n\ntwo\r\ntwo\n\n\nthree\n--\nfour\xff")
    (folder / "empty.txt").write_bytes(b"")
    (folder / "short.txt").write_bytes(b"abc")
    for name in "ab":
        (folder / f"part_{name}.txt").write_text(sentences(60, name), encoding="utf-8")
    write_documents(folder / "docs.jsonl")
    write_documents(folder / "body.jsonl", field="body")
    write_json_lines(folder / "invented.jsonl", [*random_documents(120), "", "a\0b", "\u4e2d\U0001f600"])
    (folder / "torn.jsonl").write_text('{"text": "a"}\n{"text": "b"')
    write_task_files(folder)
    (folder / "wiki.tokens").write_text(
        " \n = Robert <unk> = \n \n He 's a co @-@ star ( of 1 @,@ 000 ) , \" no \" . \n")


def write_token_files(folder):
    numbers = random.Random(4)
    ids = [numbers.randrange(257) for _ in range(1500)]
    write_bin(folder / "tokens.bin", ids[:900])
    for i in range(3):
        write_bin(folder / f"shard_{i}.bin", ids[500 * i:500 * (i + 1)])
    write_bin(folder / "small_ids.bin", [numbers.randrange(61) for _ in range(600)])
    write_megatron(folder / "megatron", [ids[i:i + 5 + i % 13] for i in range(0, 900, 10)])


def write_tokenizers(folder):
    (folder / "words.txt").write_text("".join(f"{word}\n" for word in [*dict.fromkeys(WORDS), ".", "<|endoftext|>"]),
                                      encoding="utf-8")
    (folder / "words61.txt").write_text("".join(f"w{i}\n" for i in range(60)) + "<|endoftext|>\n")
    write_bpe(folder / "bpe")


def write_bpe(folder):
    """A byte pair encoding that has every word of WORDS, with a space before it, as one token."""
    names = {byte: chr(byte) for byte in BYTE_ORDER[:188]}
    names |= {byte: chr(256 + i) for i, byte in enumerate(BYTE_ORDER[188:])}
    merges = {}
    for word in WORDS:
        symbols = [names[byte] for byte in f" {word}".encode()]
        for i in range(1, len(symbols)):
            merges["".join(symbols[:i]), symbols[i]] = None
    tokens = [names[byte] for byte in BYTE_ORDER] + ["".join(pair) for pair in merges] + ["<|endoftext|>"]
    folder.mkdir()
    (folder / "encoder.json").write_text(json.dumps({token: i for i, token in enumerate(tokens)}))
    (folder / "vocab.bpe").write_text("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in merges), encoding="utf-8")


def write_models(folder):
    for name in ("hf_tiny", "hf_tiny_openai"):  # written by transformers; a vocabulary of 61 tokens
        (folder / name).mkdir()
        for file in ("config.json", "model.safetensors"):
            shutil.copy(TEST / "oracle" / "fixtures" / name / file, folder / name)
    write_model(folder / "model", **MODEL)
    write_model(folder / "wide", layers=1, heads=1, channels=128, context=24, seed=1)
    write_model(folder / "narrow", layers=3, heads=5, channels=40, context=96, seed=2)
    for version, name in ((3, "llmc.bin"), (5, "llmc_half.bin")):
        write_llmc_model(folder / name, folder / "narrow", version)


def write_configs(folder):
    (folder / "run.toml").write_text('train = "in/text.txt"\nlayers = 1\nheads = 2\nchannels = 16\ncontext = 16\n'
                                     "batch-size = 2\nsteps = 5\nlr = 1e-3\nclip = 0.5\n")
    (folder / "bad.toml").write_text("layrs = 1\n")
