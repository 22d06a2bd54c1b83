// The kernels of the products of inference, each started by its launcher: on a GPU, and on the host
// executor, whose builds do not use them otherwise.
#include <doctest/doctest.h>

#include "llmc/ops/gemm/row_product_kernels.h"
#include "test/row_products.h"

namespace {

using namespace llmc_test;
using namespace llmc_test::row_products;
using llmc::RowKind;

template <RowKind kKind>
struct LaunchKind {
  template <class Call>
  void operator()(Call call, Stream& stream) const {
    call.kind = kKind;
    llmc::launch_row_product(call, stream);
  }
};
using Generated = LaunchKind<RowKind::generated>;
using Prompt = LaunchKind<RowKind::prompt>;

// Prompt rows by the wide tiles, whatever N is.
struct WidePrompt {
  template <class T, class KV>
  void operator()(const RowProductCall<T, T, KV>& call, Stream& stream) const {
    llmc::row_kernels::launch_prompt_tile<llmc::row_kernels::PromptTile<T, 128, 128, false>>(
        call, stream);
  }
};

template <class T, class Launch>
constexpr bool kComputesLogits = !std::is_same_v<Launch, WidePrompt>;

template <class T, class Launch>
void check_definition() {
  const Launch launch;
  for (const std::int64_t M : {1, 7, 8, 9, 16, 17, 65}) {
    for (const bool norm : {false, true}) {
      check_problem<T>(Problem<T>(M, 40, 24, RowEpilogue::store, norm), launch);
      check_problem<T>(Problem<T>(M, 136, 40, RowEpilogue::gelu, norm), launch);
      check_problem<T>(Problem<T>(M, 24, 136, RowEpilogue::add, norm), launch);
      if constexpr (kComputesLogits<T, Launch>) {
        check_problem<float>(Problem<T>(M, 257, 24, RowEpilogue::logits, norm), launch);
        check_problem<float>(Problem<T>(M, 9, 136, RowEpilogue::logits, norm), launch);
      }
    }
  }
}

// Each row alone, and in batches of several sizes and places.
template <class T, class Launch>
void check_independence() {
  const Launch launch;
  const Problem<T> p(70, 24, 136, RowEpilogue::store, true);
  CHECK(rows_are_independent<T>(p, launch));
  const auto all = run_rows<T>(p, 0, p.M, launch);
  bool same = true;
  for (std::int64_t r = 0; r < p.M; ++r) {
    same = same && same_bits(run_rows<T>(p, r, 1, launch),
                             std::vector<T>(all.begin() + r * p.N, all.begin() + (r + 1) * p.N));
  }
  CHECK(same);
  CHECK(rows_are_independent<T>(Problem<T>(70, 40, 776, RowEpilogue::gelu, true), launch));
  if constexpr (kComputesLogits<T, Launch>) {
    CHECK(rows_are_independent<float>(Problem<T>(70, 33, 136, RowEpilogue::logits, true), launch));
  }
}

template <class T, class KV, class Launch>
void check_caches() {
  for (const std::int64_t M : {1, 3, 20, 67}) {
    for (const bool with_slots : {false, true})
      check_cache<T, KV>(M, with_slots, qkv_launcher<T, KV>(Launch()));
  }
}

}  // namespace

TEST_SUITE("row_product_kernels") {
  TEST_CASE_TEMPLATE("the kernels match the definition", T, float, bf16, fp16) {
    check_definition<T, Generated>();
    check_definition<T, Prompt>();
    if constexpr (sizeof(T) == 2) check_definition<T, WidePrompt>();
  }

  TEST_CASE_TEMPLATE("the kernels match the definition if their rings are used again", T, float,
                     bf16) {
    // Generated rows read 3 or 4 slabs of 768 or 256 terms ahead.
    check_problem<T>(Problem<T>(9, 24, 4104, RowEpilogue::add, true), Generated());
    check_problem<T>(Problem<T>(3, 40, 2568, RowEpilogue::store, false), Generated());
    check_problem<T>(Problem<T>(3, 136, 776, RowEpilogue::gelu, true), Prompt());
    if constexpr (sizeof(T) == 2)
      check_problem<T>(Problem<T>(129, 136, 296, RowEpilogue::gelu, true), WidePrompt());
  }

  TEST_CASE_TEMPLATE("a block computes several tiles of the logits", T, float, bf16) {
    check_problem<float>(Problem<T>(2, 9001, 24, RowEpilogue::logits, true), Generated());
    check_problem<float>(Problem<T>(1, 4259, 1032, RowEpilogue::logits, true), Generated());
  }

  TEST_CASE_TEMPLATE("the kernels give a row the same bits in every batch", T, float, bf16, fp16) {
    check_independence<T, Generated>();
    check_independence<T, Prompt>();
    if constexpr (sizeof(T) == 2) check_independence<T, WidePrompt>();
  }

  TEST_CASE_TEMPLATE("both tiles of prompts have the same bits", T, bf16, fp16) {
    const Problem<T> p(70, 136, 296, RowEpilogue::gelu, true);
    CHECK(same_bits(run_rows<T>(p, 0, p.M, Prompt()), run_rows<T>(p, 0, p.M, WidePrompt())));
  }

  TEST_CASE("the kernels write queries, keys and values to their rows and nothing else") {
    check_caches<float, float, Generated>();
    check_caches<bf16, bf16, Generated>();
    check_caches<fp16, float, Generated>();
    check_caches<float, float, Prompt>();
    check_caches<bf16, float, Prompt>();
    check_caches<fp16, fp16, Prompt>();
    check_caches<bf16, bf16, WidePrompt>();
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
    check(Generated());
    check(Prompt());
  }
}
