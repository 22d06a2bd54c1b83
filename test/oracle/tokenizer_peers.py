#!/usr/bin/env python3
"""Tokenizes texts with tiktoken, transformers or tokenizers, for test_tokenizer_peers.cpp.

    tokenizer_peers.py tiktoken|transformers DIR GPT2 [TEXT...]
    tokenizer_peers.py added_tokens DIR

The second form reads DIR/tokenizer.json and writes ADDED_TOKENIZERS files of the same tokenizer with random added
tokens, DIR/N.json, with their tokens of texts, DIR/N_plain.bin (special tokens remain text) and DIR/N_special.bin.
The first form reads:

DIR/assigned.txt: code points that may occur, one range "first last" per line.
DIR/tokenizer:    files that our tokenizer wrote, with the tokens of SPECIAL; AutoTokenizer reads them, and
DIR/bytes, DIR/plain, DIR/words: the byte tokenizer, one without special tokens, and a word list.
GPT2:             the published encoder.json and vocab.bpe, from which tiktoken's encoding is built.
TEXT:             files, each encoded as one text.

Writes DIR/SET.bin for each set of strings below. Each record is: bytes of the text (uint32), the text,
number of tokens (uint32), the tokens (int32), little-endian. Needs tiktoken and regex, or transformers.
"""
import array
import json
import random
import struct
import sys
import unicodedata
from pathlib import Path

PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
SPECIAL = {"<|endoftext|>": 50256, "<|pad|>": 50257, " <x> ": 50258}
STRINGS = 20000
ADDED_TOKENIZERS = 60
ADDED = ["The", "the", "Theta", " king", "king", "king ", "<x>", "x>", "<", " ", "  ", "\n", "a b", "b c", "\u65e5\u672c",
         "'s", "_", "a", "1", "ab", " the ", "\u00a0x", "hell", "he"]
BETWEEN = [" ", "  ", "\n", "\t", "\u00a0", "\u2003", "\u3000", "\u180e", "\u200b", "\r\n", "a", "b", "x", "king", "hello",
           ">", "<", "\u00e9", "e\u0301", "\u65e5", "_", "1", "'", "!", "\u24b6", "\u200d", "\u00b2", "\u2167"]
SPACES = [*range(9, 14), *range(0x1C, 0x21), 0x85, 0xA0, 0x1680, 0x180E, *range(0x2000, 0x2010), 0x2028, 0x2029,
          0x202F, 0x205F, 0x2060, 0x3000, 0xFEFF]
ENDINGS = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'LL", "\u2019s", "'", "''", "'l", "'r", " 's", "'st"]
EMOJI = ["\U0001F600", "\U0001F468\u200D\U0001F469\u200D\U0001F467", "\U0001F44D\U0001F3FD", "\U0001F1E8\U0001F1ED",
         "\u2764\uFE0F", "1\uFE0F\u20E3", "\U0001FAE0"]
WORDS = ["the", "Hello", "world", "don't", "antidisestablishmentarianism", "caf\u00e9", "cafe\u0301", "na\u00efve",
         "x1", "42", "3.14", "1234567890", "http://a.b/c?d=e", "\u6771\u4eac\u90fd", "\ud55c\uad6d\uc5b4", "\u3053\u3093",
         "\u0e44\u0e17\u0e22", "\u0939\u093f\u0928", "\u0639\u0631\u0628", "\u05e2\u05d1\u05e8", "...", "--", "\r\n", "\t"]


def assigned_characters(path):
    """{general category: characters} of the file's code points that this Python's Unicode also assigns."""
    by_category = {}
    for line in path.read_text().splitlines():
        first, last = map(int, line.split())
        for code in range(first, last + 1):
            category = unicodedata.category(chr(code))
            if category not in ("Cn", "Cs"):
                by_category.setdefault(category, []).append(chr(code))
    return by_category


def part(rng, by_category):
    """A few characters of one kind."""
    kind = rng.randrange(8)
    if kind < 2:
        return "".join(rng.choices(by_category[rng.choice(sorted(by_category))], k=rng.randint(1, 4)))
    if kind == 2:
        return "".join(chr(rng.choice(SPACES)) for _ in range(rng.randint(1, 5)))
    if kind == 3:
        return rng.choice(" \n") * rng.randint(1, 6)
    return rng.choice((ENDINGS, EMOJI, WORDS, WORDS)[kind - 4])


def generated_texts(rng, by_category):
    return ["".join(part(rng, by_category) for _ in range(rng.randint(0, 12))) for _ in range(STRINGS)]


def texts_with_special(rng, by_category):
    def text():
        parts = [rng.choice([*SPECIAL, "<|endoftext", "<x>", part(rng, by_category)]) for _ in range(rng.randint(1, 8))]
        return "".join(parts)
    return [text() for _ in range(STRINGS // 10)]


def every_character(by_category):
    """Each character next to letters, digits, white space, symbols and an apostrophe; of private-use
    characters, every 997th."""
    characters = [c for category, members in sorted(by_category.items()) for c in members[::1 if category != "Co" else 997]]
    pieces = [f"a{c}'s {c}1{c} {c}{c}  {c}!{c}\n" for c in characters]
    return ["".join(pieces[i:i + 100]) for i in range(0, len(pieces), 100)]


def broken_texts(rng, by_category):
    """Bytes that are not UTF-8, by themselves and between text."""
    def piece():
        data = part(rng, by_category).encode()
        return rng.choice([data, data[:-1], data[1:], bytes([rng.randrange(128, 256)]), rng.randbytes(3),
                            b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80", b" \xff", b"'\xffs"])
    return [b"".join(piece() for _ in range(rng.randint(1, 10))) for _ in range(STRINGS)]


def sentences(rng, words):
    return ["".join(rng.choice(words) + rng.choice([" ", "\n", " \t", "\r\n", "\v\f"]) for _ in range(rng.randint(1, 20)))
            for _ in range(STRINGS // 20)]


def write(path, texts, tokens):
    with open(path, "wb") as file:
        for text, ids in zip(texts, tokens):
            data = text if isinstance(text, bytes) else text.encode()
            file.write(struct.pack("<I", len(data)) + data + struct.pack("<I", len(ids)))
            array.array("i", ids).tofile(file)


def tiktoken_encoding(gpt2):
    import tiktoken
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    byte_of = {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}
    ids = json.loads((gpt2 / "encoder.json").read_text())
    ranks = {bytes(byte_of[c] for c in name): id for name, id in ids.items() if name not in SPECIAL}
    return tiktoken.Encoding("gpt2", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens=SPECIAL)


def write_tiktoken_files(folder, gpt2, rng, by_category, sets, special):
    encoding = tiktoken_encoding(gpt2)
    sets["every_character"] = every_character(by_category)
    for name, texts in sets.items():
        write(folder / f"{name}.bin", texts, [encoding.encode(text, disallowed_special=()) for text in texts])
    write(folder / "special.bin", special, [encoding.encode(text, allowed_special="all") for text in special])
    # tiktoken's API accepts no bytes, so the pattern is applied here. A byte that is not UTF-8 is one
    # character that is neither letter nor number nor white space, like Python's lone surrogates.
    import regex
    pattern = regex.compile(PATTERN)
    texts = broken_texts(rng, by_category)
    tokens = [[id for piece in pattern.findall(text.decode(errors="surrogateescape"))
               for id in encoding._encode_single_piece(piece.encode(errors="surrogateescape"))] for text in texts]
    write(folder / "broken.bin", texts, tokens)


def write_transformers_files(folder, rng, sets, special):
    from transformers import AutoTokenizer
    tokenizer = AutoTokenizer.from_pretrained(folder / "tokenizer")
    for name, texts in sets.items():
        write(folder / f"{name}.bin", texts, tokenizer(texts, split_special_tokens=True)["input_ids"])
    write(folder / "special.bin", special, tokenizer(special)["input_ids"])
    for kind in ("bytes", "plain"):
        texts = sets["generated"][:STRINGS // 10] + special
        tokenizer = AutoTokenizer.from_pretrained(folder / kind)
        write(folder / f"{kind}.bin", texts, tokenizer(texts)["input_ids"])
        tokenizer.save_pretrained(folder / f"{kind}_resaved")
    tokenizer = AutoTokenizer.from_pretrained(folder / "words")
    texts = sentences(rng, sorted(tokenizer.get_vocab()))
    tokens = tokenizer(texts)["input_ids"]
    write(folder / "words.bin", texts, tokens)
    write(folder / "words_decoded.bin", [tokenizer.decode(ids) for ids in tokens], tokens)
    tokenizer.save_pretrained(folder / "words_resaved")


def random_added_tokens(rng, contents, vocabulary):
    """Entries of added_tokens, some with gaps between their ids. A token that the vocabulary has keeps its id."""
    next_id, gap, entries = max(vocabulary.values()) + 1, rng.randrange(3), []
    for content in contents:
        special = content not in vocabulary and rng.random() < 0.3
        flags = {key: rng.random() < 0.3 for key in ("single_word", "lstrip", "rstrip")}
        entries.append({"id": vocabulary.get(content, next_id), "content": content, "special": special,
                        "normalized": rng.choice([special, not special, not special]), **flags})
        next_id += content not in vocabulary and 1 + rng.randint(0, gap)
    return entries


def tokens_or_none(tokenizer, text):
    """The tokens of a text. None where the library panics: white space that two tokens strip."""
    try:
        return tokenizer.encode(text).ids
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        return None


def write_added_tokens_files(folder):
    from tokenizers import Tokenizer
    rng = random.Random(30)
    base = json.loads((folder / "tokenizer.json").read_text())
    for number in range(ADDED_TOKENIZERS):
        contents = rng.sample(ADDED, rng.randint(1, 7))
        added = base["added_tokens"] + random_added_tokens(rng, contents, base["model"]["vocab"])
        path = folder / f"{number}.json"
        path.write_text(json.dumps(base | {"added_tokens": added}))
        tokenizer = Tokenizer.from_file(str(path))
        texts = ["".join(rng.choice([rng.choice(contents), rng.choice(BETWEEN)]) for _ in range(rng.randint(1, 8)))
                 for _ in range(200)]
        for kind in ("special", "plain"):
            tokenizer.encode_special_tokens = kind == "plain"
            known = [(text, ids) for text in texts if (ids := tokens_or_none(tokenizer, text)) is not None]
            write(folder / f"{number}_{kind}.bin", *zip(*known))


def main(peer, folder, gpt2, files):
    by_category = assigned_characters(folder / "assigned.txt")
    rng = random.Random(20)
    sets = {"generated": generated_texts(rng, by_category), "texts": [Path(file).read_bytes().decode() for file in files]}
    special = texts_with_special(rng, by_category)
    if peer == "tiktoken":
        write_tiktoken_files(folder, gpt2, rng, by_category, sets, special)
    else:
        write_transformers_files(folder, rng, sets, special)


if __name__ == "__main__":
    if sys.argv[1] == "added_tokens":
        write_added_tokens_files(Path(sys.argv[2]))
    else:
        main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:])
