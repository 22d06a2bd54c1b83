// The products of inference: with generated rows, for which reading the weights takes the time, and
// with those of a prompt. `used` is what the target runs, `kernel` the kernel of GPUs.
#pragma once

#include <string>
#include <vector>

#include "dev/harness/op_case.h"
#include "llmc/ops/gemm/row_product.h"
#include "llmc/ops/gemm/row_product_kernels.h"
#include "test/oracle/ops.h"

namespace llmc_dev::row_product {

using llmc::RowEpilogue;
using llmc::RowKind;
using llmc::RowProduct;
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
  const std::string name = kind == RowKind::prompt ? "row_product_prompt" : "row_product";
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
    RowProduct<T> product;
    product.kind = kind;
    product.inp = make_tensor(static_cast<const T*>(inp.at(i)), s.M, s.K);
    product.weight = logits ? make_tensor(static_cast<const T*>(weight.at(i)), s.N, s.K)
                            : make_tensor(static_cast<const T*>(weight.at(i)), s.K, s.N);
    return product;
  };
  c.variant("used", [&](int i) {
    const Tensor<TO, 2> result = make_tensor(out.at(i), s.M, s.N);
    if constexpr (std::is_same_v<TO, float>) {
      if (logits) return llmc::row_product_logits<T>(result, at(i), runner.stream());
    }
    if constexpr (std::is_same_v<TO, T>) llmc::row_product<T>(result, at(i), runner.stream());
  });
  c.variant("kernel", [&](int i) {
    auto call = llmc::detail::row_product_call<TO, T>(
        logits ? RowEpilogue::logits : RowEpilogue::store, at(i), s.M, s.N);
    call.out = out.at(i);
    call.out_stride = s.N;
    llmc::launch_row_product(call, runner.stream());
  });
  c.finish([&] {
    const std::vector<double> w = logits ? transposed(weight.values(), s.N, s.K) : weight.values();
    const auto expected = llmc::oracle::linear_forward(
        inp.values(), w, std::vector<double>(static_cast<std::size_t>(s.N)), s.M, s.K, s.N);
    return std::vector{compare("out", out.values(), expected, tolerance<TO>(s.K))};
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
}

inline void cases(OpRunner& runner) {
  cases_of<float>(runner);
  cases_of<bf16>(runner);
  cases_of<fp16>(runner);
}

}  // namespace llmc_dev::row_product
