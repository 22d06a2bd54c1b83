// The linear layer: x W + b, its gradients for x and W, and the head's products with the embedding.
// Variants next to the one the model runs: the library's other plans, split-K for weight gradients,
// GELU and the residual in the product's epilogue.
#pragma once

#include "dev/ops/shared/gemm_calls.h"
#include "dev/ops/shared/gemm_case.h"
#include "dev/variants/gemm_plans.h"
#include "llmc/ops/activation.h"
#include "llmc/ops/gemm/linear.h"

namespace llmc_dev::matmul {

using llmc::Gemm;

// ---- forward -------------------------------------------------------------------------------

// The operands that all forward cases share, and their products.
template <class T>
struct Operands {
  Operands(OpCase& c, const Shape& s, float deviation = 1)
      : s(s),
        x(c.input<T>(s.M * s.K, normal(1))),
        w(c.input<T>(s.K * s.N, normal(2, deviation))),
        b(c.input<T>(s.N, normal(3))) {}

  GemmCall<T, T> call(int set, T* out, bool with_bias, float beta = 0) const {
    return llmc::matmul_call(make_tensor(out, s.M, s.N), in(x, set, s.M, s.K), Transpose::no,
                             in(w, set, s.K, s.N), Transpose::no, beta,
                             with_bias ? static_cast<const T*>(b.at(set)) : nullptr);
  }
  void linear(int set, T* out, bool with_bias, Gemm& gemm, Stream& stream) const {
    const T* bias = with_bias ? b.at(set) : nullptr;
    llmc::linear_forward<T>(make_tensor(out, s.M, s.N), in(x, set, s.M, s.K), in(w, set, s.K, s.N),
                            make_tensor(bias, s.N), gemm, stream);
  }
  oracle::Vec expected(const std::vector<std::int64_t>& rows, bool with_bias) const {
    return oracle::linear_forward(x.rows(rows, s.K), w.values(),
                                  with_bias ? b.values() : oracle::Vec{}, count_of(rows), s.K, s.N);
  }

  Shape s;
  DeviceArray<T>&x, &w, &b;
};

template <class T>
void forward(OpRunner& runner, Shape s, bool with_bias) {
  OpCase c(runner, {.op = with_bias ? "linear_forward" : "linear_forward_no_bias",
                    .shape = s.text(),
                    .dtype = kDtypeOf<T>,
                    .variants = variant_names(with_bias && s.has_plans<T>(), false),
                    .bytes = s.bytes<T>(),
                    .flops = s.flops()});
  if (!c.is_selected()) return;
  Gemm gemm(llmc::training_gemm_options());
  const Operands<T> operands(c, s);
  auto& y = c.output<T>(s.M * s.N);
  const auto call_of = [operands, &y, with_bias](int i) {
    return operands.call(i, y.at(i), with_bias);
  };
  add_used(c, gemm, call_of,
           [&](int i) { operands.linear(i, y.at(i), with_bias, gemm, runner.stream()); });
  add_other_plans(runner, c, false, call_of);
  const auto rows = s.compared(s.M, 16);
  const auto expected = operands.expected(rows, with_bias);
  c.finish([&] {
    return std::vector{compare("y", y.rows(rows, s.N), expected, product_tolerance<T, T>(s.K))};
  });
}

// hidden = x W + b and y = gelu(hidden), as two kernels or one. The backward pass needs both
// results.
template <class T>
void gelu_forward(OpRunner& runner, Shape s) {
  OpCase c(runner, {.op = "linear_gelu_forward",
                    .shape = s.text(),
                    .dtype = kDtypeOf<T>,
                    .variants = {"used", "epilogue"},
                    .bytes = s.bytes<T>(2),
                    .flops = s.flops()});
  if (!c.is_selected()) return;
  Gemm gemm(llmc::training_gemm_options());
  const Operands<T> operands(c, s, s.gelu_deviation());
  auto& hidden = c.output<T>(s.M * s.N);
  auto& y = c.output<T>(s.M * s.N);
  c.variant("used", [&](int i) {
    operands.linear(i, hidden.at(i), true, gemm, runner.stream());
    llmc::activation_forward<T>(make_tensor(y.at(i), s.M, s.N), in(hidden, i, s.M, s.N),
                                llmc::Activation::gelu_new, runner.stream());
  });
  add_plan(runner, c, {"epilogue", {}}, [operands, &hidden, &y](int i) {
    GemmCall<T, T> call = operands.call(i, y.at(i), true);
    call.epilogue = Epilogue::gelu;
    call.aux = hidden.at(i);
    return call;
  });
  const auto rows = s.compared(s.M, 16);
  const auto expected = operands.expected(rows, true);
  c.finish([&](const std::string& variant) {
    // gelu's slope is at most 1.13, and a rounded hidden state adds its rounding to y's.
    const double allowed = 2 * product_tolerance<T, T>(s.K) + epilogue_tolerance(variant);
    return std::vector{
        compare("hidden", hidden.rows(rows, s.N), expected, product_tolerance<T, T>(s.K)),
        compare("y", y.rows(rows, s.N), oracle::gelu_forward(expected), allowed)};
  });
}

// y = x W + b + residual in one product. The model adds the residual in the LayerNorm that follows.
template <class T>
void residual_forward(OpRunner& runner, Shape s) {
  OpCase c(runner, {.op = "linear_residual_forward",
                    .shape = s.text(),
                    .dtype = kDtypeOf<T>,
                    .variants = {"beta_1"},
                    .bytes = s.bytes<T>(2),
                    .flops = s.flops()});
  if (!c.is_selected()) return;
  const Operands<T> operands(c, s);
  auto& residual = c.input<T>(s.M * s.N, normal(4));
  auto& y = c.output<T>(s.M * s.N);
  add_plan(runner, c, {"beta_1", {}}, [operands, &residual, &y](int i) {
    GemmCall<T, T> call = operands.call(i, y.at(i), true, 1);
    call.addend = residual.at(i);
    return call;
  });
  const auto rows = s.compared(s.M, 16);
  oracle::Vec expected = operands.expected(rows, true);
  oracle::add_to(expected, residual.rows(rows, s.N));
  c.finish([&] {
    return std::vector{compare("y", y.rows(rows, s.N), expected, product_tolerance<T, T>(s.K))};
  });
}

// ---- backward ------------------------------------------------------------------------------

// d_x (M, K) = d_y (M, N) Wᵀ. With `gelu`, d_x is also multiplied by gelu'(hidden), as in the
// backward pass of the MLP's projection.
template <class T>
void backward_input(OpRunner& runner, Shape s, bool gelu) {
  OpCase c(runner, {.op = gelu ? "linear_gelu_backward" : "linear_backward_input",
                    .shape = s.text(),
                    .dtype = kDtypeOf<T>,
                    .variants = gelu ? std::vector<std::string>{"used", "epilogue"}
                                     : variant_names(s.has_plans<T>(), false),
                    .bytes = s.bytes<T>() + (gelu ? sizeof(T) * static_cast<double>(s.M * s.K) : 0),
                    .flops = s.flops()});
  if (!c.is_selected()) return;
  Gemm gemm(llmc::training_gemm_options());
  auto& dy = c.input<T>(s.M * s.N, normal(1));
  auto& w = c.input<T>(s.K * s.N, normal(2));
  auto& hidden = c.input<T>(gelu ? s.M * s.K : 1, normal(3, 2));
  auto& dx = c.output<T>(s.M * s.K);
  const auto call_of = [s, gelu, &dy, &w, &hidden, &dx](int i) {
    auto call =
        llmc::matmul_call(make_tensor(dx.at(i), s.M, s.K), in(dy, i, s.M, s.N), Transpose::no,
                          in(w, i, s.K, s.N), Transpose::yes, 0.0f, static_cast<const T*>(nullptr));
    if (!gelu) return call;
    call.epilogue = Epilogue::gelu_backward;
    call.aux = hidden.at(i);
    return call;
  };
  const auto used = [&](int i) {
    const auto d_x = make_tensor(dx.at(i), s.M, s.K);
    llmc::linear_backward<T>(d_x, {}, {}, in(dy, i, s.M, s.N), {}, in(w, i, s.K, s.N), {}, gemm,
                             runner.stream());
    if (gelu) {
      llmc::activation_backward<T>(d_x, d_x, in(hidden, i, s.M, s.K), llmc::Activation::gelu_new,
                                   runner.stream());
    }
  };
  if (gelu) {
    c.variant("used", used);
    add_plan(runner, c, {"epilogue", {}}, call_of);
  } else {
    add_used(c, gemm, call_of, used);
    add_other_plans(runner, c, false, call_of);
  }
  // Has the form of the head's product: dot products of rows of d_y with rows of W.
  const auto rows = s.compared(s.M, 16);
  oracle::Vec expected =
      oracle::lm_head_forward(dy.rows(rows, s.N), w.values(), count_of(rows), s.N, s.K);
  if (gelu) expected = oracle::gelu_backward(expected, hidden.rows(rows, s.K));
  c.finish([&](const std::string& variant) {
    const double allowed =
        (gelu ? 2 : 1) * product_tolerance<T, T>(s.N) + epilogue_tolerance(variant);
    return std::vector{compare("d_x", dx.rows(rows, s.K), expected, allowed)};
  });
}

// d_W (K, N), fp32, += x^T d_y for x (M, K) and d_y (M, N). The sums have M terms. With `ones`, all
// operands are 1 and d_W starts at 0, so every element of d_W must be exactly M. fp32 sums reach M
// without rounding, so a plan that skips or repeats a part of the sum fails.
template <class T>
void backward_weight(OpRunner& runner, Shape s, const char* op, bool ones = false) {
  const double inputs = sizeof(T) * static_cast<double>(s.M * s.K + s.M * s.N);
  OpCase c(runner, {.op = op,
                    .shape = s.text(),
                    .dtype = kDtypeOf<T>,
                    .variants = variant_names(s.has_plans<T>(), true),
                    .bytes = inputs + 8.0 * static_cast<double>(s.K * s.N),
                    .flops = s.flops(),
                    .timed = !ones});
  if (!c.is_selected()) return;
  Gemm gemm(llmc::training_gemm_options());
  auto& dy = c.input<T>(s.M * s.N, ones ? normal(1, 0, 1) : normal(1));
  auto& x = c.input<T>(s.M * s.K, ones ? normal(2, 0, 1) : normal(2));
  auto& dw = c.output<float>(s.K * s.N, ones ? normal(3, 0, 0) : normal(3));
  const auto call_of = [s, &dy, &x, &dw](int i) {
    return llmc::matmul_call(make_tensor(dw.at(i), s.K, s.N), in(x, i, s.M, s.K), Transpose::yes,
                             in(dy, i, s.M, s.N), Transpose::no, 1.0f,
                             static_cast<const T*>(nullptr));
  };
  add_used(c, gemm, call_of, [&](int i) {
    llmc::linear_backward<T>({}, make_tensor(dw.at(i), s.K, s.N), {}, in(dy, i, s.M, s.N),
                             in(x, i, s.M, s.K), {}, {}, gemm, runner.stream());
  });
  add_other_plans(runner, c, true, call_of);
  if (ones) {
    const oracle::Vec expected(static_cast<std::size_t>(s.K * s.N), static_cast<double>(s.M));
    return c.finish([&] { return std::vector{compare("d_w", dw.values(), expected, 0)}; });
  }
  const auto rows = s.compared(s.K, 6);
  oracle::Vec expected = dw.rows(rows, s.N);
  oracle::add_to(expected, weight_gradient_rows(x, dy, s, rows));
  c.finish([&] {
    return std::vector{
        compare("d_w", dw.rows(rows, s.N), expected, product_tolerance<T, float>(s.M))};
  });
}

// All gradients of the layer in one call, with each combination of frozen ones. The products are
// timed above.
template <class T>
void backward(OpRunner& runner, Shape s) {
  OpCase c(runner, {.op = "linear_backward",
                    .shape = s.text(),
                    .dtype = kDtypeOf<T>,
                    .bytes = s.bytes<T>(2) + 8.0 * static_cast<double>(s.K * s.N),
                    .flops = 2 * s.flops(),
                    .timed = false});
  if (!c.is_selected()) return;
  Gemm gemm(llmc::training_gemm_options());
  const std::int64_t floats = llmc::linear_backward_scratch(s.M, s.N);
  auto& dy = c.input<T>(s.M * s.N, normal(1));
  auto& x = c.input<T>(s.M * s.K, normal(2));
  auto& w = c.input<T>(s.K * s.N, normal(3));
  auto& scratch = c.input<float>(floats, kUnwritten);
  auto& dx = c.output<T>(s.M * s.K);
  auto& dw = c.output<float>(s.K * s.N, normal(4));
  auto& db = c.output<float>(s.N, normal(5));
  auto expected = oracle::linear_backward(dy.values(), x.values(), w.values(), s.M, s.K, s.N);
  oracle::add_to(expected.w, dw.values());
  oracle::add_to(expected.b, db.values());
  const auto run = [&](int i, bool x_frozen, bool w_frozen, bool b_frozen) {
    llmc::linear_backward<T>(make_tensor(x_frozen ? nullptr : dx.at(i), s.M, s.K),
                             make_tensor(w_frozen ? nullptr : dw.at(i), s.K, s.N),
                             make_tensor(b_frozen ? nullptr : db.at(i), s.N), in(dy, i, s.M, s.N),
                             in(x, i, s.M, s.K), in(w, i, s.K, s.N),
                             make_tensor(scratch.at(i), floats), gemm, runner.stream());
  };
  c.variant("used", [&](int i) { run(i, false, false, false); });
  c.without("d_x", {&dx}, [&] { run(0, true, false, false); });
  c.without("d_w", {&dw}, [&] { run(0, false, true, false); });
  c.without("d_b", {&db}, [&] { run(0, false, false, true); });
  c.without("d_x and d_w", {&dx, &dw}, [&] { run(0, true, true, false); });
  c.without("d_x and d_b", {&dx, &db}, [&] { run(0, true, false, true); });
  c.without("d_w and d_b", {&dw, &db}, [&] { run(0, false, true, true); });
  c.without("d_x, d_w and d_b", {&dx, &dw, &db}, [&] { run(0, true, true, true); });
  c.finish([&] {
    return std::vector{compare("d_x", dx.values(), expected.x, product_tolerance<T, T>(s.N)),
                       compare("d_w", dw.values(), expected.w, product_tolerance<T, float>(s.M)),
                       compare("d_b", db.values(), expected.b, tolerance<float>(s.M))};
  });
}

// The language-model head: logits (M, N) = h (M, K) times the embedding (N, K), transposed;
// backward d_h (M, K) = d_logits (M, N) times the embedding.
template <class T>
void head_product(OpRunner& runner, Shape s, bool backward) {
  OpCase c(runner, {.op = backward ? "head_backward_input" : "head_forward",
                    .shape = s.text(),
                    .dtype = kDtypeOf<T>,
                    .variants = variant_names(s.has_plans<T>(), false),
                    .bytes = s.bytes<T>(),
                    .flops = s.flops()});
  if (!c.is_selected()) return;
  Gemm gemm(llmc::training_gemm_options());
  const std::int64_t inputs = backward ? s.N : s.K, outputs = backward ? s.K : s.N;
  auto& x = c.input<T>(s.M * inputs, normal(1));
  auto& wte = c.input<T>(s.N * s.K, normal(2));
  auto& y = c.output<T>(s.M * outputs);
  const auto call_of = [s, inputs, outputs, backward, &x, &wte, &y](int i) {
    return llmc::matmul_call(make_tensor(y.at(i), s.M, outputs), in(x, i, s.M, inputs),
                             Transpose::no, in(wte, i, s.N, s.K),
                             backward ? Transpose::no : Transpose::yes, 0.0f,
                             static_cast<const T*>(nullptr));
  };
  add_used(c, gemm, call_of, [&](int i) { gemm.run(call_of(i), runner.stream()); });
  add_other_plans(runner, c, false, call_of);
  const auto rows = s.compared(s.M, 16);
  const oracle::Vec some = x.rows(rows, inputs), table = wte.values();
  const auto expected = backward ? oracle::linear_forward(some, table, {}, count_of(rows), s.N, s.K)
                                 : oracle::lm_head_forward(some, table, count_of(rows), s.K, s.N);
  c.finish([&] {
    return std::vector{
        compare("y", y.rows(rows, outputs), expected, product_tolerance<T, T>(inputs))};
  });
}

// ---- shapes --------------------------------------------------------------------------------

enum class Layer { narrow, widening, projection };

template <class T>
void linear_layer(OpRunner& runner, Shape s, Layer layer) {
  forward<T>(runner, s, true);
  forward<T>(runner, s, false);
  if (layer == Layer::widening) gelu_forward<T>(runner, s);
  if (layer == Layer::projection) residual_forward<T>(runner, s);
  backward_input<T>(runner, s, false);
  if (layer == Layer::projection && s.K > s.N) backward_input<T>(runner, s, true);
  backward_weight<T>(runner, s, "linear_backward_weight");
  if (s.plans) backward_weight<T>(runner, s, "linear_backward_weight_1", true);
}

// The embedding's gradient (N, K) is d_logits^T h: a weight gradient of a layer from N to K.
template <class T>
void head(OpRunner& runner, Shape s) {
  head_product<T>(runner, s, false);
  head_product<T>(runner, s, true);
  backward_weight<T>(runner, {s.M, s.N, s.K, s.fp16, s.plans}, "head_backward_weight");
}

// The four linear layers of a block.
template <class T>
void block(OpRunner& runner, std::int64_t rows, std::int64_t C, bool plans) {
  linear_layer<T>(runner, {rows, C, 3 * C, true, plans}, Layer::narrow);
  linear_layer<T>(runner, {rows, C, C, true, plans}, Layer::projection);
  linear_layer<T>(runner, {rows, C, 4 * C, true, plans}, Layer::widening);
  linear_layer<T>(runner, {rows, 4 * C, C, true, plans}, Layer::projection);
}

inline void cases(OpRunner& runner) {
  if (runner.includes(ShapeSet::tiny)) {
    for_each_dtype(runner, true, [&]<class T>() {
      linear_layer<T>(runner, {3, 8, 16}, Layer::widening);
      linear_layer<T>(runner, {1, 16, 8}, Layer::projection);
      backward<T>(runner, {3, 8, 16});
      epilogues<T>(runner, {3, 8, 16});
      for (const Shape s : {Shape{3, 16, 8}, Shape{1, 8, 16}}) transpositions<T>(runner, s);
    });
  }
  if (runner.includes(ShapeSet::small)) {
    // The last two have enough work for the host GEMM to split them into tiles.
    const std::vector<Shape> products = {{1, 8, 8},       {7, 24, 40},    {65, 40, 120},
                                         {33, 40, 211},   {64, 80, 96},   {1, 528, 2051},
                                         {130, 120, 211}, {1031, 264, 24}};
    for_each_dtype(runner, true, [&]<class T>() {
      linear_layer<T>(runner, {8, 8, 8}, Layer::narrow);
      linear_layer<T>(runner, {24, 40, 120}, Layer::widening);
      linear_layer<T>(runner, {136, 200, 96}, Layer::projection);
      linear_layer<T>(runner, {256, 64, 72, true, true}, Layer::narrow);
      linear_layer<T>(runner, {37, 40, 120}, Layer::narrow);
      backward<T>(runner, {37, 40, 120});
      epilogues<T>(runner, {65, 40, 120});
      for (const Shape s : products) transpositions<T>(runner, s);
      head<T>(runner, {16, 40, 216});
    });
  }
  if (!runner.includes(ShapeSet::gpt2)) return;
  constexpr std::int64_t kVocabulary = 50304;  // 50257 padded to a multiple of 128
  // 124M: micro-batches of 64 and 32 sequences of 1024 tokens, the latter in all dtypes. The head
  // runs in chunks of 4096 rows and in one piece.
  block<bf16>(runner, 65536, 768, true);
  for (const std::int64_t rows : {4096, 65536}) {
    head<bf16>(runner, {rows, 768, kVocabulary, true, true});
  }
  for_each_dtype(runner, true, [&]<class T>() {
    block<T>(runner, 32768, 768, true);
    head<T>(runner, {32768, 768, kVocabulary});
  });
  // 1558M.
  for_each_dtype(runner, false, [&]<class T>() {
    block<T>(runner, 16384, 1600, false);
    head<T>(runner, {8192, 1600, kVocabulary});
  });
}

}  // namespace llmc_dev::matmul
