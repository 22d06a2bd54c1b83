// The products of inference with INT8 weights: with rows as floats (w8) or as codes (w8a8). `used`
// is what the target runs, `kernel` the kernel of GPUs, `cublaslt_sums` the sums of codes alone by
// cuBLASLt.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dev/harness/op_case.h"
#include "dev/variants/gemm_plans.h"
#include "llmc/ops/gemm/invariant_gemm.h"
#include "llmc/ops/gemm/invariant_gemm_checks.h"
#include "llmc/ops/gemm/invariant_gemm_kernels.h"
#include "llmc/ops/gemm/quantize_weight.h"
#include "test/oracle/ops.h"

namespace llmc_dev::invariant_gemm_int8 {

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

// Integers of some rows of a matrix with C columns.
template <class Integer>
std::vector<double> stored_rows(const DeviceArray<Integer>& matrix,
                                const std::vector<std::int64_t>& rows, std::int64_t C) {
  std::vector<double> all;
  for (const std::int64_t row : rows) {
    for (const Integer x : matrix.stored(row * C, C)) all.push_back(static_cast<double>(x));
  }
  return all;
}

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

inline std::string name_of(RowKind kind, bool quantizes_rows, bool logits) {
  return std::string("invariant_gemm_int8") + (quantizes_rows ? "_w8a8" : "_w8") +
         (kind == RowKind::prompt ? "_prompt" : "") + (logits ? "_logits" : "");
}

// The peer of a w8a8 product: int32 sums (M, N) of the codes of rows (M, K) and of a weight (N, K),
// K-major as cuBLASLt needs it. The library has no scales per row and column and no results in
// 16 bits, so passes that quantize the rows and dequantize the sums come on top. The sums have no
// dtype; they are a line of bf16, next to the product of the same shape. Code is int8, a template
// parameter because only the GPU's Gemm has products of codes.
template <class Code>
void library_sums(OpRunner& runner, RowKind kind, Shape s) {
  OpCase c(runner, {.op = name_of(kind, true, false),
                    .shape = by(s.M, s.K) + "x" + std::to_string(s.N),
                    .dtype = llmc::Dtype::bf16,
                    .variants = {"cublaslt_sums"},
                    .bytes = static_cast<double>(s.M * s.K + s.K * s.N + 4 * s.M * s.N),
                    .flops = 2.0 * static_cast<double>(s.M) * static_cast<double>(s.K * s.N)});
  if (!c.is_selected()) return;
  if constexpr (!llmc::kCudaTarget) {
    c.leave_out({"cublaslt_sums"}, "needs a GPU");
  } else {
    const auto& rows = c.input<Code>(s.M * s.K, indices(1, 256));
    const auto& weight = c.input<Code>(s.N * s.K, indices(2, 256));
    const auto& sums = c.output<std::int32_t>(s.M * s.N, indices(3, 1 << 30));
    add_plan(runner, c, {"cublaslt_sums", {}}, [&](int i) {
      llmc::GemmCall<std::int32_t, Code> call;
      call.transpose_b = true;
      call.m = s.M;
      call.n = s.N;
      call.k = s.K;
      call.a = rows.at(i);
      call.b = weight.at(i);
      call.c = sums.at(i);
      return call;
    });
    const std::vector<std::int64_t> compared = sample(s.M, 16);
    const auto expected = llmc::oracle::lm_head_forward(stored_rows(rows, compared, s.K),
                                                        stored_rows(weight, {0}, s.N * s.K),
                                                        std::ssize(compared), s.K, s.N);
    c.finish([&] {
      return std::vector{compare("sums", stored_rows(sums, compared, s.N), expected, 0)};
    });
  }
}

// out (M, N), of type TO, = inp · weight.
template <class T, class TO>
void product(OpRunner& runner, RowKind kind, Shape s, bool quantizes_rows, bool logits) {
  OpCase c(runner,
           {.op = name_of(kind, quantizes_rows, logits),
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
    llmc::InvariantGemm<T> product;
    product.kind = kind;
    product.inp = make_tensor(static_cast<const T*>(inp.at(i)), s.M, s.K);
    product.codes = weight.matrix(codes);
    product.quantizer.enabled = quantizes_rows;
    auto call = llmc::detail::invariant_gemm_call<TO, T>(
        logits ? RowEpilogue::logits : RowEpilogue::store, product, s.M, s.N);
    call.out = out.at(i);
    call.out_stride = s.N;
    return call;
  };
  c.variant("used",
            [&](int i) { llmc::run_invariant_gemm(call(i, target_codes.at(i)), runner.stream()); });
  c.variant("kernel", [&](int i) {
    llmc::launch_invariant_gemm(call(i, kernel_codes.at(i)), runner.stream());
  });
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
    const auto products = [&](RowKind kind, const Shapes<Shape>& shapes) {
      for (const Shape s : runner.select(shapes)) {
        product<T, T>(runner, kind, s, quantizes_rows, false);
        if (quantizes_rows && kDtypeOf<T> == llmc::Dtype::bf16)
          library_sums<std::int8_t>(runner, kind, s);
      }
    };
    products(RowKind::generated, generated);
    products(RowKind::prompt, prompt);
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

}  // namespace llmc_dev::invariant_gemm_int8
