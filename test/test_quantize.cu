// The quantizer against its definition in plain fp64 arithmetic, for the rows that break
// quantizers.
#include <doctest/doctest.h>

#include <cfenv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "llmc/device/device.h"
#include "llmc/ops/quantize.h"
#include "test/support.h"

using namespace llmc;
using llmc_test::download;
using llmc_test::upload;

// Has a name because DEVICE=ptx finds kernels by theirs.
namespace quantize_kernels {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Definition {
  float scale;
  int zero;

  // The code of x: the exact x / scale + zero, rounded to the nearest integer, ties to even.
  int code(float x) const {
    const double inverse = 1.0f / scale;  // rounded to fp32
    // Exact in extended precision: 24 by 24 bits, and an offset of 8 bits.
    const long double exact = static_cast<long double>(x) * inverse + zero;
    const long double rounded = std::nearbyint(exact);
    return static_cast<int>(rounded < -128 ? -128 : rounded > 127 ? 127 : rounded);
  }
};

float at_least_normal(float scale) {
  return scale < FLT_MIN ? FLT_MIN : scale;
}

Definition defined(const std::vector<float>& row, bool asymmetric) {
  float min = 0, max = 0;
  for (const float x : row) {
    min = std::fmin(min, x);
    max = std::fmax(max, x);
  }
  if (!asymmetric) return {at_least_normal(std::fmax(max, -min) / 127.0f), 0};
  Definition d{at_least_normal(max / 255.0f - min / 255.0f), -128};
  d.zero = d.code(-min);
  return d;
}

// The quantization of a row and its codes: `codes` were rounded in vectors of 8 numbers, `single`
// one by one.
struct QuantizedRow {
  Quantization quantization;
  std::vector<std::int8_t> codes, single;
};

template <class = void>
__global__ void quantize_row_kernel(Quantization* quantization, std::int8_t* codes,
                                    std::int8_t* single, const float* row, std::int64_t n,
                                    bool asymmetric) {
  if (global_thread() > 0) return;
  RangeOfVectors<8> range;
  for (std::int64_t i = 0; i < n; i += 8) range.add(load_floats<8>(row + i));
  *quantization = activation_quantization(range.range(), asymmetric);
  const CodeRounding rounding(*quantization);
  for (std::int64_t i = 0; i < n; i += 8)
    store_vec(codes + i, rounding.codes(load_floats<8>(row + i)));
  for (std::int64_t i = 0; i < n; ++i) single[i] = rounding.code(row[i]);
}

QuantizedRow quantized(const std::vector<float>& row, bool asymmetric) {
  Stream stream;
  const auto n = static_cast<std::int64_t>(row.size());
  const auto in = upload(row, stream);
  Buffer<Quantization> quantization(1);
  Buffer<std::int8_t> codes(n), single(n);
  launch(quantize_row_kernel<>, {1}, 32, 0, stream, quantization.data(), codes.data(),
         single.data(), in.data(), n, asymmetric);
  return {download(quantization, stream)[0], download(codes, stream), download(single, stream)};
}

std::vector<std::vector<float>> rows() {
  std::vector<std::vector<float>> rows;
  const auto add = [&](std::size_t n, const auto& value) {
    rows.emplace_back(n);
    for (std::size_t i = 0; i < n; ++i) rows.back()[i] = value(static_cast<int>(i));
  };
  const std::vector<float> random = llmc_test::random_floats(3 * 768, 7, 2.0);
  for (int r = 0; r < 3; ++r)
    add(768, [&](int i) { return random[static_cast<std::size_t>(r * 768 + i)]; });
  add(16, [](int) { return 5.0f; });
  add(16, [](int) { return -5.0f; });
  add(16, [](int) { return 0.0f; });
  add(16, [](int) { return -0.0f; });
  add(64, [](int i) { return 0.25f * static_cast<float>(i) + 3; });
  add(64, [](int i) { return -0.17f - static_cast<float>(i) / 7; });
  add(64, [](int i) { return (i % 2 ? 1 : -1) * 3.4e38f * (static_cast<float>(i) / 64); });
  add(64, [](int i) { return (i - 20) * 1e-40f; });
  add(64, [](int i) { return (i - 20) * 1e-44f; });
  add(64, [](int i) { return static_cast<float>(i) * FLT_MIN; });
  add(256, [](int i) { return (static_cast<float>(i) - 127.5f) / 2; });  // ties
  add(256, [](int i) { return static_cast<float>(i - 127) / 254 + (i == 0 ? -0.2f : 0); });
  add(16, [](int i) { return i == 3 ? 1e30f : 1e-30f; });
  return rows;
}

}  // namespace quantize_kernels

using namespace quantize_kernels;

TEST_SUITE_BEGIN("quantize");

TEST_CASE("codes, scales and zero points match the definition") {
  for (const std::vector<float>& row : rows()) {
    for (const bool asymmetric : {false, true}) {
      const Definition expected = defined(row, asymmetric);
      const auto [q, codes, single] = quantized(row, asymmetric);
      CAPTURE(row[0]);
      CAPTURE(asymmetric);
      CHECK(bits_of(q.scale) == bits_of(expected.scale));
      CHECK(q.zero == expected.zero);
      int differ = 0, lowest = 127, highest = -128;
      float largest_error = 0;
      for (std::size_t i = 0; i < row.size(); ++i) {
        const int code = codes[i];
        differ += code != expected.code(row[i]) || code != single[i];
        lowest = std::min(lowest, code);
        highest = std::max(highest, code);
        largest_error =
            std::fmax(largest_error, std::fabs(dequantize(codes[i], q) - row[i]) / q.scale);
      }
      CHECK(differ == 0);
      if (!asymmetric) CHECK(lowest >= -127);
      // Half a step, and another half at an end of the range, because the zero point is rounded.
      CHECK(largest_error <= (asymmetric ? 1.0001f : 0.5001f));
    }
  }
}

TEST_CASE("zero has an exact code") {
  for (const std::vector<float>& row : rows()) {
    for (const bool asymmetric : {false, true}) {
      const Quantization q = quantized(row, asymmetric).quantization;
      CHECK(CodeRounding(q).code(0) == q.zero);
    }
  }
}

TEST_CASE("a range that is not finite has the scale NaN") {
  for (const float bad : {kInfinity, -kInfinity, std::nanf(""), -std::nanf("")}) {
    for (const std::size_t place : {0u, 5u, 15u}) {
      std::vector<float> row(16, 1.0f);
      row[place] = bad;
      for (const bool asymmetric : {false, true}) {
        const Quantization q = quantized(row, asymmetric).quantization;
        CHECK(std::isnan(q.scale));
        CHECK_FALSE(q.finite());
        CHECK(q.zero == 0);
      }
    }
  }
}

TEST_CASE("a fixed range clamps the numbers outside") {
  const CodeRounding rounding({0.5f, 3});
  CHECK(rounding.code(1e30f) == 127);
  CHECK(rounding.code(-1e30f) == -128);
  CHECK(rounding.code(kInfinity) == 127);
  CHECK(rounding.code(-kInfinity) == -128);
  CHECK(rounding.code(62.0f) == 127);
  CHECK(rounding.code(61.4f) == 126);
}

TEST_SUITE_END();
