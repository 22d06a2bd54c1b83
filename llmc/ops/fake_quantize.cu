#include <algorithm>
#include <cfloat>
#include <cstdint>

#include "llmc/device/device.h"
#include "llmc/device/floats.h"
#include "llmc/ops/checks.h"
#include "llmc/ops/elementwise.h"
#include "llmc/ops/fake_quantize.h"
#include "llmc/ops/instantiate.h"
#include "llmc/ops/quantize.h"

namespace llmc {

// ---- scales of weights -----------------------------------------------------------------------

// Rows of a weight from which a block computes one row of magnitudes.
inline constexpr std::int64_t kMagnitudeRows = kOneThreadBlocks ? 64 : 16;

std::int64_t magnitude_parts(std::int64_t rows) {
  return ceil_div(rows, kMagnitudeRows);
}

// magnitudes (parts, columns)
template <class T>
__global__ void column_magnitudes_kernel(float* magnitudes, const T* weight, std::int64_t rows,
                                         std::int64_t columns) {
  constexpr int N = kRowVector<T>;
  const std::int64_t first = block_x() * kMagnitudeRows;
  const std::int64_t end = first + kMagnitudeRows < rows ? first + kMagnitudeRows : rows;
  for_each_row_vector<N>(columns, [&](std::int64_t c) {
    Floats<N> magnitude, not_finite;
    for (std::int64_t r = first; r < end; ++r) {
      const Floats<N> x = load_floats<N>(weight + r * columns + c);
      magnitude = max_elements(magnitude, max_elements(x, Floats<N>() - x));
      not_finite += x - x;  // NaN for infinity and NaN
    }
    store_floats(magnitudes + block_x() * columns + c, magnitude + not_finite);
  });
}

template <class T>
void column_magnitudes(Tensor<float, 2> magnitudes, Tensor<const T, 2> weight, Stream& stream) {
  const ProfileScope scope("weight scales", stream);
  const std::int64_t rows = weight.shape[0], columns = weight.shape[1];
  require_vector_rows("column_magnitudes", columns);
  check_shape("magnitudes", magnitudes, {magnitude_parts(rows), columns});
  launch(column_magnitudes_kernel<T>, Grid{magnitude_parts(rows), 1, 1},
         row_block_threads<T>(columns), 0, stream, magnitudes.data, weight.data, rows, columns);
}

// One thread per column.
template <class = void>
__global__ void scales_from_magnitudes_kernel(float* scales, const float* magnitudes,
                                              std::int64_t parts, std::int64_t columns) {
  const std::int64_t column = global_thread();
  if (column >= columns) return;
  float largest = 0.0f;
  for (std::int64_t p = 0; p < parts; ++p) {
    const float magnitude = magnitudes[p * columns + column];
    const bool finite = magnitude <= FLT_MAX;
    if (!finite) largest = float_from_bits(0x7f800000u);
    if (finite && magnitude > largest) largest = magnitude;
  }
  scales[column] = symmetric_quantization({0.0f, largest}).scale;
}

void scales_from_magnitudes(Tensor<float, 1> scales, In<float, 2> magnitudes, Stream& stream) {
  const ProfileScope scope("weight scales", stream);
  const std::int64_t parts = magnitudes.shape[0], columns = magnitudes.shape[1];
  check_shape("scales", scales, {columns});
  constexpr int kThreads = 128;
  launch(scales_from_magnitudes_kernel<>, Grid{ceil_div(columns, kThreads), 1, 1}, kThreads, 0,
         stream, scales.data, magnitudes.data, parts, columns);
}

// The range of a row, computed by the whole block; every thread receives it.
template <class T>
__device__ __forceinline__ ValueRange block_row_range(const T* row, std::int64_t C,
                                                      float* scratch) {
  constexpr int N = kRowVector<T>;
  RangeOfVectors<N> collected;
  for_each_row_vector<N>(C, [&](std::int64_t c) { collected.add(load_floats<N>(row + c)); });
  const ValueRange own = collected.range();
  const float negated_min = block_max(-own.min, scratch);
  return {-negated_min, block_max(own.max, scratch)};
}

template <class T>
__global__ void row_scales_kernel(float* scales, const T* weight, std::int64_t rows,
                                  std::int64_t C) {
  SharedMemory shared;
  float* scratch = shared.take<float>(kBlockScratch);
  for_each_block_row(rows, [&](std::int64_t row) {
    const ValueRange range = block_row_range(weight + row * C, C, scratch);
    if (thread_index() == 0) scales[row] = symmetric_quantization(range).scale;
  });
}

std::size_t row_range_shared() {
  return SharedLayout().add<float>(kBlockScratch).bytes();
}

template <class T>
void row_scales(Tensor<float, 1> scales, Tensor<const T, 2> weight, Stream& stream) {
  const ProfileScope scope("weight scales", stream);
  const std::int64_t rows = weight.shape[0], C = weight.shape[1];
  require_vector_rows("row_scales", C);
  check_shape("scales", scales, {rows});
  launch(row_scales_kernel<T>, Grid{ceil_div(rows, kRowsPerBlock), 1, 1}, row_block_threads<T>(C),
         row_range_shared(), stream, scales.data, weight.data, rows, C);
}

// ---- codes -----------------------------------------------------------------------------------
template <class T>
__global__ void fake_quantize_weight_kernel(T* out, const T* weight, const float* scales,
                                            ScaleAxis axis, Quantized result, std::int64_t rows,
                                            std::int64_t C) {
  constexpr int N = kRowVector<T>;
  for_each_block_row(rows, [&](std::int64_t row) {
    for_each_row_vector<N>(C, [&](std::int64_t c) {
      const Floats<N> x = load_floats<N>(weight + row * C + c);
      const Floats<N> scale =
          axis == ScaleAxis::rows ? Floats<N>(scales[row]) : load_floats<N>(scales + c);
      const Floats<N> codes = symmetric_codes(x, scale);
      store_floats(out + row * C + c, result == Quantized::codes ? codes : scale * codes);
    });
  });
}

template <class T>
void fake_quantize_weight(Tensor<T, 2> out, In<T, 2> weight, In<float, 1> scales, ScaleAxis axis,
                          Quantized result, Stream& stream) {
  const ProfileScope scope("weight codes", stream, memory_traffic(out, weight));
  const std::int64_t rows = weight.shape[0], C = weight.shape[1];
  require_vector_rows("fake_quantize_weight", C);
  check_shape("out", out, {rows, C});
  check_shape("scales", scales, {axis == ScaleAxis::rows ? rows : C});
  launch(fake_quantize_weight_kernel<T>, Grid{ceil_div(rows, kRowsPerBlock), 1, 1},
         row_block_threads<T>(C), 0, stream, out.data, weight.data, scales.data, axis, result, rows,
         C);
}

template <class T>
__global__ void row_ranges_kernel(float* ranges, const T* x, std::int64_t rows, std::int64_t C) {
  SharedMemory shared;
  float* scratch = shared.take<float>(kBlockScratch);
  for_each_block_row(rows, [&](std::int64_t row) {
    const ValueRange range = block_row_range(x + row * C, C, scratch);
    if (thread_index() == 0) {
      ranges[2 * row] = range.min;
      ranges[2 * row + 1] = range.max;
    }
  });
}

template <class T>
void row_ranges(Tensor<float, 2> ranges, Tensor<const T, 2> x, Stream& stream) {
  const ProfileScope scope("activation ranges", stream, memory_traffic(ranges, x));
  const std::int64_t rows = x.shape[0], C = x.shape[1];
  require_vector_rows("row_ranges", C);
  check_shape("ranges", ranges, {rows, 2});
  launch(row_ranges_kernel<T>, Grid{ceil_div(rows, kRowsPerBlock), 1, 1}, row_block_threads<T>(C),
         row_range_shared(), stream, ranges.data, x.data, rows, C);
}

// ranges (parts, rows, 2); with 0 parts, the range is that of the row of x.
template <class T>
__global__ void fake_quantize_rows_kernel(T* out, Quantization* quantizations, const T* x,
                                          const float* ranges, std::int64_t parts, bool zero_points,
                                          Quantized result, std::int64_t rows, std::int64_t C) {
  constexpr int N = kRowVector<T>;
  SharedMemory shared;
  float* scratch = shared.take<float>(kBlockScratch);
  for_each_block_row(rows, [&](std::int64_t row) {
    ValueRange range;
    if (parts == 0) range = block_row_range(x + row * C, C, scratch);
    for (std::int64_t p = 0; p < parts; ++p) {
      const float* part = ranges + 2 * (p * rows + row);
      range = range.merged({part[0], part[1]});
    }
    const Quantization quantization = activation_quantization(range, zero_points);
    const CodeRounding rounding(quantization);
    for_each_row_vector<N>(C, [&](std::int64_t c) {
      const Floats<N> codes = rounding.differences(load_floats<N>(x + row * C + c));
      store_floats(out + row * C + c,
                   result == Quantized::codes ? codes : quantization.scale * codes);
    });
    if (thread_index() == 0) quantizations[row] = quantization;
  });
}

template <class T>
void fake_quantize_rows(Tensor<T, 2> out, Tensor<Quantization, 1> quantizations, In<T, 2> x,
                        In<float, 3> ranges, bool zero_points, Quantized result, Stream& stream) {
  const ProfileScope scope("activation codes", stream, memory_traffic(out, x));
  const std::int64_t rows = x.shape[0], C = x.shape[1];
  const std::int64_t parts = ranges.data == nullptr ? 0 : ranges.shape[0];
  require_vector_rows("fake_quantize_rows", C);
  check_shape("out", out, {rows, C});
  check_shape("quantizations", quantizations, {rows});
  if (parts > 0) check_shape("ranges", ranges, {parts, rows, 2});
  launch(fake_quantize_rows_kernel<T>, Grid{ceil_div(rows, kRowsPerBlock), 1, 1},
         row_block_threads<T>(C), row_range_shared(), stream, out.data, quantizations.data, x.data,
         ranges.data, parts, zero_points, result, rows, C);
}

// ---- results and gradients -------------------------------------------------------------------

// row_quantizations and bias may be null. out may be sums.
template <class T>
__global__ void scaled_sums_kernel(T* out, const float* sums, const Quantization* row_quantizations,
                                   const float* column_scales, const T* bias, std::int64_t rows,
                                   std::int64_t C) {
  constexpr int N = kRowVector<T>;
  for_each_block_row(rows, [&](std::int64_t row) {
    const float row_scale = row_quantizations == nullptr ? 1.0f : row_quantizations[row].scale;
    for_each_row_vector<N>(C, [&](std::int64_t c) {
      Floats<N> addend;
      if (bias != nullptr) addend = load_floats<N>(bias + c);
      store_floats(out + row * C + c, dequantize_sums(load_floats<N>(sums + row * C + c), row_scale,
                                                      load_floats<N>(column_scales + c), addend));
    });
  });
}

template <class T>
void scaled_sums(Tensor<T, 2> out, In<float, 2> sums, In<Quantization, 1> row_quantizations,
                 In<float, 1> column_scales, In<T, 1> bias, Stream& stream) {
  const ProfileScope scope("scaled sums", stream, memory_traffic(out, sums));
  const std::int64_t rows = out.shape[0], C = out.shape[1];
  require_vector_rows("scaled_sums", C);
  check_shape("sums", sums, {rows, C});
  if (row_quantizations.data != nullptr) {
    check_shape("row_quantizations", row_quantizations, {rows});
  }
  check_shape("column_scales", column_scales, {C});
  if (bias.data != nullptr) check_shape("bias", bias, {C});
  launch(scaled_sums_kernel<T>, Grid{ceil_div(rows, kRowsPerBlock), 1, 1}, row_block_threads<T>(C),
         0, stream, out.data, sums.data, row_quantizations.data, column_scales.data, bias.data,
         rows, C);
}

template <class T>
__global__ void clip_gradient_kernel(T* d_x, const T* x, const Quantization* quantizations,
                                     std::int64_t rows, std::int64_t C) {
  constexpr int N = kRowVector<T>;
  for_each_block_row(rows, [&](std::int64_t row) {
    const CodeRounding rounding(quantizations[row]);
    for_each_row_vector<N>(C, [&](std::int64_t c) {
      const Vec<T, N> values = load_vec<N>(x + row * C + c);
      Vec<T, N> d = load_vec<N>(d_x + row * C + c);
      for (int k = 0; k < N; ++k) {
        if (!rounding.holds(to_float(values[k]))) d[k] = from_float<T>(0.0f);
      }
      store_vec(d_x + row * C + c, d);
    });
  });
}

template <class T>
void clip_gradient(Tensor<T, 2> d_x, In<T, 2> x, In<Quantization, 1> quantizations,
                   Stream& stream) {
  const ProfileScope scope("clip gradient", stream, memory_traffic(d_x, d_x, x));
  const std::int64_t rows = d_x.shape[0], C = d_x.shape[1];
  require_vector_rows("clip_gradient", C);
  check_shape("x", x, {rows, C});
  check_shape("quantizations", quantizations, {rows});
  if (rows == 0) return;
  launch(clip_gradient_kernel<T>, Grid{ceil_div(rows, kRowsPerBlock), 1, 1},
         row_block_threads<T>(C), 0, stream, d_x.data, x.data, quantizations.data, rows, C);
}

LLMC_INSTANTIATE(column_magnitudes)
LLMC_INSTANTIATE(row_scales)
LLMC_INSTANTIATE(fake_quantize_weight)
LLMC_INSTANTIATE(row_ranges)
LLMC_INSTANTIATE(fake_quantize_rows)
LLMC_INSTANTIATE(scaled_sums)
LLMC_INSTANTIATE(clip_gradient)

}  // namespace llmc
