// Matrix products in addition to their cases in dev/ops/matmul.h: one plan for different biases,
// the rule for splitting K, and errors.
#include <doctest/doctest.h>

#include "dev/harness/arrays.h"
#include "llmc/ops/gemm/linear.h"
#include "test/oracle/ops.h"
#include "test/support.h"

using namespace llmc;
using namespace llmc_test;
using llmc_dev::DeviceArray;

TEST_SUITE("matmul") {
  TEST_CASE("one plan serves biases at any address") {
    const std::int64_t M = 24, N = 64, K = 40;
    Stream stream;
    Gemm gemm;
    const DeviceArray<bf16> a(convert<bf16>(random_floats(M * K, 1)), stream);
    const DeviceArray<bf16> b(convert<bf16>(random_floats(K * N, 2)), stream);
    const DeviceArray<bf16> bias(convert<bf16>(random_floats(2 * N, 3)), stream);
    for (const std::int64_t first : {0, 8}) {  // the second is aligned to only 16 bytes
      const DeviceArray<bf16> out(convert<bf16>(random_floats(M * N, 4)), stream);
      matmul(make_tensor(out.data(), M, N), make_tensor<const bf16>(a.data(), M, K), Transpose::no,
             make_tensor<const bf16>(b.data(), K, N), Transpose::no, 0.0f,
             static_cast<const bf16*>(bias.data() + first), gemm, stream);
      const auto expected =
          oracle::linear_forward(a.values(), b.values(), bias.values(first, N), M, K, N);
      CHECK(relative_l2(out.values(), expected) < tolerance<bf16>(K));
      CHECK(out.guards_intact());
    }
  }

  TEST_CASE("K is split only for weight gradients whose K is a multiple of 128") {
    GemmOptions split;
    split.split_k = SplitK::if_idle;
    const auto allowed = [&]<class TO, class TI>(GemmCall<TO, TI> call, std::int64_t k) {
      call.k = k;
      return may_split_k(call, split);
    };
    const GemmCall<float, bf16> weight_gradient;
    for (const std::int64_t k : {128, 32768, 65536}) CHECK(allowed(weight_gradient, k));
    for (const std::int64_t k : {64, 192, 65535}) CHECK(!allowed(weight_gradient, k));
    CHECK(allowed(GemmCall<float, fp16>(), 128));
    CHECK(!allowed(GemmCall<float, float>(), 128));
    CHECK(!allowed(GemmCall<bf16, bf16>(), 128));
    GemmCall<float, bf16> call;
    call.k = 128;
    CHECK(!may_split_k(call, GemmOptions()));
    call.epilogue = Epilogue::gelu;
    CHECK(!may_split_k(call, split));
  }

  TEST_CASE("the error names an epilogue that no library supports") {
    Stream stream;
    Gemm gemm;
    const Buffer<float> memory(64);
    GemmCall<float, float> call;
    call.m = 4;
    call.n = call.k = 8;
    call.a = call.b = memory.data();
    call.c = memory.data();
    call.epilogue = Epilogue::gelu;
    CHECK_THROWS_WITH_AS(gemm.run(call, stream), doctest::Contains("the input of GELU, is null"),
                         Error);
    call.aux = memory.data();
    call.n = 7;
    CHECK_THROWS_WITH_AS(gemm.run(call, stream),
                         doctest::Contains("7 numbers, not a multiple of 8"), Error);
    call.n = 8;
    call.epilogue = Epilogue::gelu_backward;
    call.bias = memory.data();
    CHECK_THROWS_WITH_AS(gemm.run(call, stream), doctest::Contains("a bias is not supported"),
                         Error);
  }

  TEST_CASE("the error names a tensor whose shape does not match") {
    Stream stream;
    Gemm gemm;
    const Buffer<float> a(24), b(24), c(24);
    const float* no_bias = nullptr;
    CHECK_THROWS_WITH_AS(
        matmul(make_tensor(c.data(), 3, 8), make_tensor((const float*)a.data(), 3, 8),
               Transpose::no, make_tensor((const float*)b.data(), 3, 8), Transpose::no, 0.0f,
               no_bias, gemm, stream),
        "tensor 'b' has shape (3, 8), expected (8, 8)", Error);
    const Buffer<bf16> half(64);
    const auto view = make_tensor(static_cast<const bf16*>(half.data()), 4, 8);
    CHECK_THROWS_WITH_AS(matmul(make_tensor(a.data(), 4, 4), view, Transpose::no, view,
                                Transpose::yes, 0.0f, view.data, gemm, stream),
                         doctest::Contains("bias has another type"), Error);
  }
}
