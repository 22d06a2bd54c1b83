// Hashes of the tokens that a run trains on: of a source, and of a step. The hash of a step is the
// sum, modulo 2^64, of one hash per window, which depends on the window's tokens and its number
// among all samples of the run. So it does not depend on how the windows are spread over ranks and
// micro-batches, and sums over several steps can be compared between runs with other steps.
#pragma once

#include <cstdint>
#include <string>

#include "llmc/io/data/batches.h"
#include "llmc/io/data/token_source.h"

namespace llmc {

// `first_sample`: number of the batch's first window. Masked targets (-1) count as they are.
std::uint64_t token_hash(const Batch& batch, std::int64_t first_sample);

// The number of tokens at each end of a source that source_hash reads.
inline constexpr std::int64_t kHashedEnd = std::int64_t{1} << 22;

// XXH3 of the tokens of a source and of the places where its documents begin, as 32 hexadecimal
// digits. A source of up to 2 kHashedEnd + 65536 tokens is hashed completely. Of a longer one only
// both ends and 64 evenly spaced blocks of 1024 tokens between them are read: a change between
// these blocks that keeps the number of tokens is not found.
std::string source_hash(const TokenSource& source);

}  // namespace llmc
