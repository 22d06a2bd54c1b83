// The embedding in addition to its cases in dev/ops/embedding.h: slices of the vocabulary have the
// bits of the whole, the order of the position gradient's sum, and errors.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "dev/harness/arrays.h"
#include "llmc/ops/embedding.h"
#include "llmc/ops/token_buckets.h"
#include "test/support.h"

namespace {

using namespace llmc;
using namespace llmc_test;
using llmc_dev::DeviceArray;

constexpr std::int64_t kB = 3, kT = 7, kRows = kB * kT, kC = 40, kV = 11;
// A short slice, one token, an empty slice and the rest, in vocabulary order.
const std::vector<VocabularySlice> kSlices = {{0, 3}, {3, 4}, {4, 4}, {4, 11}};

template <class T>
std::vector<T> rows_of(const std::vector<T>& x, std::int64_t begin, std::int64_t end) {
  return {x.begin() + begin * kC, x.begin() + end * kC};
}

template <class T>
std::vector<T> embedded(const std::vector<std::int32_t>& tokens, const std::vector<T>& wte_rows,
                        const std::vector<T>& wpe_rows, VocabularySlice slice) {
  Stream stream;
  const DeviceArray<std::int32_t> ids(tokens, stream);
  const DeviceArray<T> wte(wte_rows, stream), wpe(wpe_rows, stream);
  const DeviceArray<T> out(std::vector<T>(kRows * kC, from_float<T>(NAN)), stream);
  embedding_forward<T>(make_tensor(out.data(), kRows, kC),
                       make_tensor<const std::int32_t>(ids.data(), kRows),
                       make_tensor(wte.data(), std::ssize(wte_rows) / kC, kC),
                       make_tensor(wpe.data(), kT, kC), kT, slice, stream);
  CHECK(out.guards_intact());
  return out.stored();
}

// Device memory with the buckets of some tokens.
class Buckets {
 public:
  Buckets(const std::vector<std::int32_t>& tokens, Stream& stream)
      : host_(make_token_buckets(tokens)),
        token_(host_.token, stream),
        start_(host_.start, stream),
        position_(host_.position, stream) {}
  TokenBucketsView view() const {
    return {token_.data(), start_.data(), position_.data(), std::ssize(host_.token)};
  }

 private:
  TokenBuckets host_;
  DeviceArray<std::int32_t> token_, start_, position_;
};

TEST_SUITE("embedding") {
  TEST_CASE_TEMPLATE("the sum over slices has the bits of the whole vocabulary", T, float, bf16,
                     fp16) {
    const auto tokens = random_ints(kRows, 5, kV);
    auto wte = convert<T>(random_floats(kV * kC, 1)), wpe = convert<T>(random_floats(kT * kC, 2));
    // Both addends of an element are -0, and so is its sum.
    wte[tokens[1] * kC + 3] = wpe[1 * kC + 3] = from_float<T>(-0.0f);
    const std::vector<T> whole = embedded(tokens, wte, wpe, {0, kV});
    CHECK(std::signbit(to_float(whole[1 * kC + 3])));
    std::vector<T> sum;
    for (const VocabularySlice slice : kSlices) {
      const std::vector<T> part =
          embedded(tokens, rows_of(wte, slice.begin, slice.end), wpe, slice);
      if (sum.empty()) {
        sum = part;
        continue;
      }
      for (std::size_t i = 0; i < sum.size(); ++i) {
        sum[i] = from_float<T>(to_float(sum[i]) + to_float(part[i]));
      }
    }
    CHECK(same_bits(sum, whole));
  }

  TEST_CASE("ids outside the vocabulary are looked up as zeros") {
    std::vector<std::int32_t> tokens(kRows, kV);
    tokens[0] = -1;
    tokens[1] = 0x7fffffff;
    const auto wte = random_floats(kV * kC, 1), wpe = random_floats(kT * kC, 2);
    for (const float x : embedded(tokens, wte, wpe, {0, kV})) CHECK_EQ(x, 0.0f);
  }

  TEST_CASE_TEMPLATE("token gradients of slices have the bits of the whole vocabulary", T, float,
                     bf16) {
    Stream stream;
    const Buckets buckets(random_ints(kRows, 5, kV), stream);
    const DeviceArray<T> d_out(convert<T>(random_floats(kRows * kC, 6)), stream);
    const auto start = random_floats(kV * kC, 7);
    const auto gradient = [&](VocabularySlice slice) {
      const DeviceArray<float> d_wte(rows_of(start, slice.begin, slice.end), stream);
      token_embedding_backward<T>(make_tensor(d_wte.data(), slice.size(), kC),
                                  make_tensor(d_out.data(), kRows, kC), buckets.view(), slice,
                                  stream);
      CHECK(d_wte.guards_intact());
      return d_wte.stored();
    };
    const std::vector<float> whole = gradient({0, kV});
    CHECK(whole != start);
    for (const VocabularySlice slice : kSlices) {
      CHECK(same_bits(gradient(slice), rows_of(whole, slice.begin, slice.end)));
    }
  }

  TEST_CASE("position gradients add the rows in ascending order") {
    Stream stream;
    const auto rows = random_floats(kRows * kC, 6), start = random_floats(kT * kC, 7);
    struct Part {
      std::int64_t first, count;
    };
    // All rows; none; parts that begin and end inside sequences; the last row.
    for (const Part part :
         {Part{0, kRows}, Part{4, 0}, Part{3, 2}, Part{5, 13}, Part{kRows - 1, 1}}) {
      CAPTURE(part.first);
      std::vector<float> expected = start;
      for (std::int64_t t = 0; t < kT; ++t) {
        for (std::int64_t c = 0; c < kC; ++c) {
          float sum = 0;
          for (std::int64_t r = part.first; r < part.first + part.count; ++r) {
            if (r % kT == t) sum += rows[r * kC + c];
          }
          expected[t * kC + c] += sum;
        }
      }
      const DeviceArray<float> d_out(rows_of(rows, part.first, part.first + part.count), stream);
      const DeviceArray<float> d_wpe(start, stream);
      position_embedding_backward<float>(make_tensor(d_wpe.data(), kT, kC),
                                         make_tensor(d_out.data(), part.count, kC), part.first, kT,
                                         stream);
      CHECK(d_wpe.guards_intact());
      CHECK(same_bits(d_wpe.stored(), expected));
    }
  }

  TEST_CASE("sequences longer than the context are rejected") {
    Stream stream;
    float x[64];
    std::int32_t tokens[4] = {};
    CHECK_THROWS_WITH_AS(
        embedding_forward<float>(make_tensor(x, 4, 8), make_tensor(tokens, 4), make_tensor(x, 1, 8),
                                 make_tensor(x, 3, 8), 4, {0, 1}, stream),
        doctest::Contains("longer than the context"), Error);
    CHECK_THROWS_WITH_AS(position_embedding_backward<float>(make_tensor(x, 3, 8),
                                                            make_tensor(x, 4, 8), 0, 4, stream),
                         doctest::Contains("longer than the context"), Error);
  }

  TEST_CASE("a slice with more tokens than rows is rejected") {
    Stream stream;
    float x[64];
    std::int32_t tokens[4] = {};
    const auto look_up = [&](VocabularySlice slice) {
      embedding_forward<float>(make_tensor(x, 4, 8), make_tensor(tokens, 4), make_tensor(x, 2, 8),
                               make_tensor(x, 4, 8), 4, slice, stream);
    };
    CHECK_THROWS_WITH_AS(look_up({3, 6}), doctest::Contains("tokens [3, 6) do not fit 2 rows"),
                         Error);
    CHECK_THROWS_AS(look_up({3, 2}), Error);
    CHECK_THROWS_AS(look_up({-1, 0}), Error);
  }
}

}  // namespace
