// The ops of generation in addition to their cases in dev/ops: the batch does not change the bits
// of a sequence, embeddings may begin at any position, and errors.
#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "dev/harness/arrays.h"
#include "llmc/ops/attention/cached_attention.h"
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

template <class T>
std::vector<T> first_elements(const std::vector<T>& values, std::int64_t count) {
  return std::vector<T>(values.begin(), values.begin() + count);
}

// Queries, keys and values of the newest tokens of B sequences. Sequence b has T - 5 * b tokens.
template <class T>
struct Problem {
  std::int64_t B, T_max, NH, HS;
  std::vector<T> qkv, keys, values;
  std::int64_t C() const { return NH * HS; }

  Problem(std::int64_t sequences, std::int64_t T_max, std::int64_t NH, std::int64_t HS)
      : B(sequences),
        T_max(T_max),
        NH(NH),
        HS(HS),
        qkv(convert<T>(random_floats(B * 3 * C(), 5))),
        keys(convert<T>(random_floats(B * T_max * C(), 6))),
        values(convert<T>(random_floats(B * T_max * C(), 7))) {}

  // The first sequence in a batch of its own.
  Problem first() const {
    Problem p = *this;
    p.B = 1;
    p.qkv = first_elements(qkv, 3 * C());
    p.keys = first_elements(keys, T_max * C());
    p.values = first_elements(values, T_max * C());
    return p;
  }
};

template <class T>
DeviceArray<T> attend(const Problem<T>& p, Stream& stream) {
  Ids newest;
  for (std::int64_t b = 0; b < p.B; ++b) {
    newest.push_back(static_cast<std::int32_t>(p.T_max - 5 * b - 1));
  }
  const DeviceArray<T> qkv(p.qkv, stream), keys(p.keys, stream), values(p.values, stream);
  const DeviceArray<std::int32_t> position(newest, stream);
  DeviceArray<T> out(std::vector<T>(static_cast<std::size_t>(p.B * p.C())), stream);
  cached_attention<T>(
      make_tensor(out.data(), p.B, 1, p.C()), make_tensor(qkv.data(), p.B, 1, 3 * p.C()),
      make_tensor(keys.data(), p.B, p.T_max, p.C()),
      make_tensor(values.data(), p.B, p.T_max, p.C()), view_of(position), p.NH, stream);
  stream.synchronize();
  return out;
}

TEST_SUITE("infer_ops") {
  TEST_CASE_TEMPLATE("cached attention is bitwise repeatable, for one sequence and in a batch", T,
                     float, bf16, fp16) {
    Stream stream;
    const Problem<T> p = tiny_shapes() ? Problem<T>(2, 40, 1, 8) : Problem<T>(3, 150, 3, 64);
    const DeviceArray<T> all = attend(p, stream), again = attend(p, stream);
    CHECK(again.digest(0) == all.digest(0));
    const DeviceArray<T> alone = attend(p.first(), stream);
    const DeviceArray<T> expected(all.stored(0, p.C()), stream);
    CHECK(alone.digest(0) == expected.digest(0));
  }

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
                         make_tensor(wte.data(), V, C), make_tensor(wpe.data(), context, C),
                         static_cast<const std::int32_t*>(positions.data()), T_new, {0, V}, stream);
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

  TEST_CASE("cached attention rejects shapes that it does not support") {
    Stream stream;
    Buffer<float> memory(1 << 12);
    const DeviceArray<std::int32_t> position(Ids{0, 0}, stream);
    const auto attend_to = [&](std::int64_t C, std::int64_t NH, std::int64_t q_rows,
                               std::int64_t key_width) {
      const auto out = make_tensor(memory.data(), 2, 1, C);
      cached_attention<float>(out, make_tensor(memory.data(), 2, q_rows, 3 * C),
                              make_tensor(memory.data(), 2, 4, key_width),
                              make_tensor(memory.data(), 2, 4, C), view_of(position), NH, stream);
    };
    CHECK_THROWS_WITH_AS(attend_to(24, 2, 1, 24), doctest::Contains("multiple of 8, from 8 to 128"),
                         Error);
    CHECK_THROWS_WITH_AS(attend_to(16, 2, 2, 16), doctest::Contains("'qkv'"), Error);
    CHECK_THROWS_WITH_AS(attend_to(16, 2, 1, 8), doctest::Contains("'keys'"), Error);
  }
}

}  // namespace
