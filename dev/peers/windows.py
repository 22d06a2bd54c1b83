"""The tokens of each batch: the order of llmc/io/data/batches.h, implemented independently, so that
another framework trains on the same batches. test/test_peers.py compares the two.
"""
import numpy as np

MASK64 = (1 << 64) - 1


def mix64(x):
    """A bijection of 64-bit integers; llmc/base/hash.h names its source."""
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9 & MASK64
    x = (x ^ x >> 27) * 0x94d049bb133111eb & MASK64
    return x ^ x >> 31


def hash64(first, *rest):
    """The hash of a sequence of integers."""
    for value in rest:
        first = mix64((first + 0x9e3779b97f4a7c15) & MASK64) ^ value
    return mix64(first)


class Permutation:
    """A permutation of 0 .. n-1: a Feistel network over the smallest even number of bits, repeated until inside."""

    ROUNDS = 6

    def __init__(self, n, seed, epoch):
        self.n = n
        self.half = next(bits for bits in range(32) if 1 << 2 * bits >= n)
        self.keys = [hash64(seed, epoch, key) for key in range(self.ROUNDS)]

    def __getitem__(self, i):
        while True:
            i = self._once(i)
            if i < self.n:
                return i

    def _once(self, i):
        mask = (1 << self.half) - 1
        left, right = i >> self.half, i & mask
        for key in self.keys:
            left, right = right, left ^ mix64(right ^ key) & mask
        return left << self.half | right


class ShuffledWindows:
    """Training batches, addressed by the number of their first sample in the run."""

    def __init__(self, tokens, T, seed):
        self.tokens, self.T, self.seed = tokens, T, seed
        self.count = (len(tokens) - 1) // T if len(tokens) > T else 0
        if self.count == 0:
            raise SystemExit(f"{len(tokens)} tokens are too few for sequences of {T}")

    def batch(self, first, B):
        """Inputs and targets, (B, T) each, of samples first .. first + B - 1."""
        rows = np.empty((B, self.T + 1), dtype=np.int64)
        for b, sample in enumerate(range(first, first + B)):
            order = Permutation(self.count, self.seed, sample // self.count)
            start = order[sample % self.count] * self.T
            rows[b] = self.tokens[start:start + self.T + 1]
        return rows[:, :-1].copy(), rows[:, 1:].copy()
