#!/usr/bin/env python3
"""Tokens to train on where there is no text: a seeded Markov chain over GPT-2's ids.

    dev/peers/make_data.py --out DIR [--tokens N] [--vocabulary V] [--seed N]

writes DIR/tokens.bin (llm.c's format) and DIR/words.txt, a made-up word for each id, so that
`train_gpt2 --train DIR/tokens.bin --tokenizer words:DIR/words.txt` knows the vocabulary.

There is something to learn at once and for long: ids are as unequal as words are (id k has a
probability near 1/k), and each has eight successors of its own, the first of them likeliest.
"""
import argparse
from pathlib import Path

import numpy as np

from files import replace_file, write_tokens

SUCCESSOR_ODDS = np.array([0.40, 0.20, 0.12, 0.08, 0.06, 0.04, 0.03, 0.02])
STRAYS = 1 - SUCCESSOR_ODDS.sum()  # how often any id follows instead


def zipf_ids(random, V, shape):
    """Ids with probabilities close to 1/(id + 1): the integer part of a number whose logarithm is uniform."""
    return np.minimum(np.exp(random.random(shape) * np.log(V + 1)).astype(np.int64) - 1, V - 1)


def markov_tokens(count, V, seed):
    """Many chains side by side, each a stretch of the text."""
    random = np.random.default_rng(seed)
    successors = zipf_ids(random, V, (V, len(SUCCESSOR_ODDS)))
    length = 1024
    chains = -(-count // length)
    tokens = np.empty((chains, length), dtype=np.uint16)
    now = zipf_ids(random, V, chains)
    limits = np.cumsum(SUCCESSOR_ODDS)
    for t in range(length):
        tokens[:, t] = now
        which = np.searchsorted(limits, random.random(chains), side="right")
        strays = zipf_ids(random, V, chains)
        now = np.where(which < len(limits), successors[now, np.minimum(which, len(limits) - 1)], strays)
    return tokens.reshape(-1)[:count]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--tokens", type=int, default=4_000_000)
    parser.add_argument("--vocabulary", type=int, default=50257, help="at most 65536")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if not 1 <= arguments.vocabulary <= 65536 or arguments.tokens < 2:
        parser.error("--vocabulary: 1 to 65536; --tokens: 2 or more")
    write_tokens(arguments.out / "tokens.bin", markov_tokens(arguments.tokens, arguments.vocabulary, arguments.seed))
    words = "".join(f"w{i}\n" for i in range(arguments.vocabulary))
    replace_file(arguments.out / "words.txt", lambda file: file.write(words.encode()))
    print(f"{arguments.out / 'tokens.bin'}: {arguments.tokens} tokens of {arguments.vocabulary}, seed {arguments.seed}")


if __name__ == "__main__":
    main()
