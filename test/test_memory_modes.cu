// Training with less memory computes the bits of training that keeps everything: recomputed
// activations, offloaded state, updates by the CPU. Ranks are threads.
#include <doctest/doctest.h>

#include <cstdlib>
#include <vector>

#include "dev/harness/arrays.h"
#include "llmc/ops/layernorm.h"
#include "test/memory_cases.h"

using namespace llmc;
using namespace llmc_test;

namespace {

std::vector<ChoiceRow> rows_of_run() {
  if (long_run()) return all_rows(memory_dimensions(), is_valid_memory_case);
  return covering_rows(memory_dimensions(), is_valid_memory_case);
}

}  // namespace

TEST_SUITE("memory modes") {
  TEST_CASE("recomputed activations give the bits of stored ones, in every layout and dtype") {
    const std::vector<ChoiceRow> rows = rows_of_run();
    if (!long_run()) CHECK(rows.size() == 135);
    int number = 0;
    for (const ChoiceRow& row : rows) {
      if (tiny_shapes() && number++ % 8 != 0) continue;
      compare_with_plain(memory_case(row));
    }
  }

  TEST_CASE(
      "tensor ranks whose rows do not divide keep pieces of the input, of which some are "
      "empty") {
    if (tiny_shapes()) return;
    MemoryCase c{make_case({.ranks = 8, .tensor_ranks = 8}, 211, 1)};
    c.work.options.memory = {.recompute = Recompute::full};
    compare_with_plain(c);  // 12 rows in pieces of 2
    c.work.layout = {.ranks = 5, .tensor_ranks = 5};
    c.work.options.heads = 5;
    compare_with_plain(c);  // 12 rows in pieces of 3
  }

  TEST_CASE("the plain norm of a stored sum has the bits of the norm fused with the addition") {
    // A recomputed block normalises its stored input; its forward pass added and normalised.
    Stream stream;
    const std::int64_t rows = 7, C = 3072;
    const auto compare = [&]<class T>(T) {
      const auto values = [&](std::uint64_t seed, std::int64_t n) {
        return llmc_dev::DeviceArray<T>(convert<T>(random_floats(n, seed)), stream);
      };
      for (const std::int64_t channels : {std::int64_t{40}, std::int64_t{768}, C}) {
        CAPTURE(channels);
        const std::int64_t n = rows * channels;
        const auto a = values(1, n), b = values(2, n), sum = values(3, n), fused = values(4, n);
        const auto plain = values(5, n), again = values(6, n);
        const auto weight = values(7, channels), bias = values(8, channels);
        const llmc_dev::DeviceArray<float> mean(std::vector<float>(rows), stream);
        const llmc_dev::DeviceArray<float> rstd(mean.stored(), stream);
        const llmc_dev::DeviceArray<float> mean_2(mean.stored(), stream),
            rstd_2(mean.stored(), stream);
        const auto matrix = [&](const auto& x) { return make_tensor(x.data(), rows, channels); };
        const auto row = [&](const auto& x) { return make_tensor(x.data(), rows); };
        const auto w = make_tensor(weight.data(), channels), v = make_tensor(bias.data(), channels);
        residual_layernorm_forward<T>(matrix(sum), matrix(fused), row(mean), row(rstd), matrix(a),
                                      matrix(b), w, v, 1e-5f, stream);
        layernorm_forward<T>(matrix(plain), row(mean_2), row(rstd_2), matrix(sum), w, v, 1e-5f,
                             stream);
        layernorm_output<T>(matrix(again), matrix(sum), row(mean), row(rstd), w, v, stream);
        CHECK(llmc_test::same_bits(plain.stored(), fused.stored()));
        CHECK(llmc_test::same_bits(again.stored(), fused.stored()));
        CHECK(llmc_test::same_bits(mean_2.stored(), mean.stored()));
        CHECK(llmc_test::same_bits(rstd_2.stored(), rstd.stored()));
      }
    };
    compare(float());
    compare(bf16());
    compare(fp16());
  }
}
