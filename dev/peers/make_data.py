#!/usr/bin/env python3
"""Writes tokens to train on if there is no text: a seeded Markov chain over GPT-2's ids.

    dev/peers/make_data.py --out DIR [--tokens N] [--vocabulary V] [--seed N]

Writes DIR/tokens.bin (llm.c's format) and DIR/words.txt, an invented word for each id, so that
`train_gpt2 --train DIR/tokens.bin --tokenizer words:DIR/words.txt` knows the vocabulary.

A model can learn quickly at first, and for a long time: ids are as unequally frequent as words (id k has a
probability near 1/k), and each id has eight successors, with decreasing probabilities.
"""
import argparse
import math
import random
import sys
from bisect import bisect_right
from itertools import accumulate
from pathlib import Path

from token_files import replace_file, write_tokens

SUCCESSOR_ODDS = (0.40, 0.20, 0.12, 0.08, 0.06, 0.04, 0.03, 0.02)  # in the remaining 5 % of cases any id follows
CHAIN = 1024  # tokens per chain; each chain starts independently


def zipf_id(draw, V):
    """Maps a uniform number to an id with a probability about proportional to 1/(id + 1): the integer part of a
    number whose logarithm is uniform."""
    return min(int(math.exp(draw * math.log(V + 1))) - 1, V - 1)


def markov_tokens(count, V, seed):
    """Returns `count` ids below V, in chains of CHAIN tokens with independent starts."""
    draw = random.Random(seed).random
    successors = [[zipf_id(draw(), V) for _ in SUCCESSOR_ODDS] for _ in range(V)]
    limits = list(accumulate(SUCCESSOR_ODDS))
    tokens = []
    current = 0
    for t in range(count):
        index = bisect_right(limits, draw()) if t % CHAIN else len(limits)
        current = successors[current][index] if index < len(limits) else zipf_id(draw(), V)
        tokens.append(current)
    return tokens


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="folder to write")
    parser.add_argument("--tokens", type=int, default=4_000_000, metavar="N", help="number of tokens [4000000]")
    parser.add_argument("--vocabulary", type=int, default=50257, metavar="V", help="number of ids, at most 65536 [50257]")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="seed of the chain [1]")
    arguments = parser.parse_args()
    if not 1 <= arguments.vocabulary <= 65536 or arguments.tokens < 2:
        parser.error("allowed: --vocabulary 1 to 65536, --tokens 2 or more")
    write_tokens(arguments.out / "tokens.bin", markov_tokens(arguments.tokens, arguments.vocabulary, arguments.seed))
    words = "".join(f"w{i}\n" for i in range(arguments.vocabulary))
    replace_file(arguments.out / "words.txt", lambda file: file.write(words.encode()))
    print(f"{arguments.out / 'tokens.bin'}: {arguments.tokens} tokens of {arguments.vocabulary}, seed {arguments.seed}")


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parent.parent.parent / "scripts"))
    import standard_output
    standard_output.run(main)
