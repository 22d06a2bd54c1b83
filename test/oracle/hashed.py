"""Parameters and tokens from a counter-based hash. fixture.h computes the same parameters in C++, so
fixtures need not store them. The hash is splitmix64's finaliser (Steele, Lea, Flood 2014)."""

import numpy as np


def hash_bits(seed, stream, count):
    """(count,) uint64. Element i hashes `seed` (8 bits), `stream` (16 bits; a tensor's index) and i."""
    assert 0 <= seed < 256 and 0 <= stream < 2**16 and count < 2**40
    counter = np.uint64((seed << 56) + (stream << 40)) + np.arange(count, dtype=np.uint64)
    with np.errstate(over="ignore"):
        z = (counter + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def hashed_parameter(seed, index, shape, amplitude, offset):
    """Uniform in offset + (-amplitude, amplitude): odd multiples of amplitude / 2^16, so exact in
    fp32 for amplitudes that are powers of two and offsets 0 and 1."""
    high = (hash_bits(seed, index, int(np.prod(shape))) >> np.uint64(48)).astype(np.float64)
    return (offset + amplitude * ((2 * high - 65535) / 65536)).reshape(shape)


def hashed_tokens(seed, stream, count, V):
    """(count,) int64 in 0 .. V-1, from streams that no parameter uses."""
    return (hash_bits(seed, 0x8000 + stream, count) % np.uint64(V)).astype(np.int64)
