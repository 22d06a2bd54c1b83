// Products of inference: against fp64, and bit by bit for every number of rows. The kernels of a
// GPU have tests of their own in test_invariant_gemm_kernels.cu.
#include <doctest/doctest.h>

#include "llmc/ops/gemm/invariant_gemm.h"
#include "test/invariant_gemms.h"

namespace {

using namespace llmc_test;
using namespace llmc_test::invariant_gemms;

constexpr std::initializer_list<std::int64_t> kCounts = {1, 2, 3, 5, 8, 9, 14, 15, 29, 64, 65};

const auto kUsed = [](const auto& call, Stream& stream) { llmc::run_invariant_gemm(call, stream); };

template <class T>
void check_all(std::initializer_list<std::int64_t> rows) {
  for (const std::int64_t M : rows) {
    for (const bool norm : {false, true}) {
      check_problem<T>(Problem<T>(M, 40, 24, RowEpilogue::store, norm), kUsed);
      check_problem<T>(Problem<T>(M, 136, 776, RowEpilogue::activation, norm), kUsed);
      check_problem<T>(Problem<T>(M, 24, 40, RowEpilogue::add, norm), kUsed);
      check_problem<float>(Problem<T>(M, 257, 24, RowEpilogue::logits, norm), kUsed);
    }
  }
}

template <class T>
void check_independence() {
  for (const RowEpilogue epilogue :
       {RowEpilogue::store, RowEpilogue::activation, RowEpilogue::add}) {
    CHECK(rows_are_independent<T>(Problem<T>(70, 40, 776, epilogue, true), kUsed, kCounts));
  }
  CHECK(rows_are_independent<float>(Problem<T>(70, 257, 136, RowEpilogue::logits, true), kUsed,
                                    kCounts));
}

template <class T, class KV>
void check_caches() {
  for (const std::int64_t M : {1, 3, 20}) {
    for (const bool with_slots : {false, true}) {
      check_cache<T, KV>(M, with_slots,
                         [](auto q, auto keys, auto values, auto slot, auto position,
                            const auto& product, Stream& stream) {
                           llmc::invariant_gemm_qkv<T, KV>(q, keys, values, slot, position, product,
                                                           stream);
                         });
    }
  }
}

}  // namespace

TEST_SUITE("invariant_gemm") {
  TEST_CASE_TEMPLATE("the product of inference matches the definition", T, float, bf16, fp16) {
    check_all<T>({1, 2, 7, 8, 9, 20, 33});
  }

  TEST_CASE_TEMPLATE("the product has the activation function and the epsilon of the model", T,
                     float, bf16, fp16) {
    for (const Activation f : {Activation::gelu, Activation::relu, Activation::gelu_pytorch_tanh}) {
      for (const std::int64_t M : {1, 20}) {
        check_problem<T>(Problem<T>(M, 136, 40, RowEpilogue::activation, true, f, 0.3f), kUsed);
      }
    }
  }

  TEST_CASE_TEMPLATE("a row has the same bits in every batch", T, float, bf16, fp16) {
    check_independence<T>();
  }

  TEST_CASE("a product with another order for one row is detected") {
    const auto other_order = [](const auto& call, Stream& stream) {
      if (call.M > 1) return llmc::run_invariant_gemm(call, stream);
      for (std::int64_t j = 0; j < call.N; ++j) {
        float sum = 0;
        for (std::int64_t k = call.K - 1; k >= 0; --k)
          sum += to_float(call.inp[k]) * to_float(call.weight[k * call.N + j]);
        call.out[j] = sum + to_float(call.bias[j]);
      }
    };
    const Problem<float> p(9, 40, 776, RowEpilogue::store, false);
    CHECK(rows_are_independent<float>(p, kUsed, kCounts));
    if (!llmc::kCudaTarget) CHECK_FALSE(rows_are_independent<float>(p, other_order, kCounts));
  }

  TEST_CASE("queries, keys and values go to their rows, and no other row of a cache changes") {
    check_caches<float, float>();
    check_caches<bf16, bf16>();
    check_caches<bf16, float>();
    check_caches<fp16, fp16>();
    check_caches<fp16, float>();
  }

  TEST_CASE("the residual may be the result") {
    const Problem<float> p(5, 24, 40, RowEpilogue::add, true);
    const auto in_place = [&](auto call, Stream& stream) {
      llmc::copy_to_device(call.out, p.residual.data(), p.M * p.N, stream);
      stream.synchronize();
      call.residual = call.out;
      llmc::run_invariant_gemm(call, stream);
    };
    CHECK(same_bits(run_rows<float>(p, 0, 5, in_place), run_rows<float>(p, 0, 5, kUsed)));
  }

  TEST_CASE("shapes and alignments that differ are errors") {
    Stream stream;
    llmc::Buffer<float> memory(4096);
    float* const m = memory.data();
    const auto message = [&](std::int64_t N, std::int64_t K, const float* weight) {
      llmc::InvariantGemm<float> product;
      product.inp = make_tensor(static_cast<const float*>(m), 2, K);
      product.weight = make_tensor(weight, 16, N);
      return complaint([&] { llmc::invariant_gemm(make_tensor(m + 2048, 2, N), product, stream); });
    };
    CHECK(contains(message(16, 12, m + 512), "rows of 12 elements"));
    CHECK(contains(message(12, 16, m + 512), "rows of 12 elements"));
    CHECK(contains(message(16, 24, m + 512), "'weight' has shape (16, 16), expected (24, 16)"));
    CHECK(contains(message(16, 16, m + 513), "'weight' does not start at a multiple of 16 bytes"));
    CHECK(message(16, 16, m + 512) == "");
  }

  TEST_CASE("logits of quantized rows are refused") {
    Stream stream;
    llmc::Buffer<float> memory(1024);
    llmc::InvariantGemm<float> product;
    product.inp = make_tensor(static_cast<const float*>(memory.data()), 2, 16);
    product.weight = make_tensor(static_cast<const float*>(memory.data()) + 256, 16, 16);
    const auto logits = [&] {
      llmc::invariant_gemm_logits(make_tensor(memory.data() + 768, 2, 16), product, stream);
    };
    CHECK(complaint(logits) == "");
    product.quantizer.enabled = true;
    CHECK(contains(complaint(logits), "the input of the logits is not quantized"));
  }
}
