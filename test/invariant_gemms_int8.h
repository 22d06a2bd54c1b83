// Products of inference with INT8 weights for tests: problems, their results from the definition of
// the quantizer, and checks of anything that computes them, as `launch_call(call, stream)`.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "llmc/ops/gemm/invariant_gemm.h"
#include "llmc/ops/gemm/quantize_weight.h"
#include "llmc/ops/layernorm.h"
#include "test/invariant_gemms.h"

namespace llmc_test::invariant_gemms {

using llmc::OutputAxis, llmc::Quantization, llmc::RowQuantizer;

// A problem with a quantized weight. The product reads codes in `Layout`.
template <class T, class Layout>
struct CodeProblem : Problem<T> {
  CodeProblem(std::int64_t M, std::int64_t N, std::int64_t K, RowEpilogue epilogue, bool norm,
              const RowQuantizer& quantizer)
      : Problem<T>(M, N, K, epilogue, norm), quantizer(quantizer) {
    const bool logits = epilogue == RowEpilogue::logits;
    axis = logits ? OutputAxis::rows : OutputAxis::columns;
    std::vector<float> weight;
    for (const T w : this->weight) weight.push_back(to_float(w));
    quantized =
        llmc::quantize_weight(weight.data(), logits ? N : K, logits ? K : N, axis, "weight");
    const std::int64_t padded = llmc::CodeMatrix::padded_columns(N);
    codes.resize(static_cast<std::size_t>(llmc::code_bytes(K, N)));
    sums.resize(static_cast<std::size_t>(padded));
    llmc::pack_codes<Layout>(codes.data(), sums.data(), quantized.codes.data(), logits ? N : K,
                             logits ? K : N, axis);
    scales = quantized.scales;
    scales.resize(static_cast<std::size_t>(padded));
  }

  int weight_code(std::int64_t k, std::int64_t n) const {
    return quantized
        .codes[static_cast<std::size_t>(this->is_logits() ? n * this->K + k : k * this->N + n)];
  }

  // The rows as the product reads them, normalised by the LayerNorm of training.
  std::vector<T> read_rows() const {
    if (!this->norm) return this->inp;
    Stream stream;
    const auto inp = upload(this->inp, stream), gain = upload(this->gain, stream),
               shift = upload(this->shift, stream);
    auto out = upload(this->inp, stream);
    auto mean = upload(std::vector<float>(static_cast<std::size_t>(this->M)), stream);
    auto rstd = upload(std::vector<float>(static_cast<std::size_t>(this->M)), stream);
    llmc::layernorm_forward<T>(
        make_tensor(out.data(), this->M, this->K), make_tensor(mean.data(), this->M),
        make_tensor(rstd.data(), this->M), make_tensor(inp.data(), this->M, this->K),
        make_tensor(gain.data(), this->K), make_tensor(shift.data(), this->K), 1e-5f, stream);
    return download(out, stream);
  }

  Quantization row_quantization(const T* x) const {
    llmc::ValueRange range;
    for (std::int64_t k = 0; k < this->K; ++k)
      range = range.merged({to_float(x[k]), to_float(x[k])});
    return quantizer.is_fixed ? quantizer.fixed
                              : llmc::activation_quantization(range, quantizer.zero_points);
  }

  // The results before GELU, whose rounding is not defined, from exact sums of codes.
  std::vector<float> exact_results() const {
    std::vector<float> results;
    const std::vector<T> rows = read_rows();
    for (std::int64_t r = 0; r < this->M; ++r) {
      const T* const x = rows.data() + r * this->K;
      const Quantization q = row_quantization(x);
      const llmc::CodeRounding rounding(q);
      for (std::int64_t n = 0; n < this->N; ++n) {
        std::int64_t sum = 0;
        for (std::int64_t k = 0; k < this->K; ++k)
          sum += (rounding.code(to_float(x[k])) - q.zero) * weight_code(k, n);
        const float scale = q.scale * scales[static_cast<std::size_t>(n)];
        float result = std::fma(static_cast<float>(sum), scale, to_float(this->bias[n]));
        if (this->epilogue == RowEpilogue::add)
          result = to_float(this->residual[r * this->N + n]) + result;
        results.push_back(result);
      }
    }
    return results;
  }

  // The results of rows that are not quantized, in fp64.
  std::vector<double> float_results() const {
    std::vector<double> results;
    for (std::int64_t r = 0; r < this->M; ++r) {
      const std::vector<double> x = this->row(r);
      for (std::int64_t n = 0; n < this->N; ++n) {
        double sum = 0;
        for (std::int64_t k = 0; k < this->K; ++k) sum += x[k] * weight_code(k, n);
        sum *= scales[static_cast<std::size_t>(n)];
        if (!this->is_logits()) sum += as_double(this->bias[n]);
        if (this->epilogue == RowEpilogue::add) sum += as_double(this->residual[r * this->N + n]);
        results.push_back(sum);
      }
    }
    return results;
  }

  // Runs rows [first, first + count) with the codes.
  template <class TO, class Launch>
  std::vector<TO> run(std::int64_t first, std::int64_t count, Launch launch_call) const {
    Stream stream;
    const auto code_memory = upload(codes, stream);
    const auto scale_memory = upload(scales, stream);
    const auto sum_memory = upload(sums, stream);
    return run_rows<TO>(*this, first, count, [&](auto call, Stream& own) {
      call.weight = nullptr;
      call.codes = {code_memory.data(), scale_memory.data(), sum_memory.data(), this->K, this->N};
      call.quantizer = quantizer;
      launch_call(call, own);
    });
  }

  RowQuantizer quantizer;
  OutputAxis axis;
  llmc::WeightCodes quantized;
  std::vector<std::int8_t> codes;
  std::vector<std::int32_t> sums;
  std::vector<float> scales;
};

inline constexpr RowQuantizer kFloatRows{};
inline constexpr RowQuantizer kZeroPoints{.enabled = true};
inline constexpr RowQuantizer kSymmetric{.enabled = true, .zero_points = false};
inline constexpr RowQuantizer kFixed{
    .enabled = true, .zero_points = true, .is_fixed = true, .fixed = {0.02f, 5}};

// Whether the results of quantized rows have the bits of the definition. Rows are normalised only
// where training's LayerNorm has the order of sums of these products: in blocks of one thread.
template <class T, class Layout, class Launch>
void check_exact(std::int64_t M, std::int64_t N, std::int64_t K, RowEpilogue epilogue, bool norm,
                 const RowQuantizer& quantizer, Launch launch_call) {
  CAPTURE(M);
  CAPTURE(N);
  CAPTURE(K);
  CAPTURE(norm);
  CAPTURE(quantizer.zero_points);
  CAPTURE(quantizer.is_fixed);
  const CodeProblem<T, Layout> p(M, N, K, epilogue, norm && llmc::kOneThreadBlocks, quantizer);
  CHECK(same_bits(p.template run<T>(0, M, launch_call), convert<T>(p.exact_results())));
}

// The results of rows that are not quantized.
template <class TO, class T, class Layout, class Launch>
void check_float_rows(std::int64_t M, std::int64_t N, std::int64_t K, RowEpilogue epilogue,
                      bool norm, Launch launch_call) {
  CAPTURE(M);
  CAPTURE(N);
  CAPTURE(K);
  const CodeProblem<T, Layout> p(M, N, K, epilogue, norm, kFloatRows);
  const double allowed = 2 * tolerance<TO>(K) + (norm ? 2 * kRounding<T> : 0);
  CHECK(relative_l2(p.template run<TO>(0, M, launch_call), p.float_results()) <= allowed);
}

// Whether rows have the same bits in the whole problem and in parts of it.
template <class TO, class T, class Layout, class Launch>
void check_independent_rows(const CodeProblem<T, Layout>& p, Launch launch_call,
                            std::initializer_list<std::int64_t> counts) {
  const auto all = p.template run<TO>(0, p.M, launch_call);
  for (const std::int64_t count : counts) {
    for (const std::int64_t first : {std::int64_t{0}, (p.M - count) / 2, p.M - count}) {
      CAPTURE(count);
      CAPTURE(first);
      CHECK(same_bits(
          p.template run<TO>(first, count, launch_call),
          std::vector<TO>(all.begin() + first * p.N, all.begin() + (first + count) * p.N)));
    }
  }
}

}  // namespace llmc_test::invariant_gemms
