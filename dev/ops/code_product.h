// The products of inference with INT8 weights: with rows as floats (w8) or as codes (w8a8). `used`
// is what the target runs, `kernel` the kernel of GPUs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dev/harness/op_case.h"
#include "llmc/ops/gemm/quantize_weight.h"
#include "llmc/ops/gemm/row_product.h"
#include "llmc/ops/gemm/row_product_kernels.h"
#include "test/oracle/ops.h"

namespace llmc_dev::code_product {

using llmc::CodeMatrix;
using llmc::OutputAxis;
using llmc::RowEpilogue;
using llmc::RowKind;

struct Shape {
  std::int64_t M, K, N;
};

// A quantized weight (K, N) with random numbers, packed for one set after the other.
struct Weight {
  Weight(Shape s, llmc::Stream& stream) : K(s.K), N(s.N) {
    const DeviceArray<float> numbers(s.K * s.N, 1, Role::input, normal(2, 0.05f), stream);
    quantized = llmc::quantize_weight(numbers.stored().data(), s.K, s.N, OutputAxis::columns, "w");
    std::vector<float> padded = quantized.scales;
    padded.resize(static_cast<std::size_t>(CodeMatrix::padded_columns(s.N)));
    scales = Buffer<float>(std::ssize(padded));
    llmc::copy_to_device(scales.data(), padded.data(), std::ssize(padded), stream);
    sums = Buffer<std::int32_t>(std::ssize(padded));
    stream.synchronize();
  }

  // Writes the codes to all sets of `array`.
  template <class Layout>
  void pack(const DeviceArray<std::int8_t>& array, llmc::Stream& stream) {
    std::vector<std::int8_t> packed(static_cast<std::size_t>(array.size()));
    std::vector<std::int32_t> column_sums(static_cast<std::size_t>(sums.size()));
    llmc::pack_codes<Layout>(packed.data(), column_sums.data(), quantized.codes.data(), K, N,
                             OutputAxis::columns);
    llmc::copy_to_device(sums.data(), column_sums.data(), sums.size(), stream);
    for (int set = 0; set < array.sets(); ++set)
      llmc::copy_to_device(array.at(set), packed.data(), array.size(), stream);
    stream.synchronize();
  }

  CodeMatrix matrix(const std::int8_t* codes) const {
    return {codes, scales.data(), sums.data(), K, N};
  }
  std::vector<double> values() const {
    std::vector<double> all;
    for (std::int64_t i = 0; i < K * N; ++i)
      all.push_back(quantized.codes[i] * double{quantized.scales[i % N]});
    return all;
  }

  std::int64_t K, N;
  llmc::WeightCodes quantized;
  Buffer<float> scales{0};
  Buffer<std::int32_t> sums{0};
};

// The numbers that the codes of rows (M, K) stand for.
inline std::vector<double> quantized_rows(const std::vector<double>& x, std::int64_t K) {
  std::vector<double> out;
  for (std::size_t first = 0; first < x.size(); first += static_cast<std::size_t>(K)) {
    llmc::ValueRange range;
    for (std::int64_t k = 0; k < K; ++k) {
      const auto number = static_cast<float>(x[first + k]);
      range = range.merged({number, number});
    }
    const llmc::Quantization q = llmc::activation_quantization(range, true);
    const llmc::CodeRounding rounding(q);
    for (std::int64_t k = 0; k < K; ++k) {
      const int code = rounding.code(static_cast<float>(x[first + k]));
      out.push_back((code - q.zero) * double{q.scale});
    }
  }
  return out;
}

// out (M, N), of type TO, = inp · weight.
template <class T, class TO>
void product(OpRunner& runner, RowKind kind, Shape s, bool quantizes_rows, bool logits) {
  const std::string mode = quantizes_rows ? "_w8a8" : "_w8";
  OpCase c(runner,
           {.op = "code_product" + mode + (kind == RowKind::prompt ? "_prompt" : "") +
                  (logits ? "_logits" : ""),
            .shape = by(s.M, s.K) + "x" + std::to_string(s.N),
            .dtype = kDtypeOf<T>,
            .variants = {"used", "kernel"},
            .bytes = static_cast<double>(s.M * s.K) * sizeof(T) + static_cast<double>(s.K * s.N) +
                     static_cast<double>(s.M * s.N) * sizeof(TO),
            .flops = 2.0 * static_cast<double>(s.M) * static_cast<double>(s.K * s.N)});
  if (!c.is_selected()) return;
  auto& inp = c.input<T>(s.M * s.K, normal(1, 1));
  auto& target_codes = c.input<std::int8_t>(llmc::code_bytes(s.K, s.N), kComputed);
  auto& kernel_codes = c.input<std::int8_t>(llmc::code_bytes(s.K, s.N), kComputed);
  auto& out = c.output<TO>(s.M * s.N);
  Weight weight(s, runner.stream());
  weight.pack<llmc::CodeLayout>(target_codes, runner.stream());
  weight.pack<llmc::WarpCodeLayout>(kernel_codes, runner.stream());
  const auto call = [&](int i, const std::int8_t* codes) {
    llmc::RowProduct<T> product;
    product.kind = kind;
    product.inp = make_tensor(static_cast<const T*>(inp.at(i)), s.M, s.K);
    product.codes = weight.matrix(codes);
    product.quantizer.enabled = quantizes_rows;
    auto call = llmc::detail::row_product_call<TO, T>(
        logits ? RowEpilogue::logits : RowEpilogue::store, product, s.M, s.N);
    call.out = out.at(i);
    call.out_stride = s.N;
    return call;
  };
  c.variant("used",
            [&](int i) { llmc::run_row_product(call(i, target_codes.at(i)), runner.stream()); });
  c.variant("kernel",
            [&](int i) { llmc::launch_row_product(call(i, kernel_codes.at(i)), runner.stream()); });
  c.finish([&] {
    const std::vector<double> rows = inp.values();
    const auto expected = llmc::oracle::linear_forward(
        quantizes_rows ? quantized_rows(rows, s.K) : rows, weight.values(),
        std::vector<double>(static_cast<std::size_t>(s.N)), s.M, s.K, s.N);
    return std::vector{compare("out", out.values(), expected, tolerance<TO>(s.K))};
  });
}

// The gpt2 shapes are the products of the 124M model.
template <class T>
void cases_of(OpRunner& runner) {
  Shapes<Shape> generated = {.tiny = {{3, 24, 40}, {19, 136, 48}},
                             .small = {{1, 256, 768}, {8, 256, 768}, {64, 256, 768}},
                             .gpt2 = {}};
  Shapes<Shape> logits = {.tiny = {{2, 24, 257}}, .small = {{2, 256, 4097}}, .gpt2 = {}};
  for (const std::int64_t M : {1, 8, 64}) {
    for (const Shape s : {Shape{M, 768, 2304}, {M, 768, 768}, {M, 768, 3072}, {M, 3072, 768}})
      generated.gpt2.push_back(s);
    logits.gpt2.push_back({M, 768, 50257});
  }
  // N = 2048 and more have wide tiles.
  const Shapes<Shape> prompt = {
      .tiny = {{19, 136, 48}, {2, 24, 2056}},
      .small = {{64, 256, 768}},
      .gpt2 = {{512, 768, 2304}, {512, 768, 768}, {512, 768, 3072}, {512, 3072, 768}}};
  for (const bool quantizes_rows : {false, true}) {
    for (const Shape s : runner.select(generated))
      product<T, T>(runner, RowKind::generated, s, quantizes_rows, false);
    for (const Shape s : runner.select(prompt))
      product<T, T>(runner, RowKind::prompt, s, quantizes_rows, false);
  }
  for (const Shape s : runner.select(logits)) {
    product<T, float>(runner, RowKind::generated, s, false, true);
    if (s.M <= 8) product<T, float>(runner, RowKind::prompt, s, false, true);
  }
}

inline void cases(OpRunner& runner) {
  cases_of<float>(runner);
  cases_of<bf16>(runner);
  cases_of<fp16>(runner);
}

}  // namespace llmc_dev::code_product
