// A contiguous part of the vocabulary, as a rank holds it. Shared by the embedding and the
// classifier.
#pragma once

#include <cstdint>
#include <string>

#include "llmc/device/device.h"

namespace llmc {

// Tokens [begin, end) of the vocabulary; empty if begin == end. Row j of the slice's wte, and
// column j of its logits, is token begin + j. One rank has the slice [0, V).
struct VocabularySlice {
  std::int64_t begin, end;

  __host__ __device__ std::int64_t size() const { return end - begin; }
  // The token's row or column, which is outside [0, size()) if the slice does not hold the token.
  __host__ __device__ std::int64_t index_of(std::int64_t token) const { return token - begin; }
  __host__ __device__ bool holds(std::int64_t token) const { return token >= begin && token < end; }
};

// Throws unless the slice fits `capacity` rows of wte or columns of logits.
inline void check_vocabulary_slice(const char* op, VocabularySlice slice, std::int64_t capacity) {
  if (slice.begin >= 0 && slice.begin <= slice.end && slice.size() <= capacity) return;
  fail(std::string(op) + ": tokens [" + std::to_string(slice.begin) + ", " +
       std::to_string(slice.end) + ") do not fit " + std::to_string(capacity) +
       " rows of wte or columns of logits");
}

}  // namespace llmc
