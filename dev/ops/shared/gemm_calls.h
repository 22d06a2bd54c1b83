// Single products with each option of a GemmCall: transpositions, bias, accumulation, an addend,
// GELU and its gradient as epilogues. The model uses only some of the combinations, so the products
// are checked and not timed.
#pragma once

#include "dev/ops/shared/gemm_case.h"
#include "dev/variants/gemm_plans.h"

namespace llmc_dev::matmul {

using llmc::Epilogue;
using llmc::GemmCall;
using llmc::Transpose;

// Terms added to the sums of a product, and the operation applied to the result.
struct CallOptions {
  const char* op;
  bool with_bias = false;
  float beta = 0;
  bool with_addend = false;  // beta multiplies another array than the result
  Epilogue epilogue = Epilogue::none;

  bool accumulates() const { return beta != 0 && !with_addend; }
};

// Element i of `all` += factor * added[i % the length of `added`].
inline void add_repeated(oracle::Vec& all, double factor, const oracle::Vec& added) {
  for (std::size_t i = 0; i < all.size(); ++i) all[i] += factor * added[i % added.size()];
}

template <class TO, class TI>
void product(OpRunner& runner, Shape s, CallOptions options, bool ta = false, bool tb = false) {
  // cuBLASLt requires rows that are multiples of 16 bytes in half precision; all rows of the engine
  // are.
  const bool vector_rows = s.N % 8 == 0 && s.K % 8 == 0 && (!ta || s.M % 8 == 0);
  if (llmc::kCudaTarget && sizeof(TI) < 4 && !vector_rows) return;
  const bool gelu = options.epilogue == Epilogue::gelu;
  const bool gelu_backward = options.epilogue == Epilogue::gelu_backward;
  const std::string variant = gelu || gelu_backward ? "epilogue" : "used";
  OpCase c(runner, {.op = options.op,
                    .shape = s.text() + (ta ? " a^T" : "") + (tb ? " b^T" : ""),
                    .dtype = kDtypeOf<TI>,
                    .variants = {variant},
                    .bytes = s.bytes<TI>(),
                    .flops = s.flops(),
                    .timed = false});
  if (!c.is_selected()) return;
  const std::int64_t n = s.M * s.N;
  llmc::Gemm gemm;
  auto& a = c.input<TI>(s.M * s.K, normal(1));
  auto& b = c.input<TI>(s.K * s.N, normal(2, gelu ? s.gelu_deviation() : 1));
  auto& bias = c.input<TI>(s.N, normal(3));
  auto& addend = c.input<TO>(options.with_addend ? n : 1, normal(4));
  // The input of GELU.
  auto& aux = gelu ? c.output<TO>(n) : c.input<TO>(gelu_backward ? n : 1, normal(5));
  auto& out = c.output<TO>(n, options.accumulates() ? normal(6) : kUnwritten);
  const oracle::Vec added = (options.with_addend ? addend : out).values(), before = aux.values();

  const auto call_of = [s, options, ta, tb, &a, &b, &bias, &addend, &aux, &out](int i) {
    GemmCall<TO, TI> call = llmc::matmul_call(
        make_tensor(out.at(i), s.M, s.N), ta ? in(a, i, s.K, s.M) : in(a, i, s.M, s.K),
        ta ? Transpose::yes : Transpose::no, tb ? in(b, i, s.N, s.K) : in(b, i, s.K, s.N),
        tb ? Transpose::yes : Transpose::no, options.beta,
        options.with_bias ? static_cast<const TI*>(bias.at(i)) : nullptr);
    if (options.with_addend) call.addend = addend.at(i);
    call.epilogue = options.epilogue;
    if (options.epilogue != Epilogue::none) call.aux = aux.at(i);
    return call;
  };
  if (options.epilogue == Epilogue::none) {
    add_used(c, gemm, call_of, [&](int i) { gemm.run(call_of(i), runner.stream()); });
  } else {
    add_plan(runner, c, {variant, {}}, call_of);
  }

  const oracle::Vec left = ta ? oracle::transposed(a.values(), s.K, s.M) : a.values();
  oracle::Vec sums = tb ? oracle::lm_head_forward(left, b.values(), s.M, s.K, s.N)
                        : oracle::linear_forward(left, b.values(), {}, s.M, s.K, s.N);
  if (options.beta != 0) add_repeated(sums, static_cast<double>(options.beta), added);
  if (options.with_bias) add_repeated(sums, 1, bias.values());
  const oracle::Vec expected = gelu            ? oracle::gelu_forward(sums)
                               : gelu_backward ? oracle::gelu_backward(sums, before)
                                               : sums;
  const double allowed = product_tolerance<TI, TO>(s.K);
  c.finish([&] {
    std::vector all = {
        compare("out", out.values(), expected, allowed + epilogue_tolerance(variant))};
    if (gelu) all.push_back(compare("aux", aux.values(), sums, allowed));
    if (gelu_backward) all.push_back(compare("aux, which is only read", aux.values(), before, 0));
    return all;
  });
}

// Products of T in each transposition. Half-precision products are accumulated in fp32, as
// gradients are.
template <class T>
void transpositions(OpRunner& runner, Shape s) {
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      product<T, T>(runner, s, {.op = "product"}, ta, tb);
      product<T, T>(runner, s, {.op = "product_bias", .with_bias = true}, ta, tb);
      product<float, T>(runner, s, {.op = "product_accumulated", .beta = 1}, ta, tb);
    }
  }
}

// A residual, GELU and GELU's gradient in the product's epilogue.
template <class T>
void epilogues(OpRunner& runner, Shape s) {
  product<T, T>(runner, s,
                {.op = "product_addend", .with_bias = true, .beta = 0.5f, .with_addend = true});
  product<T, T>(runner, s, {.op = "product_in_place", .with_bias = true, .beta = 1});
  product<T, T>(runner, s,
                {.op = "product_bias_gelu", .with_bias = true, .epilogue = Epilogue::gelu});
  product<T, T>(runner, s, {.op = "product_gelu", .epilogue = Epilogue::gelu});
  product<T, T>(runner, s, {.op = "product_gelu_backward", .epilogue = Epilogue::gelu_backward});
}

}  // namespace llmc_dev::matmul
