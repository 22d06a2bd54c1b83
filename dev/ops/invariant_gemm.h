// The products of inference: with generated rows, for which reading the weights takes the time, and
// with those of a prompt. `used` is what the target runs, `kernel` the kernel of GPUs.
#pragma once

#include <string>
#include <vector>

#include "dev/harness/op_case.h"
#include "llmc/ops/gemm/invariant_gemm.h"
#include "llmc/ops/gemm/invariant_gemm_checks.h"
#include "llmc/ops/gemm/invariant_gemm_kernels.h"
#include "llmc/ops/quantize.h"
#include "test/oracle/ops.h"

namespace llmc_dev::invariant_gemm {

using llmc::InvariantGemm;
using llmc::RowEpilogue;
using llmc::RowKind;
using llmc::Tensor;

struct Shape {
  std::int64_t M, K, N;
};

inline std::vector<double> transposed(const std::vector<double>& w, std::int64_t N,
                                      std::int64_t K) {
  std::vector<double> out(w.size());
  for (std::int64_t n = 0; n < N; ++n) {
    for (std::int64_t k = 0; k < K; ++k) out[k * N + n] = w[n * K + k];
  }
  return out;
}

// out (M, N), of type TO, = inp · weight; the logits have weight (N, K), other products (K, N).
template <class T, class TO>
void product(OpRunner& runner, RowKind kind, Shape s, bool logits) {
  const auto numbers = static_cast<double>(s.M * s.K + s.K * s.N);
  const std::string name = kind == RowKind::prompt ? "invariant_gemm_prompt" : "invariant_gemm";
  OpCase c(runner, {.op = name + (logits ? "_logits" : ""),
                    .shape = by(s.M, s.K) + "x" + std::to_string(s.N),
                    .dtype = kDtypeOf<T>,
                    .variants = {"used", "kernel"},
                    .bytes = numbers * sizeof(T) + static_cast<double>(s.M * s.N) * sizeof(TO),
                    .flops = 2.0 * static_cast<double>(s.M) * static_cast<double>(s.K * s.N)});
  if (!c.is_selected()) return;
  auto& inp = c.input<T>(s.M * s.K, normal(1, 1));
  auto& weight = c.input<T>(s.K * s.N, normal(2, 0.05));
  auto& out = c.output<TO>(s.M * s.N);
  const auto at = [&](int i) {
    InvariantGemm<T> product;
    product.kind = kind;
    product.inp = make_tensor(static_cast<const T*>(inp.at(i)), s.M, s.K);
    product.weight = logits ? make_tensor(static_cast<const T*>(weight.at(i)), s.N, s.K)
                            : make_tensor(static_cast<const T*>(weight.at(i)), s.K, s.N);
    return product;
  };
  c.variant("used", [&](int i) {
    const Tensor<TO, 2> result = make_tensor(out.at(i), s.M, s.N);
    if constexpr (std::is_same_v<TO, float>) {
      if (logits) return llmc::invariant_gemm_logits<T>(result, at(i), runner.stream());
    }
    if constexpr (std::is_same_v<TO, T>) llmc::invariant_gemm<T>(result, at(i), runner.stream());
  });
  c.variant("kernel", [&](int i) {
    auto call = llmc::detail::invariant_gemm_call<TO, T>(
        logits ? RowEpilogue::logits : RowEpilogue::store, at(i), s.M, s.N);
    call.out = out.at(i);
    call.out_stride = s.N;
    llmc::launch_invariant_gemm(call, runner.stream());
  });
  c.finish([&] {
    const std::vector<double> w = logits ? transposed(weight.values(), s.N, s.K) : weight.values();
    const auto expected = llmc::oracle::linear_forward(
        inp.values(), w, std::vector<double>(static_cast<std::size_t>(s.N)), s.M, s.K, s.N);
    return std::vector{compare("out", out.values(), expected, tolerance<TO>(s.K))};
  });
}

// The codes and scales of a product into an INT8 cache: M rows of NH heads, one sequence per row.
struct HeadShape {
  std::int64_t M, K, NH, HS;
};
template <class T>
void qkv_codes(OpRunner& runner, RowKind kind, HeadShape s) {
  const std::int64_t C = s.NH * s.HS;
  const double numbers = static_cast<double>(s.M * s.K + s.K * 3 * C);
  const std::string name = kind == RowKind::prompt ? "invariant_gemm_prompt" : "invariant_gemm";
  OpCase c(runner, {.op = name + "_qkv_int8",
                    .shape = by(s.M, s.K) + "x3x" + by(s.NH, s.HS),
                    .dtype = kDtypeOf<T>,
                    .variants = {"used", "kernel"},
                    .bytes = numbers * sizeof(T) + static_cast<double>(s.M * C) * (sizeof(T) + 2) +
                             static_cast<double>(s.M * s.NH) * 2 * sizeof(float),
                    .flops = 6.0 * static_cast<double>(s.M * s.K) * static_cast<double>(C)});
  if (!c.is_selected()) return;
  auto& inp = c.input<T>(s.M * s.K, normal(1, 1));
  auto& weight = c.input<T>(s.K * 3 * C, normal(2, 0.05));
  auto& q = c.output<T>(s.M * C);
  auto& keys = c.output<std::int8_t>(s.M * C, indices(3, 256));
  auto& values = c.output<std::int8_t>(s.M * C, indices(4, 256));
  auto& key_scales = c.output<float>(s.M * s.NH);
  auto& value_scales = c.output<float>(s.M * s.NH);
  const Buffer<float> sums(llmc::qkv_scratch(s.M, C));
  const Buffer<std::int32_t> counters(llmc::qkv_counters(s.M, s.NH)), position(s.M);
  llmc::fill_zero(counters.data(), counters.size(), runner.stream());
  llmc::fill_zero(position.data(), s.M, runner.stream());
  const auto call_of = [&](int i) {
    InvariantGemm<T> product;
    product.inp = make_tensor(static_cast<const T*>(inp.at(i)), s.M, s.K);
    product.weight = make_tensor(static_cast<const T*>(weight.at(i)), s.K, 3 * C);
    product.kind = kind;
    auto call =
        llmc::detail::invariant_gemm_call<T, std::int8_t>(RowEpilogue::qkv, product, s.M, 3 * C);
    call.out = q.at(i);
    call.out_stride = C;
    call.keys = keys.at(i);
    call.values = values.at(i);
    call.T_max = 1;
    call.position = position.data();
    call.key_scales = key_scales.at(i);
    call.value_scales = value_scales.at(i);
    call.NH = s.NH;
    call.head_sums = sums.data();
    call.head_counters = counters.data();
    return call;
  };
  c.variant("used", [&](int i) { llmc::run_invariant_gemm(call_of(i), runner.stream()); });
  c.variant("kernel", [&](int i) { llmc::launch_invariant_gemm(call_of(i), runner.stream()); });
  c.finish([&] {
    const auto expected = llmc::oracle::linear_forward(
        inp.values(), weight.values(), std::vector<double>(static_cast<std::size_t>(3 * C)), s.M,
        s.K, 3 * C);
    std::vector<Comparison> all;
    const auto check = [&](const std::string& part, std::int64_t first, const auto& codes,
                           const std::vector<double>& scales) {
      std::vector<double> numbers = codes.values(), exact;
      for (std::size_t i = 0; i < numbers.size(); ++i)
        numbers[i] *= scales[i / static_cast<std::size_t>(s.HS)];
      for (std::int64_t r = 0; r < s.M; ++r) {
        const auto row = expected.begin() + r * 3 * C + first;
        exact.insert(exact.end(), row, row + C);
      }
      // Codes err by up to half a scale, and a scale is the largest number of a head over 127. The
      // largest of up to 128 normal numbers is rarely above 4.5 standard deviations.
      all.push_back(compare(part, numbers, exact, 4.5 / 127 / std::sqrt(12.0) + tolerance<T>(s.K)));
    };
    check("keys", C, keys, key_scales.values());
    check("values", 2 * C, values, value_scales.values());
    return all;
  });
}

// The gpt2 shapes are the products of the 124M model.
template <class T>
void cases_of(OpRunner& runner) {
  Shapes<Shape> generated = {.tiny = {{3, 24, 40}, {19, 136, 48}},
                             .small = {{1, 256, 768}, {8, 256, 768}, {64, 256, 768}},
                             .gpt2 = {}};
  Shapes<Shape> generated_logits = {.tiny = {{2, 24, 257}}, .small = {{2, 256, 4097}}, .gpt2 = {}};
  for (const std::int64_t M : {1, 8, 64}) {
    for (const Shape s : {Shape{M, 768, 2304}, {M, 768, 768}, {M, 768, 3072}, {M, 3072, 768}})
      generated.gpt2.push_back(s);
    generated_logits.gpt2.push_back({M, 768, 50257});
  }
  // N = 2048 and more have wide tiles in half precision.
  const Shapes<Shape> prompt = {
      .tiny = {{19, 136, 48}, {2, 24, 2056}},
      .small = {{64, 256, 768}},
      .gpt2 = {{512, 768, 2304}, {512, 768, 768}, {512, 768, 3072}, {512, 3072, 768}}};
  const Shapes<Shape> prompt_logits = {
      .tiny = {{2, 24, 57}}, .small = {{2, 256, 4097}}, .gpt2 = {{8, 768, 50257}}};
  const auto run = [&](const Shapes<Shape>& shapes, RowKind kind) {
    for (const Shape s : runner.select(shapes)) product<T, T>(runner, kind, s, false);
  };
  const auto run_logits = [&](const Shapes<Shape>& shapes, RowKind kind) {
    for (const Shape s : runner.select(shapes)) product<T, float>(runner, kind, s, true);
  };
  run(generated, RowKind::generated);
  run_logits(generated_logits, RowKind::generated);
  run(prompt, RowKind::prompt);
  run_logits(prompt_logits, RowKind::prompt);
  // The last tiny shape has wide tiles.
  const Shapes<HeadShape> heads = {.tiny = {{3, 24, 3, 8}, {9, 40, 2, 24}, {2, 24, 11, 64}},
                                   .small = {{1, 256, 4, 64}, {40, 256, 3, 80}},
                                   .gpt2 = {{1, 768, 12, 64}, {64, 768, 12, 64}}};
  for (const HeadShape s : runner.select(heads)) {
    qkv_codes<T>(runner, RowKind::generated, s);
    qkv_codes<T>(runner, RowKind::prompt, s);
  }
}

inline void cases(OpRunner& runner) {
  cases_of<float>(runner);
  cases_of<bf16>(runner);
  cases_of<fp16>(runner);
}

}  // namespace llmc_dev::invariant_gemm
