"""The sentences and their split, which is that of train_gpt2 --split 80/10/10 (llmc/io/data/hashed_split.h)."""
from pathlib import Path
from typing import NamedTuple

LABELS = ("negative", "positive")
FRACTIONS = (80, 10, 10)
PARTS = ("train", "validation", "test")

MASK = (1 << 64) - 1
PRIMES = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)


class DataError(Exception):
    """A file of sentences is missing or unusable."""


class Part(NamedTuple):
    texts: list
    labels: list  # index in LABELS of each text

    def support(self):
        """Number of texts of each class."""
        return [self.labels.count(label) for label in range(len(LABELS))]


def rotate(x, bits):
    return (x << bits | x >> (64 - bits)) & MASK


def xxh64_round(lane, word):
    return rotate((lane + word * PRIMES[1]) & MASK, 31) * PRIMES[0] & MASK


def xxh64_lanes(data, length):
    """The hash of the first `length` bytes, a multiple of 32, in four lanes."""
    lanes = [(PRIMES[0] + PRIMES[1]) & MASK, PRIMES[1], 0, -PRIMES[0] & MASK]
    for start in range(0, length, 32):
        for i in range(4):
            at = start + 8 * i
            lanes[i] = xxh64_round(lanes[i], int.from_bytes(data[at:at + 8], "little"))
    result = sum(rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18))) & MASK
    for lane in lanes:
        result = ((result ^ xxh64_round(0, lane)) * PRIMES[0] + PRIMES[3]) & MASK
    return result


def xxh64(data):
    """XXH64 of bytes, with seed 0 (https://xxhash.com)."""
    p1, p2, p3, p4, p5 = PRIMES
    at = len(data) // 32 * 32
    result = (xxh64_lanes(data, at) if at else p5) + len(data) & MASK
    while at + 8 <= len(data):
        result ^= xxh64_round(0, int.from_bytes(data[at:at + 8], "little"))
        result = (rotate(result, 27) * p1 + p4) & MASK
        at += 8
    if at + 4 <= len(data):
        result ^= int.from_bytes(data[at:at + 4], "little") * p1 & MASK
        result = (rotate(result, 23) * p2 + p3) & MASK
        at += 4
    for byte in data[at:]:
        result ^= byte * p5 & MASK
        result = rotate(result, 11) * p1 & MASK
    result = (result ^ result >> 33) * p2 & MASK
    result = (result ^ result >> 29) * p3 & MASK
    return result ^ result >> 32


def mix64(x):
    """mix64 of llmc/base/hash.h."""
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def split_hash(text):
    """mix64(XXH64(bytes of the text), 1)."""
    return mix64(mix64(xxh64(text.encode()) + 0x9E3779B97F4A7C15 & MASK) ^ 1)


def part_of(text, fractions=FRACTIONS):
    """The name of the part that has this text."""
    place = split_hash(text) * sum(fractions) >> 64
    return PARTS[0 if place < fractions[0] else 1 if place < fractions[0] + fractions[1] else 2]


def label_files(folder):
    return {label: Path(folder, f"{label}.txt") for label in LABELS}


def classes_flag(folder):
    """The value of --classes. A comma, a colon or a backslash in a name follows a backslash."""
    def escape(path):
        return "".join("\\" + c if c in ",:\\" else c for c in str(path))
    return ",".join(f"{label}={escape(path)}" for label, path in label_files(folder).items())


def read_lines(path):
    """The lines of a file, which only line feeds separate, as train_gpt2 reads them."""
    try:
        text = path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise DataError(f"{path} is missing; --data names the folder with positive.txt and negative.txt, which have "
                        "one sentence per line") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 ({error}); convert it with iconv") from None
    lines = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
    for number, line in enumerate(lines, 1):
        if not line.strip(" \t\r\n\v\f"):
            raise DataError(f"{path}:{number} is empty; remove the line")
    return lines


def read_parts(folder):
    """{"train": Part, "validation": Part, "test": Part}, each in the order of the files."""
    parts = {name: Part([], []) for name in PARTS}
    for label, path in enumerate(label_files(folder).values()):
        for text in read_lines(path):
            part = parts[part_of(text)]
            part.texts.append(text)
            part.labels.append(label)
    for name, part in parts.items():
        if 0 in part.support():
            raise DataError(f"{folder}: the {name} part has {part.support()} sentences of {' and '.join(LABELS)}; "
                            "each class needs at least one")
    return parts


def write_subset(folder, out, lines):
    """Writes the first `lines` sentences of each class to the folder `out`."""
    out.mkdir(parents=True, exist_ok=True)
    for label, path in label_files(folder).items():
        (out / f"{label}.txt").write_text("\n".join(read_lines(path)[:lines]) + "\n", encoding="utf-8")
