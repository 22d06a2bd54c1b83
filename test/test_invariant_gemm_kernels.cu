// The kernels of the products of inference, each started by its launcher: on a GPU, and on the host
// executor, whose builds do not use them otherwise.
#include <doctest/doctest.h>

#include "llmc/ops/gemm/invariant_gemm_generated.h"
#include "llmc/ops/gemm/invariant_gemm_kernels.h"
#include "llmc/ops/gemm/invariant_gemm_prompt.h"
#include "test/invariant_gemms.h"

namespace {

using namespace llmc_test;
using namespace llmc_test::invariant_gemms;
using llmc::RowKind;

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
  template <class T, class KV>
  void operator()(const InvariantGemmCall<T, T, KV>& call, Stream& stream) const {
    llmc::row_kernels::launch_prompt_tile<llmc::row_kernels::PromptTile<T, 128, 128, false>>(
        call, stream);
  }
};

template <class Launch>
constexpr bool kComputesLogits = !std::is_same_v<Launch, WidePromptKernel>;

template <class T, class Launch>
void check_definition(std::initializer_list<std::int64_t> rows) {
  const Launch launch;
  for (const std::int64_t M : rows) {
    const bool norm = M % 8 != 0;
    check_problem<T>(Problem<T>(M, 40, 24, RowEpilogue::store, norm), launch);
    check_problem<T>(Problem<T>(M, 8, 8, RowEpilogue::store, !norm), launch);
    check_problem<T>(Problem<T>(M, 136, 40, RowEpilogue::activation, norm), launch);
    check_problem<T>(Problem<T>(M, 24, 136, RowEpilogue::add, !norm), launch);
    if constexpr (kComputesLogits<Launch>)
      check_problem<float>(Problem<T>(M, M == 17 ? 257 : 33, 136, RowEpilogue::logits, norm),
                           launch);
  }
}

// Each row alone, and in batches of several sizes and places.
template <class T, class Launch>
void check_independence() {
  const Launch launch;
  const Problem<T> p(70, 24, 136, RowEpilogue::store, true);
  CHECK(rows_are_independent<T>(p, launch, {2, 9, 65}));
  if (tiny_shapes()) return;
  CHECK(rows_are_independent<T>(p, launch, {7, 8, 33, 64}));
  const auto all = run_rows<T>(p, 0, p.M, launch);
  bool same = true;
  for (std::int64_t r = 0; r < p.M; ++r) {
    same = same && same_bits(run_rows<T>(p, r, 1, launch),
                             std::vector<T>(all.begin() + r * p.N, all.begin() + (r + 1) * p.N));
  }
  CHECK(same);
  CHECK(rows_are_independent<T>(Problem<T>(70, 24, 776, RowEpilogue::activation, true), launch,
                                {1, 9}));
  if constexpr (kComputesLogits<Launch>) {
    CHECK(rows_are_independent<float>(Problem<T>(70, 17, 72, RowEpilogue::logits, true), launch,
                                      {1, 9, 65}));
  }
}

template <class T, class KV, class Launch>
void check_caches() {
  for (const std::int64_t M : {1, 67}) {
    for (const bool with_slots : {false, true})
      check_cache<T, KV>(M, with_slots, qkv_launcher<T, KV>(Launch()));
  }
}

// x += gelu(norm(x) · up) · down, twice, by four launches. With `wait`, the host waits after each.
template <class T, class Launch>
std::vector<T> run_chain(Launch launch, bool wait) {
  constexpr std::int64_t M = 9, C = 24, H = 40;
  Stream stream;
  const auto upload_random = [&](std::int64_t n, std::uint64_t seed) {
    return upload(convert<T>(random_floats(n, seed, 0.3)), stream);
  };
  const auto x = upload_random(M * C, 1), h = upload_random(M * H, 2), up = upload_random(C * H, 3),
             down = upload_random(H * C, 4), norm = upload_random(2 * C, 5);
  for (int i = 0; i < 4; ++i) {
    const bool first = i % 2 == 0;
    InvariantGemmCall<T, T, T> call;
    call.epilogue = first ? RowEpilogue::activation : RowEpilogue::add;
    call.M = M;
    call.N = call.out_stride = first ? H : C;
    call.K = first ? C : H;
    call.inp = first ? x.data() : h.data();
    if (first) call.norm_weight = norm.data();
    if (first) call.norm_bias = norm.data() + C;
    call.norm_epsilon = 1e-5f;
    call.weight = first ? up.data() : down.data();
    call.out = first ? h.data() : x.data();
    call.residual = first ? nullptr : x.data();
    launch(call, stream);
    if (wait) stream.synchronize();
  }
  return download(x, stream);
}

}  // namespace

TEST_SUITE("invariant_gemm_kernels") {
  TEST_CASE_TEMPLATE("the kernels match the definition", T, float, bf16, fp16) {
    if (checked_as_bf16<T>()) return;
    check_definition<T, GeneratedKernel>({1, 9, 17});
    check_definition<T, PromptKernel>({1, 65});
    if (!tiny_shapes()) {
      check_definition<T, GeneratedKernel>({7, 8, 16, 65});
      check_definition<T, PromptKernel>({8, 17});
    }
    if constexpr (sizeof(T) == 2) check_definition<T, WidePromptKernel>({1, 65, 136});
  }

  TEST_CASE_TEMPLATE("the kernels match the definition if their rings are used again", T, float,
                     bf16) {
    // Generated rows read 3 or 4 slabs of 768 or 256 terms ahead.
    check_problem<T>(Problem<T>(9, 24, 4104, RowEpilogue::add, true), GeneratedKernel());
    check_problem<T>(Problem<T>(3, 40, 2568, RowEpilogue::store, false), GeneratedKernel());
    check_problem<T>(Problem<T>(3, 136, 776, RowEpilogue::activation, true), PromptKernel());
    if constexpr (sizeof(T) == 2)
      check_problem<T>(Problem<T>(129, 136, 296, RowEpilogue::activation, true),
                       WidePromptKernel());
  }

  TEST_CASE_TEMPLATE("the kernels have the activation function and the epsilon of the model", T,
                     float, bf16) {
    for (const Activation f : {Activation::gelu, Activation::relu}) {
      const Problem<T> p(9, 24, 40, RowEpilogue::activation, true, f, 0.3f);
      check_problem<T>(p, GeneratedKernel());
      check_problem<T>(p, PromptKernel());
    }
  }

  TEST_CASE_TEMPLATE("a block computes several tiles of the logits", T, float, bf16) {
    const auto few_blocks = [](const auto& call, Stream& stream) {
      llmc::row_kernels::launch_generated<true>(call, stream, 2);
    };
    for (const std::int64_t K : {24, 1032}) {
      const Problem<T> p(9, 75, K, RowEpilogue::logits, true);
      check_problem<float>(p, few_blocks);
      CHECK(same_bits(run_rows<float>(p, 0, p.M, few_blocks),
                      run_rows<float>(p, 0, p.M, GeneratedKernel())));
    }
  }

  TEST_CASE_TEMPLATE("the kernels give a row the same bits in every batch", T, float, bf16) {
    check_independence<T, GeneratedKernel>();
    check_independence<T, PromptKernel>();
    if constexpr (sizeof(T) == 2) check_independence<T, WidePromptKernel>();
  }

  TEST_CASE_TEMPLATE("both tiles of prompts have the same bits", T, bf16, fp16) {
    const Problem<T> p(70, 72, 296, RowEpilogue::activation, true);
    CHECK(same_bits(run_rows<T>(p, 0, p.M, PromptKernel()),
                    run_rows<T>(p, 0, p.M, WidePromptKernel())));
  }

  TEST_CASE("the kernels write queries, keys and values to their rows and nothing else") {
    check_caches<float, float, GeneratedKernel>();
    check_caches<bf16, bf16, GeneratedKernel>();
    check_caches<fp16, float, GeneratedKernel>();
    check_caches<float, float, PromptKernel>();
    check_caches<bf16, float, PromptKernel>();
    check_caches<fp16, fp16, PromptKernel>();
    check_caches<bf16, bf16, WidePromptKernel>();
  }

  TEST_CASE_TEMPLATE("overlapped launches read what earlier ones wrote", T, float, bf16) {
    CHECK(same_bits(run_chain<T>(GeneratedKernel(), false), run_chain<T>(GeneratedKernel(), true)));
    CHECK(same_bits(run_chain<T>(PromptKernel(), false), run_chain<T>(PromptKernel(), true)));
  }

  TEST_CASE_TEMPLATE("the residual of a kernel may be its result", T, float, bf16) {
    const Problem<T> p(21, 24, 40, RowEpilogue::add, true);
    const auto check = [&](auto launch) {
      const auto in_place = [&](auto call, Stream& stream) {
        llmc::copy_to_device(call.out, p.residual.data(), p.M * p.N, stream);
        stream.synchronize();
        call.residual = call.out;
        launch(call, stream);
      };
      CHECK(same_bits(run_rows<T>(p, 0, p.M, in_place), run_rows<T>(p, 0, p.M, launch)));
    };
    check(GeneratedKernel());
    check(PromptKernel());
  }
}
