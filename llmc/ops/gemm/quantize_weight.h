// Weights become codes: on the host, when a model is loaded or saved.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/threads.h"
#include "llmc/ops/gemm/code_matrix.h"
#include "llmc/ops/quantize.h"

namespace llmc {

// Which axis of a weight (rows, columns) the outputs of its product are: the columns of a linear
// layer, whose weight is stored (in, out), and the rows of the token embeddings.
enum class OutputAxis { columns, rows };

// A quantized weight in the order of its float tensor.
struct WeightCodes {
  std::vector<std::int8_t> codes{};  // (rows, columns)
  std::vector<float> scales{};       // one per output
};

// Shape of a weight as the factor (K, N) of a product, and strides of its elements.
struct WeightShape {
  std::int64_t K = 0, N = 0, k_stride = 0, n_stride = 0;

  WeightShape(std::int64_t rows, std::int64_t columns, OutputAxis axis) {
    const bool outputs_are_rows = axis == OutputAxis::rows;
    K = outputs_are_rows ? columns : rows;
    N = outputs_are_rows ? rows : columns;
    k_stride = outputs_are_rows ? 1 : columns;
    n_stride = outputs_are_rows ? columns : 1;
  }
};

namespace quantize_detail {

inline constexpr std::int64_t kBlockColumns = 64;  // of one piece of parallel work

template <class F>
void for_column_blocks(std::int64_t N, const F& f) {
  for_each_parallel(static_cast<std::size_t>(ceil_div(N, kBlockColumns)), available_processors(),
                    [&](std::size_t i) {
                      const std::int64_t first = static_cast<std::int64_t>(i) * kBlockColumns;
                      f(first, std::min(N, first + kBlockColumns));
                    });
}

}  // namespace quantize_detail

// Quantizes a weight (rows, columns) symmetrically per output. Throws if a number is not finite;
// the error names the weight.
inline WeightCodes quantize_weight(const float* weight, std::int64_t rows, std::int64_t columns,
                                   OutputAxis axis, const std::string& name) {
  const WeightShape shape(rows, columns, axis);
  WeightCodes result;
  result.codes.resize(static_cast<std::size_t>(rows * columns));
  result.scales.resize(static_cast<std::size_t>(shape.N));
  quantize_detail::for_column_blocks(shape.N, [&](std::int64_t first, std::int64_t end) {
    std::vector<ValueRange> ranges(static_cast<std::size_t>(end - first));
    for (std::int64_t k = 0; k < shape.K; ++k) {
      for (std::int64_t n = first; n < end; ++n)
        ranges[static_cast<std::size_t>(n - first)].add(
            weight[k * shape.k_stride + n * shape.n_stride]);
    }
    std::vector<CodeRounding> roundings;
    for (std::int64_t n = first; n < end; ++n) {
      const Quantization q = symmetric_quantization(ranges[static_cast<std::size_t>(n - first)]);
      if (!q.finite()) {
        fail(name + ": a weight of output " + std::to_string(n) + " is not finite");
      }
      result.scales[static_cast<std::size_t>(n)] = q.scale;
      roundings.emplace_back(q);
    }
    for (std::int64_t k = 0; k < shape.K; ++k) {
      for (std::int64_t n = first; n < end; ++n) {
        const std::int64_t i = k * shape.k_stride + n * shape.n_stride;
        result.codes[static_cast<std::size_t>(i)] =
            roundings[static_cast<std::size_t>(n - first)].code(weight[i]);
      }
    }
  });
  return result;
}

// Writes packed codes, code_bytes(K, N), and the sums (padded N) of the columns' codes, from the
// codes of a weight (rows, columns).
template <class Layout = CodeLayout>
void pack_codes(std::int8_t* packed, std::int32_t* sums, const std::int8_t* codes,
                std::int64_t rows, std::int64_t columns, OutputAxis axis) {
  const WeightShape shape(rows, columns, axis);
  const std::int64_t padded = CodeMatrix::padded_columns(shape.N);
  quantize_detail::for_column_blocks(padded, [&](std::int64_t first, std::int64_t end) {
    std::fill(sums + first, sums + end, 0);
    for (std::int64_t k = 0; k < round_up(shape.K, kCodeDepth); ++k) {
      for (std::int64_t n = first; n < end; ++n) {
        const bool exists = k < shape.K && n < shape.N;
        const std::int8_t code =
            exists ? codes[k * shape.k_stride + n * shape.n_stride] : std::int8_t{0};
        packed[code_place<Layout>(k, n, shape.K)] = code;
        sums[n] += code;
      }
    }
  });
}

}  // namespace llmc
