// The kernels of the products of inference with INT8 weights, each started by its launcher: on a
// GPU, and on the host executor, whose builds do not use them otherwise.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "llmc/ops/gemm/invariant_gemm_int8_generated.h"
#include "llmc/ops/gemm/invariant_gemm_int8_prompt.h"
#include "llmc/ops/gemm/invariant_gemm_kernels.h"
#include "test/invariant_gemms_int8.h"

namespace {

using namespace llmc_test;
using namespace llmc_test::invariant_gemms;
using llmc::RowKind, llmc::WarpCodeLayout;

template <RowKind kKind>
struct LaunchKind {
  template <class Call>
  void operator()(Call call, Stream& stream) const {
    call.kind = kKind;
    llmc::launch_invariant_gemm(call, stream);
  }
};
using GeneratedKernel = LaunchKind<RowKind::generated>;
using PromptKernel = LaunchKind<RowKind::prompt>;

// Prompt rows by the wide tiles, whatever N is.
struct WidePromptKernel {
  template <class T, class TO, class KV>
  void operator()(const InvariantGemmCall<T, TO, KV>& call, Stream& stream) const {
    constexpr bool kLogits = std::is_same_v<TO, float> && !std::is_same_v<T, float>;
    llmc::row_kernels::with_staged_type<kLogits>(call, [&]<class S>() {
      using llmc::row_kernels::CodePromptTile;
      if constexpr (!std::is_same_v<S, float>)
        llmc::row_kernels::launch_prompt_code_tile<S, CodePromptTile<S, 128>, kLogits>(call,
                                                                                       stream);
    });
  }
};

constexpr RowQuantizer kQuantizers[] = {kZeroPoints, kSymmetric, kFixed};

// Exact results of quantized rows, for N and K that are odd multiples of 8 and 16.
template <class T, class Launch>
void check_exact_rows(std::initializer_list<std::int64_t> rows) {
  const Launch launch;
  for (const std::int64_t M : rows) {
    const RowQuantizer& quantizer = kQuantizers[M % 3];
    check_exact<T, WarpCodeLayout>(M, 48, 80, RowEpilogue::store, false, quantizer, launch);
    check_exact<T, WarpCodeLayout>(M, 136, 40, RowEpilogue::add, false, kQuantizers[(M + 1) % 3],
                                   launch);
  }
}

// Rows are normalised with the bits of training where that gives a row to one warp. Elsewhere, the
// sums have another order, and a code may differ by 1.
template <class T, class Launch>
void check_norm(std::int64_t M, std::int64_t N, std::int64_t K) {
  const CodeProblem<T, WarpCodeLayout> p(M, N, K, RowEpilogue::store, true, kZeroPoints);
  const auto actual = p.template run<T>(0, M, Launch());
  if (!llmc::kOneThreadBlocks && K <= 1024) {
    CHECK(same_bits(actual, convert<T>(p.exact_results())));
  } else {
    CHECK(relative_l2(actual, p.exact_results()) <= 2 * tolerance<T>(K) + 0.002);
  }
}

template <class T, class Launch>
void check_independence() {
  for (const RowQuantizer& quantizer : {kFloatRows, kZeroPoints}) {
    const std::int64_t M = tiny_shapes() ? 11 : 70;
    const CodeProblem<T, WarpCodeLayout> p(M, 24, 264, RowEpilogue::activation, true, quantizer);
    check_independent_rows<T>(p, Launch(), {1, 9});
    if (!tiny_shapes()) check_independent_rows<T>(p, Launch(), {2, 33});
  }
  if (tiny_shapes()) return;
  const CodeProblem<T, WarpCodeLayout> logits(41, 25, 72, RowEpilogue::logits, true, kFloatRows);
  check_independent_rows<float>(logits, Launch(), {1, 40});
}

template <class T, class KV, class Launch>
void check_cache_rows(std::int64_t M, bool with_slots) {
  constexpr std::int64_t C = 40, K = 72, kLength = 7;
  for (const RowQuantizer& quantizer : {kFloatRows, kZeroPoints}) {
    const CodeProblem<T, WarpCodeLayout> p(M, 3 * C, K, RowEpilogue::store, true, quantizer);
    const std::vector<T> expected = p.template run<T>(0, M, Launch());
    Stream stream;
    const std::vector<KV> before = convert<KV>(random_floats((M + 2) * kLength * C, 9));
    const auto keys = upload(before, stream), values = upload(before, stream);
    std::vector<std::int32_t> slot, position;
    for (std::int64_t r = 0; r < M; ++r) {
      slot.push_back(static_cast<std::int32_t>(with_slots ? M + 1 - r : r));
      position.push_back(static_cast<std::int32_t>((5 * r + 3) % kLength));
    }
    const auto slots = upload(slot, stream), positions = upload(position, stream);
    const auto q = p.template run<T>(0, M, [&](const auto& store, Stream& own) {
      InvariantGemmCall<T, T, KV> call;
      call.epilogue = RowEpilogue::qkv;
      call.M = M, call.N = 3 * C, call.K = K;
      call.inp = store.inp, call.bias = store.bias;
      call.norm_weight = store.norm_weight, call.norm_bias = store.norm_bias;
      call.norm_epsilon = store.norm_epsilon;
      call.codes = store.codes, call.quantizer = store.quantizer;
      call.out = store.out;
      call.keys = const_cast<KV*>(keys.data()), call.values = const_cast<KV*>(values.data());
      call.T_max = kLength;
      call.slot = with_slots ? slots.data() : nullptr;
      call.position = positions.data();
      Launch()(call, own);
    });
    std::vector<T> expected_q;
    std::vector<KV> expected_caches[2] = {before, before};
    for (std::int64_t r = 0; r < M; ++r) {
      const T* const row = expected.data() + r * 3 * C;
      expected_q.insert(expected_q.end(), row, row + C);
      for (std::int64_t c = 0; c < 2 * C; ++c)
        expected_caches[c / C][(slot[r] * kLength + position[r]) * C + c % C] =
            convert<KV>(std::vector<float>{to_float(row[C + c])})[0];
    }
    CHECK(same_bits(std::vector<T>(q.begin(), q.begin() + M * C), expected_q));
    CHECK(same_bits(download(keys, stream), expected_caches[0]));
    CHECK(same_bits(download(values, stream), expected_caches[1]));
  }
}

}  // namespace

TEST_SUITE("invariant_gemm_int8_kernels") {
  TEST_CASE_TEMPLATE("kernels of INT8 rows and weights are exact for every number of rows", Launch,
                     GeneratedKernel, PromptKernel, WidePromptKernel) {
    check_exact_rows<llmc::bf16, Launch>({1, 9});
    check_exact_rows<llmc::fp16, Launch>({2});
    if (tiny_shapes()) return check_exact_rows<float, Launch>({4, 33});
    for (std::int64_t M = 1; M <= 40; ++M) check_exact_rows<float, Launch>({M});
    check_exact_rows<float, Launch>({64, 65});
    check_exact_rows<llmc::bf16, Launch>({4, 5, 130});
    check_exact_rows<llmc::fp16, Launch>({8, 33});
  }

  TEST_CASE_TEMPLATE("kernels of INT8 rows and weights are exact for other sizes", Launch,
                     GeneratedKernel, PromptKernel, WidePromptKernel) {
    const auto check = [](std::int64_t M, std::int64_t N, std::int64_t K) {
      check_exact<llmc::bf16, WarpCodeLayout>(M, N, K, RowEpilogue::store, false, kZeroPoints,
                                              Launch());
    };
    check(3, 8, 8);
    check(9, 24, 2568);  // two slabs of 1536 terms
    if (tiny_shapes()) return;
    for (const std::int64_t size : {16, 48, 112, 208}) {
      check(5, size, 16);
      check(9, 16, size);
    }
    check(300, 16, 24);
    check(2, 16, 6400);  // GPT-2 XL: fewer rows per block
    check(9, 8, 6400);
  }

  TEST_CASE_TEMPLATE("kernels normalise the rows that they quantize", Launch, GeneratedKernel,
                     PromptKernel) {
    check_norm<float, Launch>(3, 24, 136);
    check_norm<float, Launch>(9, 24, 1032);
    check_norm<llmc::bf16, Launch>(tiny_shapes() ? 5 : 17, 40, 776);
    check_norm<llmc::fp16, Launch>(2, 8, 264);
  }

  TEST_CASE_TEMPLATE("kernels of float rows and INT8 weights match the definition", T, float,
                     llmc::bf16, llmc::fp16) {
    if (checked_as_bf16<T>()) return;
    const auto check = [](auto launch, std::int64_t M) {
      check_float_rows<T, T, WarpCodeLayout>(M, 136, 40, RowEpilogue::store, M % 2 == 0, launch);
      check_float_rows<T, T, WarpCodeLayout>(M, 24, 616, RowEpilogue::add, true, launch);
      check_float_rows<float, T, WarpCodeLayout>(M, M == 7 ? 257 : 33, 136, RowEpilogue::logits,
                                                 true, launch);
    };
    check(GeneratedKernel(), 7);
    check(PromptKernel(), 3);
    if constexpr (sizeof(T) == 2) check(WidePromptKernel(), tiny_shapes() ? 2 : 66);
    if (tiny_shapes()) return;
    for (const std::int64_t M : {1, 16, 40}) check(GeneratedKernel(), M);
    check(PromptKernel(), 65);
    check_float_rows<T, T, WarpCodeLayout>(2, 24, 4104, RowEpilogue::store, false,
                                           GeneratedKernel());
  }

  TEST_CASE_TEMPLATE("a block computes several tiles of the logits of INT8 weights", T, float,
                     llmc::bf16) {
    const auto few_blocks = [](const auto& call, Stream& stream) {
      llmc::row_kernels::launch_generated_codes<true>(call, stream, 2);
    };
    for (const std::int64_t K : {24, 1160}) {
      const CodeProblem<T, WarpCodeLayout> p(9, 75, K, RowEpilogue::logits, true, kFloatRows);
      CHECK(same_bits(p.template run<float>(0, 9, few_blocks),
                      p.template run<float>(0, 9, GeneratedKernel())));
    }
  }

  TEST_CASE_TEMPLATE("a row of a kernel with INT8 weights does not depend on the other rows", T,
                     float, llmc::bf16) {
    check_independence<T, GeneratedKernel>();
    check_independence<T, PromptKernel>();
    if constexpr (sizeof(T) == 2) check_independence<T, WidePromptKernel>();
  }

  TEST_CASE("both tiles of prompts with INT8 weights have the same bits") {
    const CodeProblem<llmc::bf16, WarpCodeLayout> p(70, 72, 296, RowEpilogue::activation, true,
                                                    kFloatRows);
    CHECK(same_bits(p.run<llmc::bf16>(0, 70, PromptKernel()),
                    p.run<llmc::bf16>(0, 70, WidePromptKernel())));
  }

  TEST_CASE_TEMPLATE("kernels with INT8 weights write queries, keys and values to their rows",
                     Launch, GeneratedKernel, PromptKernel) {
    check_cache_rows<float, float, Launch>(3, true);
    check_cache_rows<llmc::bf16, llmc::bf16, Launch>(9, true);
    check_cache_rows<llmc::fp16, llmc::fp16, Launch>(2, false);
  }

  TEST_CASE_TEMPLATE("a kernel reports a row that is not finite, whose results are NaN", Launch,
                     GeneratedKernel, PromptKernel) {
    for (const float number : {std::numeric_limits<float>::infinity(),
                               -std::numeric_limits<float>::infinity(), std::nanf("")}) {
      CodeProblem<float, WarpCodeLayout> p(5, 136, 80, RowEpilogue::store, false, kZeroPoints);
      p.inp[3 * 80 + 77] = number;
      Stream stream;
      auto sites = upload(std::vector<std::int32_t>(10), stream);
      const auto positions = upload(std::vector<std::int32_t>{0, 1, 0, 1, 0}, stream);
      for (const std::int32_t site : {7, 8}) {
        const auto out = p.run<float>(0, 5, [&](auto call, Stream& own) {
          call.faults = {sites.data(), 2, nullptr, positions.data(), site};
          Launch()(call, own);
        });
        for (std::int64_t i = 0; i < 5 * 136; ++i) CHECK(std::isnan(out[i]) == (i / 136 == 3));
      }
      CHECK(download(sites, stream) == std::vector<std::int32_t>{0, 0, 0, 0, 0, 0, 0, 7, 0, 0});
    }
  }

  TEST_CASE_TEMPLATE("kernels multiply the results of GELU by their factors", Launch,
                     GeneratedKernel, PromptKernel) {
    const CodeProblem<float, WarpCodeLayout> p(6, 48, 80, RowEpilogue::activation, true,
                                               kZeroPoints);
    Stream stream;
    std::vector<float> factors(48);
    for (std::size_t i = 0; i < factors.size(); ++i) factors[i] = 1 + static_cast<float>(i % 4);
    const auto memory = upload(factors, stream);
    const auto plain = p.run<float>(0, 6, Launch());
    auto scaled = p.run<float>(0, 6, [&](auto call, Stream& own) {
      call.gelu_factors = memory.data();
      Launch()(call, own);
    });
    for (std::size_t i = 0; i < scaled.size(); ++i) scaled[i] /= factors[i % 48];
    CHECK(relative_l2(scaled, plain) <= 1e-7);
  }

  TEST_CASE_TEMPLATE("an overlapped kernel with INT8 weights waits for the launch before it",
                     Launch, GeneratedKernel, PromptKernel) {
    // The second launch reads what the first one writes; the results are those of two launches with
    // a wait of the host between them.
    const CodeProblem<float, WarpCodeLayout> p(9, 40, 40, RowEpilogue::store, true, kZeroPoints);
    const auto chain = [&](bool wait) {
      return p.run<float>(0, 9, [&](auto call, Stream& own) {
        llmc::Buffer<float> middle(9 * 40);
        const auto last = call.out;
        call.out = middle.data();
        Launch()(call, own);
        if (wait) own.synchronize();
        call.inp = middle.data();
        call.out = last;
        Launch()(call, own);
        own.synchronize();
      });
    };
    CHECK(same_bits(chain(false), chain(true)));
  }
}
