"""What all sides of a study share: the tokenizer, the tokens of training and validation, and the initial weights.

They are made once, in a folder of OUT/inputs that is named by the device and by a hash of the texts.
"""
import hashlib
import json
import shutil
import sys
from array import array
from typing import NamedTuple

from finetune_sentiment.data import LABELS, label_files, read_parts, write_subset
from measured_programs import ROOT, RunError, execute, note, program, write_json, write_text
from studies.machine import file_hash

sys.path.append(str(ROOT / "dev/peers"))
from token_files import HEADER, little_endian, write_tokens  # noqa: E402

SMALL_GPT2 = ROOT / "dev/experiments/small_gpt2.py"
TEXTS = (ROOT.parent / "shared/data/text", ROOT / "datasets/tinyshakespeare/train.txt")
VOCABULARIES = (ROOT.parent / "shared/data/gpt2", ROOT / "models/gpt2-vocabulary")
SENTENCES = (ROOT.parent / "shared/data/sentence_polarity", ROOT / "datasets/sentence_polarity")
VALIDATION_TOKENS = 16384


class Shape(NamedTuple):
    """Sizes of a model, and of the sequences that it trains on."""
    layers: int
    heads: int
    channels: int
    T: int
    vocabulary: int = 4097

    def flags(self):
        return ["--layers", self.layers, "--heads", self.heads, "--channels", self.channels, "--context", self.T]

    def parameters(self):
        """Without padding; the head is tied."""
        C = self.channels
        return self.layers * (12 * C * C + 13 * C) + (self.vocabulary + self.T + 2) * C

    def text(self):
        return (f"{self.layers} layers, {self.heads} heads, {self.channels} channels, {self.vocabulary} tokens: "
                f"{self.parameters() / 1e6:.2f} million parameters; sequences of {self.T} tokens")


def shape_of(path):
    """The Shape of the model in a directory."""
    try:
        config = json.loads((path / "config.json").read_text(encoding="utf-8"))
        return Shape(*(int(config[key]) for key in ("n_layer", "n_head", "n_embd", "n_positions", "vocab_size")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path} has no readable config.json of a GPT-2 model: {error}") from None


def find_first(paths, purpose, hint):
    for path in paths:
        if path.exists():
            return path
    raise RunError(f"{purpose} is missing: none of {', '.join(map(str, paths))} exists; {hint}")


def read_token_file(path, count):
    """The first `count` tokens of a .bin file."""
    tokens = array("H")
    with open(path, "rb") as file:
        file.seek(4 * HEADER)
        tokens.frombytes(file.read(2 * count))
    return list(little_endian(tokens))


def hash_of_texts(texts):
    """Of a file, or of all .txt files in a folder."""
    paths = sorted(texts.glob("*.txt")) if texts.is_dir() else [texts]
    return hashlib.sha256("".join(map(file_hash, paths)).encode()).hexdigest()[:8]


class Inputs:
    """The files in a folder, for one device. Each is made when it is first needed. `sentences`: a folder with
    positive.txt and negative.txt."""

    def __init__(self, folder, device, data=None, sentences=None):
        self.device = device
        self.texts = data or find_first(TEXTS, "a text to train on", "give --data PATH, or run: data/prepare.py "
                                                                     "tinyshakespeare")
        self.folder = folder / f"{device}-{hash_of_texts(self.texts)}"
        self._sentences = sentences or next((path for path in SENTENCES if path.exists()), None)

    def _make(self, path, make):
        """Calls make(draft) for a file or folder that is absent, so that it is complete or absent."""
        if path.exists():
            return path
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name("new-" + path.name)
        shutil.rmtree(draft, ignore_errors=True)
        draft.unlink(missing_ok=True)
        make(draft)
        draft.rename(path)
        return path

    def _run(self, *command):
        execute(command, self.folder / "output.txt")

    def tokenizer(self):
        """The folder of the tokenizer: GPT-2's on a GPU, and its first merges on the host."""
        vocabulary = find_first(VOCABULARIES, "GPT-2's vocabulary", "run: scripts/get_gpt2.sh --vocabulary")
        if self.device == "cuda":
            return vocabulary
        return self._make(self.folder / "tokenizer",
                          lambda draft: self._run(sys.executable, SMALL_GPT2, "tokenizer", vocabulary, draft))

    def _tokens(self):
        """The folder with train.bin and heldout.bin of all texts, of which one document in 20 is held out."""
        def make(draft):
            note(f"inputs: tokens of {self.texts}")
            draft.mkdir(parents=True)
            self._run(sys.executable, SMALL_GPT2, "documents", self.texts, draft / "documents.jsonl")
            self._run(program("tokenize"), "--tokenizer", self.tokenizer(), draft / "documents.jsonl", "-o",
                      draft / "train.bin", "--val", draft / "heldout.bin", "--val-fraction", "0.05")
            (draft / "documents.jsonl").unlink()
        return self._make(self.folder / "tokens", make)

    def prepare(self):
        """Makes what takes long, so that it does not count in the time of an experiment."""
        self._tokens()

    def most_windows(self, T):
        """Windows of T tokens in the training part of the texts."""
        return ((self._tokens() / "train.bin").stat().st_size // 2 - 2 * HEADER - 1) // T

    def has_sentences(self):
        return self._sentences is not None

    def sentences(self, lines=None):
        """A folder with the labelled sentences; `lines`: the first ones of each class."""
        digest = hashlib.sha256("".join(file_hash(path) for path in self._label_files()).encode()).hexdigest()[:8]
        return self._make(self.folder / f"sentences-{digest}-{lines or 'all'}",
                          lambda draft: write_subset(self._sentences, draft, lines))

    def test_sentences(self, lines=None):
        """A folder with the sentences of the test part, test.txt, class by class, and their numbers, support.json."""
        sentences = self.sentences(lines)

        def make(draft):
            test = read_parts(sentences)["test"]
            draft.mkdir()
            write_text(draft / "test.txt", "\n".join(test.texts) + "\n")
            write_json(draft / "support.json", test.support())
        return self._make(self.folder / f"test-of-{sentences.name}", make)

    def test_support(self, lines=None):
        """Number of test sentences of each class."""
        return json.loads((self.test_sentences(lines) / "support.json").read_text(encoding="utf-8"))

    def _label_files(self):
        paths = label_files(self._sentences).values()
        for path in paths:
            if not path.is_file():
                raise RunError(f"{path} is missing; --sentences names a folder with {' and '.join(LABELS)}.txt, which have a "
                               "sentence per line")
        return paths

    def _windows(self, name, count, T):
        def make(draft):
            tokens = read_token_file(self._tokens() / f"{name}.bin", count * T + 1)
            if len(tokens) <= count * T:
                raise RunError(f"{self.texts} has {len(tokens)} tokens in {name}.bin, and the study needs {count * T + 1}; "
                               "give --data with more text")
            write_tokens(draft, tokens)
        return self._make(self.folder / f"{name}-{count}x{T}.bin", make)

    def windows(self, count, T):
        """A token file of exactly `count` windows to train on."""
        return self._windows("train", count, T)

    def validation(self, T):
        return self._windows("heldout", max(1, VALIDATION_TOKENS // T), T)

    def weights(self, shape):
        """A Hugging Face directory with the initial weights of train_gpt2: those before a step with a rate of 0."""
        tokens = self.validation(shape.T)

        def make(draft):
            note(f"inputs: initial weights, {shape.text()}")
            self._run(program("train_gpt2"), "--device", self.device, "--dtype", "fp32", "--tokenizer", self.tokenizer(),
                      "--train", tokens, "--val", tokens, *shape.flags(), "--batch-size", 1, "--grad-accum", 1, "--steps", 1,
                      "--lr", 0, "--weight-decay", 0, "--eval-every", 0, "--sample-every", 0, "--peak-tflops", 1,
                      "--out", draft)
            (draft / "step_000001/optimizer.safetensors").unlink(missing_ok=True)
        folder = self._make(self.folder / f"weights-{shape.layers}x{shape.heads}x{shape.channels}", make)
        return folder / "step_000001"

    def hash_of(self, path):
        """The hash of a file, or of the weights in a directory, both made by this class."""
        path = weights_file(path)
        stored = path.with_name(path.name + ".hash")
        if not stored.exists():
            write_text(stored, file_hash(path))
        return stored.read_text()

    @staticmethod
    def version_of(path):
        """The same for others, next to which nothing is written."""
        return file_hash(weights_file(path))


def weights_file(path):
    return path / "model.safetensors" if path.is_dir() else path
