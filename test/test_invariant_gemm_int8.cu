// The products of inference with INT8 weights, as the target computes them.
#include <doctest/doctest.h>

#include <limits>

#include "llmc/ops/gemm/invariant_gemm.h"
#include "test/invariant_gemms_int8.h"

namespace {

using namespace llmc_test;
using namespace llmc_test::invariant_gemms;
using llmc::CodeLayout;

struct Target {
  template <class Call>
  void operator()(const Call& call, Stream& stream) const {
    llmc::run_invariant_gemm(call, stream);
  }
};

template <class T>
void check_dtype(std::int64_t M) {
  const Target target;
  for (const RowQuantizer& quantizer : {kZeroPoints, kSymmetric, kFixed}) {
    check_exact<T, CodeLayout>(M, 48, 80, RowEpilogue::store, false, quantizer, target);
    check_exact<T, CodeLayout>(M, 136, 40, RowEpilogue::add, true, quantizer, target);
  }
}

}  // namespace

TEST_SUITE_BEGIN("invariant_gemm_int8");

TEST_CASE("products of INT8 rows and weights are exact for every number of rows") {
  const std::int64_t step = tiny_shapes() ? 83 : 1;
  for (std::int64_t M = 1; M <= 300; M += M < 30 ? step : step + 26) check_dtype<float>(M);
  for (const std::int64_t M : {1, 3, 16, 37, 300}) {
    if (tiny_shapes() && M > 16) continue;
    check_dtype<llmc::bf16>(M);
    check_dtype<llmc::fp16>(M);
  }
}

TEST_CASE("products of INT8 rows are exact for odd multiples of 16, and for the sizes of GPT-2") {
  const Target target;
  for (const std::int64_t size : {16, 48, 112, 208, 336}) {
    check_exact<float, CodeLayout>(5, size, 16, RowEpilogue::store, true, kZeroPoints, target);
    check_exact<float, CodeLayout>(17, 16, size, RowEpilogue::store, false, kZeroPoints, target);
    check_exact<float, CodeLayout>(3, size, size, RowEpilogue::add, true, kSymmetric, target);
  }
  if (tiny_shapes()) return;
  check_exact<float, CodeLayout>(2, 2304, 768, RowEpilogue::store, true, kZeroPoints, target);
  check_exact<float, CodeLayout>(14, 768, 3072, RowEpilogue::add, false, kZeroPoints, target);
}

TEST_CASE_TEMPLATE("products of float rows and INT8 weights match the definition", T, float,
                   llmc::bf16, llmc::fp16) {
  const Target target;
  for (const std::int64_t M : {1, 2, 4, 7, 16, 17, 40}) {
    check_float_rows<T, T, CodeLayout>(M, 136, 40, RowEpilogue::store, M % 2 == 0, target);
    check_float_rows<T, T, CodeLayout>(M, 24, 616, RowEpilogue::add, true, target);
    check_float_rows<float, T, CodeLayout>(M, 257, 136, RowEpilogue::logits, true, target);
  }
}

TEST_CASE("a row of a product with INT8 weights does not depend on the other rows") {
  const Target target;
  for (const RowQuantizer& quantizer : {kFloatRows, kZeroPoints}) {
    const CodeProblem<float, CodeLayout> p(70, 136, 616, RowEpilogue::activation, true, quantizer);
    check_independent_rows<float>(p, target, {1, 2, 5, 16, 17, 33});
    const CodeProblem<llmc::bf16, CodeLayout> half(70, 40, 264, RowEpilogue::add, true, quantizer);
    check_independent_rows<llmc::bf16>(half, target, {1, 3, 16, 64});
  }
  const CodeProblem<float, CodeLayout> logits(40, 257, 264, RowEpilogue::logits, true, kFloatRows);
  check_independent_rows<float>(logits, target, {1, 2, 16, 17});
}

TEST_CASE("a row that is not finite is reported and gives NaN") {
  CodeProblem<float, CodeLayout> p(5, 48, 80, RowEpilogue::store, false, kZeroPoints);
  p.inp[3 * 80 + 7] = std::numeric_limits<float>::infinity();
  Stream stream;
  auto sites = upload(std::vector<std::int32_t>(10), stream);
  const auto positions = upload(std::vector<std::int32_t>{0, 1, 0, 1, 0}, stream);
  for (const std::int32_t site : {7, 8}) {
    const auto out = p.run<float>(0, 5, [&](auto call, Stream& own) {
      call.faults = {sites.data(), 2, nullptr, positions.data(), site};
      llmc::run_invariant_gemm(call, own);
    });
    for (std::int64_t r = 0; r < 5; ++r) CHECK(std::isnan(out[r * 48]) == (r == 3));
  }
  CHECK(download(sites, stream) == std::vector<std::int32_t>{0, 0, 0, 0, 0, 0, 0, 7, 0, 0});
}

TEST_CASE("the results of GELU are multiplied by their factors") {
  const CodeProblem<float, CodeLayout> p(6, 48, 80, RowEpilogue::activation, true, kZeroPoints);
  Stream stream;
  std::vector<float> factors(48);
  for (std::size_t i = 0; i < factors.size(); ++i) factors[i] = 1 + static_cast<float>(i % 4);
  const auto memory = upload(factors, stream);
  const auto plain = p.run<float>(0, 6, Target());
  auto scaled = p.run<float>(0, 6, [&](auto call, Stream& own) {
    call.gelu_factors = memory.data();
    llmc::run_invariant_gemm(call, own);
  });
  for (std::size_t i = 0; i < scaled.size(); ++i) scaled[i] /= factors[i % 48];
  CHECK(relative_l2(scaled, plain) <= 1e-7);
}

TEST_SUITE_END();
