// Scratch memory of the matrix products on the host: of training (gemm_host.h) and of inference
// (invariant_gemm_host.h).
#pragma once

#include <cstdint>
#include <vector>

#include "llmc/device/device.h"
#include "llmc/device/words.h"
#include "llmc/ops/quantize.h"

namespace llmc {

// Memory of a thread, kept between products: converted or packed parts of the operands, and sums.
struct ProductScratch {
  std::vector<float> a, b, sums, partials;
  std::vector<bf16> a_transposed;
  std::vector<float> row;  // one row, in any dtype
  std::vector<Word> row_words, weight_words;
  std::vector<std::uint8_t> codes;
  std::vector<Quantization> quantization;

  static ProductScratch& of_this_thread() {
    static thread_local ProductScratch scratch;
    return scratch;
  }
};

// Returns memory for `count` elements, in which earlier contents may remain. It starts at a
// multiple of 64 bytes, a cache line.
template <class T>
T* at_least(std::vector<T>& memory, std::int64_t count) {
  constexpr std::size_t kLine = 64;
  const std::size_t size = static_cast<std::size_t>(count) + kLine / sizeof(T);
  if (memory.size() < size) memory.resize(size);
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  return memory.data() + (kLine - address % kLine) % kLine / sizeof(T);
}

}  // namespace llmc
