// The embedding of generation in addition to its cases in dev/ops: sequences may begin at any
// position.
#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "dev/harness/arrays.h"
#include "llmc/ops/embedding.h"
#include "test/support.h"

namespace {

using namespace llmc;
using namespace llmc_test;
using llmc_dev::DeviceArray;
using Ids = std::vector<std::int32_t>;

Tensor<const std::int32_t, 1> view_of(const DeviceArray<std::int32_t>& ids) {
  return {ids.data(), {ids.size()}};
}

TEST_SUITE("infer_ops") {
  TEST_CASE_TEMPLATE("embeddings begin at the first position of each sequence", T, float, bf16,
                     fp16) {
    const std::int64_t B = 3, T_new = 2, C = 24, V = 11, context = 9, rows = B * T_new;
    const Ids tokens = {3, 0, 10, 10, 1, 7}, first = {0, 7, 4};
    Stream stream;
    const DeviceArray<std::int32_t> ids(tokens, stream), positions(first, stream);
    const DeviceArray<T> wte(convert<T>(random_floats(V * C, 1)), stream);
    const DeviceArray<T> wpe(convert<T>(random_floats(context * C, 2)), stream);
    const DeviceArray<T> out(std::vector<T>(static_cast<std::size_t>(rows * C)), stream);
    embedding_forward<T>(make_tensor(out.data(), rows, C), view_of(ids),
                         make_tensor(wte.data(), V, C), make_tensor(wpe.data(), context, C), T_new,
                         {0, V}, stream, static_cast<const std::int32_t*>(positions.data()));
    std::vector<T> sums;
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t place = first[row / T_new] + row % T_new;
      const std::vector<T> a = wte.stored(tokens[row] * C, C), b = wpe.stored(place * C, C);
      for (std::int64_t c = 0; c < C; ++c) {
        sums.push_back(from_float<T>(to_float(a[c]) + to_float(b[c])));
      }
    }
    const DeviceArray<T> expected(sums, stream);
    CHECK(out.digest(0) == expected.digest(0));
    CHECK(out.guards_intact());
  }
}

}  // namespace
