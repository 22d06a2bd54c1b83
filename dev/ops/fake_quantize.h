// Fake quantization: scales of weights, codes of weights and rows, results from sums, and the
// gradient's clipping. Every result has the bits of the scalar definition in llmc/ops/quantize.h.
#pragma once

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "dev/harness/op_case.h"
#include "llmc/ops/fake_quantize.h"

namespace llmc_dev::fake_quantize {

using llmc::CodeRounding;
using llmc::from_float;
using llmc::Quantization;
using llmc::Quantized;
using llmc::ScaleAxis;
using llmc::to_float;
using llmc::ValueRange;

struct Shape {
  std::int64_t rows, C;
  bool fp16 = true;
};

// Rows that are compared with the definition.
constexpr std::int64_t kSampledRows = 64;

// The sign of zero is not compared: code 0 may stand for both.
inline Comparison exact(const std::string& name, const std::vector<double>& actual,
                        const std::vector<double>& expected) {
  return compare(name, actual, expected, 0);
}

inline ValueRange range_of(const std::vector<double>& values) {
  ValueRange range;
  for (const double value : values) {
    const auto x = static_cast<float>(value);
    range = range.merged({x, x});
  }
  return range;
}

template <class T>
double rounded(float x) {
  return static_cast<double>(to_float(from_float<T>(x)));
}

template <class T>
double quantized(double x, const Quantization& q, Quantized result) {
  const int difference = CodeRounding(q).code(static_cast<float>(x)) - q.zero;
  const auto code = static_cast<float>(difference);
  return rounded<T>(result == Quantized::codes ? code : q.scale * code);
}

inline const char* text_of(Quantized result) {
  return result == Quantized::codes ? " codes" : " values";
}

// Device memory of n quantizations, two numbers each.
inline Quantization* quantizations_at(const DeviceArray<std::int32_t>& array, int set) {
  return reinterpret_cast<Quantization*>(array.at(set));
}

inline std::vector<double> flat(const Quantization& q) {
  return {static_cast<double>(q.scale), static_cast<double>(q.zero)};
}

template <class T>
void column_scales(OpRunner& runner, Shape s) {
  OpCase c(runner, {.op = "column_scales",
                    .shape = by(s.rows, s.C),
                    .dtype = kDtypeOf<T>,
                    .bytes = sizeof(T) * static_cast<double>(s.rows * s.C)});
  if (!c.is_selected()) return;
  const std::int64_t parts = llmc::magnitude_parts(s.rows);
  auto& weight = c.input<T>(s.rows * s.C, normal(1));
  auto& magnitudes = c.output<float>(parts * s.C);
  auto& scales = c.output<float>(s.C);
  c.variant("used", [&](int i) {
    const auto partial = make_tensor(magnitudes.at(i), parts, s.C);
    llmc::column_magnitudes<T>(partial, make_tensor(weight.at(i), s.rows, s.C), runner.stream());
    llmc::scales_from_magnitudes(make_tensor(scales.at(i), s.C), partial, runner.stream());
  });
  const auto columns = sample(s.C, kSampledRows);
  const std::vector<double> values = weight.columns(columns, s.C);  // (rows, columns)
  std::vector<double> expected;
  for (std::size_t j = 0; j < columns.size(); ++j) {
    std::vector<double> column;
    for (std::size_t i = j; i < values.size(); i += columns.size()) column.push_back(values[i]);
    expected.push_back(static_cast<double>(llmc::symmetric_quantization(range_of(column)).scale));
  }
  c.finish([&] { return std::vector{exact("scales", scales.columns(columns, s.C), expected)}; });
}

template <class T>
void row_scales(OpRunner& runner, Shape s) {
  OpCase c(runner, {.op = "row_scales",
                    .shape = by(s.rows, s.C),
                    .dtype = kDtypeOf<T>,
                    .bytes = sizeof(T) * static_cast<double>(s.rows * s.C)});
  if (!c.is_selected()) return;
  auto& weight = c.input<T>(s.rows * s.C, normal(1));
  auto& scales = c.output<float>(s.rows);
  c.variant("used", [&](int i) {
    llmc::row_scales<T>(make_tensor(scales.at(i), s.rows), make_tensor(weight.at(i), s.rows, s.C),
                        runner.stream());
  });
  const auto rows = sample(s.rows, kSampledRows);
  std::vector<double> expected;
  for (const std::int64_t r : rows) {
    const ValueRange range = range_of(weight.values(r * s.C, s.C));
    expected.push_back(static_cast<double>(llmc::symmetric_quantization(range).scale));
  }
  c.finish([&] { return std::vector{exact("scales", scales.rows(rows, 1), expected)}; });
}

template <class T>
void weight(OpRunner& runner, Shape s, ScaleAxis axis, Quantized result) {
  const bool per_row = axis == ScaleAxis::rows;
  OpCase c(runner, {.op = std::string("fake_quantize_weight") + (per_row ? " rows" : " columns") +
                          text_of(result),
                    .shape = by(s.rows, s.C),
                    .dtype = kDtypeOf<T>,
                    .bytes = 2.0 * sizeof(T) * static_cast<double>(s.rows * s.C)});
  if (!c.is_selected()) return;
  const std::int64_t num_scales = per_row ? s.rows : s.C;
  auto& weight = c.input<T>(s.rows * s.C, normal(1));
  auto& scales = c.input<float>(num_scales, positive(2, 0.02f));  // some codes are clamped
  auto& out = c.output<T>(s.rows * s.C);
  c.variant("used", [&](int i) {
    llmc::fake_quantize_weight<T>(
        make_tensor(out.at(i), s.rows, s.C), make_tensor(weight.at(i), s.rows, s.C),
        make_tensor(scales.at(i), num_scales), axis, result, runner.stream());
  });
  const auto rows = sample(s.rows, kSampledRows);
  const auto scale_values = scales.values();
  std::vector<double> expected;
  for (const std::int64_t r : rows) {
    const auto values = weight.values(r * s.C, s.C);
    for (std::int64_t k = 0; k < s.C; ++k) {
      const Quantization q{static_cast<float>(scale_values[per_row ? r : k]), 0};
      expected.push_back(quantized<T>(values[k], q, result));
    }
  }
  c.finish([&] { return std::vector{exact("out", out.rows(rows, s.C), expected)}; });
}

template <class T>
void rows(OpRunner& runner, Shape s, bool zero_points, Quantized result) {
  OpCase c(runner, {.op = std::string("fake_quantize_rows") + (zero_points ? " zero points" : "") +
                          text_of(result),
                    .shape = by(s.rows, s.C),
                    .dtype = kDtypeOf<T>,
                    .variants = {"used", "from ranges"},
                    .bytes = 2.0 * sizeof(T) * static_cast<double>(s.rows * s.C)});
  if (!c.is_selected()) return;
  constexpr std::int64_t kParts = 2;  // of equal ranges: their union is that of the row
  auto& x = c.input<T>(s.rows * s.C, normal(1, 2, 1));
  auto& ranges = c.input<float>(kParts * s.rows * 2, kComputed);
  auto& out = c.output<T>(s.rows * s.C);
  auto& quantizations = c.output<std::int32_t>(2 * s.rows, indices(3, 1));
  const auto run = [&](int i, llmc::Tensor<float, 3> merged) {
    llmc::fake_quantize_rows<T>(make_tensor(out.at(i), s.rows, s.C),
                                make_tensor(quantizations_at(quantizations, i), s.rows),
                                make_tensor(x.at(i), s.rows, s.C), merged, zero_points, result,
                                runner.stream());
  };
  c.variant("used", [&](int i) { run(i, {}); });
  c.variant("from ranges", [&](int i) {
    for (std::int64_t p = 0; p < kParts; ++p) {
      llmc::row_ranges<T>(make_tensor(ranges.at(i) + p * s.rows * 2, s.rows, 2),
                          make_tensor(x.at(i), s.rows, s.C), runner.stream());
    }
    run(i, make_tensor(ranges.at(i), kParts, s.rows, 2));
  });
  const auto which = sample(s.rows, kSampledRows);
  std::vector<double> expected, expected_quantizations;
  for (const std::int64_t r : which) {
    const auto values = x.values(r * s.C, s.C);
    const Quantization q = llmc::activation_quantization(range_of(values), zero_points);
    for (const double value : values) expected.push_back(quantized<T>(value, q, result));
    for (const double number : flat(q)) expected_quantizations.push_back(number);
  }
  c.finish([&] {
    std::vector<double> actual;
    for (const std::int64_t r : which) {
      const std::vector<std::int32_t> stored = quantizations.stored(2 * r, 2);
      Quantization q;
      std::memcpy(static_cast<void*>(&q), stored.data(), sizeof q);
      for (const double number : flat(q)) actual.push_back(number);
    }
    return std::vector{exact("out", out.rows(which, s.C), expected),
                       exact("quantizations", actual, expected_quantizations)};
  });
}

// Quantizations of rows with a zero point and a range that clamps some numbers.
inline std::vector<std::int32_t> narrow_quantizations(std::int64_t rows) {
  std::vector<std::int32_t> all(static_cast<std::size_t>(2 * rows));
  for (std::int64_t r = 0; r < rows; ++r) {
    const Quantization q{0.01f * static_cast<float>(r % 5 + 1), static_cast<int>(r % 100) - 50};
    std::memcpy(all.data() + 2 * r, static_cast<const void*>(&q), sizeof q);
  }
  return all;
}

template <class T>
void sums(OpRunner& runner, Shape s, bool with_rows) {
  OpCase c(runner, {.op = std::string("scaled_sums") + (with_rows ? "" : " weights only"),
                    .shape = by(s.rows, s.C),
                    .dtype = kDtypeOf<T>,
                    .bytes = (sizeof(T) + sizeof(float)) * static_cast<double>(s.rows * s.C)});
  if (!c.is_selected()) return;
  auto& sums = c.input<float>(s.rows * s.C, normal(1, 1000));
  auto& scales = c.input<float>(s.C, positive(2, 0.02f));
  auto& bias = c.input<T>(s.C, normal(3));
  auto& out = c.output<T>(s.rows * s.C);
  const DeviceArray<std::int32_t> quantizations(narrow_quantizations(s.rows), runner.stream());
  const auto run = [&](T* to, int i) {
    llmc::Tensor<const Quantization, 1> of_rows;
    if (with_rows) of_rows = make_tensor(quantizations_at(quantizations, 0), s.rows);
    llmc::scaled_sums<T>(make_tensor(to, s.rows, s.C), make_tensor(sums.at(i), s.rows, s.C),
                         of_rows, make_tensor(scales.at(i), s.C), make_tensor(bias.at(i), s.C),
                         runner.stream());
  };
  c.variant("used", [&](int i) { run(out.at(i), i); });
  if constexpr (std::is_same_v<T, float>)
    c.in_place("sums", sums, out, [&] { run(sums.data(), 0); });
  const auto rows = sample(s.rows, kSampledRows);
  std::vector<double> expected;
  const auto scale_values = scales.values(), bias_values = bias.values();
  for (const std::int64_t r : rows) {
    const auto values = sums.values(r * s.C, s.C);
    const float row_scale = with_rows ? 0.01f * static_cast<float>(r % 5 + 1) : 1.0f;
    for (std::int64_t k = 0; k < s.C; ++k) {
      const float scale = row_scale * static_cast<float>(scale_values[k]);
      expected.push_back(rounded<T>(
          std::fma(static_cast<float>(values[k]), scale, static_cast<float>(bias_values[k]))));
    }
  }
  c.finish([&] { return std::vector{exact("out", out.rows(rows, s.C), expected)}; });
}

template <class T>
void clip(OpRunner& runner, Shape s) {
  OpCase c(runner, {.op = "clip_gradient",
                    .shape = by(s.rows, s.C),
                    .dtype = kDtypeOf<T>,
                    .bytes = 3.0 * sizeof(T) * static_cast<double>(s.rows * s.C)});
  if (!c.is_selected()) return;
  auto& x = c.input<T>(s.rows * s.C, normal(1));
  auto& d_x = c.output<T>(s.rows * s.C, normal(2));
  const DeviceArray<std::int32_t> quantizations(narrow_quantizations(s.rows), runner.stream());
  c.restore_each_round();
  const auto rows = sample(s.rows, kSampledRows);
  const auto before = d_x.rows(rows, s.C);
  c.variant("used", [&](int i) {
    llmc::clip_gradient<T>(make_tensor(d_x.at(i), s.rows, s.C), make_tensor(x.at(i), s.rows, s.C),
                           make_tensor(quantizations_at(quantizations, 0), s.rows),
                           runner.stream());
  });
  std::vector<double> expected;
  for (const std::int64_t r : rows) {
    const double scale = static_cast<double>(0.01f * static_cast<float>(r % 5 + 1));
    for (const double value : x.values(r * s.C, s.C)) {
      const double code = std::nearbyint(value / scale + static_cast<double>(r % 100 - 50));
      expected.push_back(code < -128 || code > 127 ? 0 : before[expected.size()]);
    }
  }
  c.finish([&] { return std::vector{exact("d_x", d_x.rows(rows, s.C), expected)}; });
}

template <class T>
void all_cases(OpRunner& runner, Shape s) {
  column_scales<T>(runner, s);
  row_scales<T>(runner, s);
  for (const Quantized result : {Quantized::codes, Quantized::values}) {
    weight<T>(runner, s, ScaleAxis::rows, result);
    weight<T>(runner, s, ScaleAxis::columns, result);
    rows<T>(runner, s, false, result);
    rows<T>(runner, s, true, result);
  }
  sums<T>(runner, s, false);
  sums<T>(runner, s, true);
  clip<T>(runner, s);
}

inline void cases(OpRunner& runner) {
  const Shapes<Shape> shapes = {.tiny = {{1, 8}, {3, 40}, {67, 264}},
                                .small = {{130, 768}, {257, 1600}, {9, 6400}},
                                .gpt2 = {{32768, 768}, {8192, 3072, false}, {50304, 768, false}}};
  for (const Shape s : runner.select(shapes)) {
    for_each_dtype(runner, s.fp16, [&]<class T>() { all_cases<T>(runner, s); });
  }
}

}  // namespace llmc_dev::fake_quantize
