#!/usr/bin/env python3
"""Prepares the data of small models of GPT-2's kind.

    dev/experiments/small_gpt2.py tokenizer VOCABULARY OUT     GPT-2's tokenizer, cut after its first 3,840 merges
    dev/experiments/small_gpt2.py documents TEXTS OUT [N]      texts as JSON lines of documents; with N, every N-th one

VOCABULARY is a folder with GPT-2's encoder.json and vocab.bpe. The tokenizer has 4,097 tokens. TEXTS is a text file or a
folder of .txt files. A document is a piece of at least 8,000 bytes of a file, cut at line ends.
"""
import json
import sys
from pathlib import Path

MERGES, DOCUMENT_BYTES, END_OF_TEXT = 3840, 8000, "<|endoftext|>"


def cut_tokenizer(vocabulary, out):
    ids = json.loads((vocabulary / "encoder.json").read_text(encoding="utf-8"))
    lines = (vocabulary / "vocab.bpe").read_text(encoding="utf-8").splitlines()
    merges = [line for line in lines if line and not line.startswith("#version")][:MERGES]
    kept = {token: i for token, i in ids.items() if i < 256 + MERGES}
    # Ids 0 to 255 are the bytes, and the others are the results of the merges in their order.
    expected = ["".join(merge.split()) for merge in merges]
    if len(merges) != MERGES or sorted(kept.values()) != list(range(256 + MERGES)) or \
            [token for token, i in sorted(kept.items(), key=lambda item: item[1])][256:] != expected:
        sys.exit(f"small_gpt2.py: encoder.json and vocab.bpe of {vocabulary} are not GPT-2's")
    kept[END_OF_TEXT] = 256 + MERGES
    out.mkdir(parents=True, exist_ok=True)
    (out / "vocab.json").write_text(json.dumps(kept, ensure_ascii=False), encoding="utf-8")
    (out / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n", encoding="utf-8")


def write_documents(texts, out, every):
    pieces = []
    for path in sorted(texts.glob("*.txt")) if texts.is_dir() else [texts]:
        piece, size = [], 0
        for line in path.read_bytes().decode("utf-8", errors="replace").splitlines(keepends=True):
            piece.append(line)
            size += len(line.encode())
            if size >= DOCUMENT_BYTES:
                pieces.append("".join(piece))
                piece, size = [], 0
        if piece:
            pieces.append("".join(piece))
    if not pieces:
        sys.exit(f"small_gpt2.py: {texts} has no text in .txt files")
    out.write_text("".join(json.dumps({"text": piece}) + "\n" for piece in pieces[::every]), encoding="utf-8")


def main():
    words = sys.argv[1:]
    if words[:1] == ["tokenizer"] and len(words) == 3:
        cut_tokenizer(Path(words[1]), Path(words[2]))
    elif words[:1] == ["documents"] and len(words) in (3, 4):
        write_documents(Path(words[1]), Path(words[2]), int(words[3]) if len(words) == 4 else 1)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
