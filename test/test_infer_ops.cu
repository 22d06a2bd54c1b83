// The ops of generation against their definitions: attention over a cache, writes to the cache, and
// embeddings that begin at any position.
//
// Tolerances are those of test_attention.cu: a sum of n terms in fp32 costs about u sqrt(n) / 2,
// with u = 2^-24, and (4 + sqrt(HS) + sqrt(T)) u allows twice that. In bf16 the inputs are exact
// and the result is rounded once, which costs 0.72 * 2^-8 / sqrt(3) of its norm; twice that is
// allowed.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "llmc/ops/attention/cached_attention.h"
#include "llmc/ops/attention/key_value_cache.h"
#include "llmc/ops/embedding.h"
#include "test/guarded.h"
#include "test/oracle/ops.h"
#include "test/support.h"

namespace {

using llmc::bf16;
using llmc::fp16;
using llmc::make_tensor;
using llmc::Stream;
using llmc_test::Data;
using llmc_test::Guarded;
using llmc_test::relative_l2;
using llmc_test::same_bits;
using llmc_test::upload;
using Ids = std::vector<std::int32_t>;

struct Case {
  std::int64_t B, T, NH, HS;
  double q_scale = 1.0;  // > 1: sharp softmax

  std::int64_t C() const { return NH * HS; }
  // Sequences of a batch have different lengths; cache rows from the length on are undefined.
  std::int64_t length(std::int64_t b) const { return std::max<std::int64_t>(1, T - 5 * b); }
};

std::string describe(const Case& c) {
  return "B " + std::to_string(c.B) + " T " + std::to_string(c.T) + " NH " + std::to_string(c.NH) +
         " HS " + std::to_string(c.HS);
}

// A tile has 32 keys; one round of all eight warps covers 256 keys.
std::vector<Case> cases() {
  if (llmc_test::tiny_shapes()) return {{1, 1, 1, 8}, {2, 33, 1, 24}, {1, 257, 1, 8}};
  std::vector<Case> all = {{2, 100, 2, 64, 4.0}};
  std::int64_t number = 0;
  for (const std::int64_t HS : {8, 24, 64, 80, 128}) {
    for (const std::int64_t T : {1, 2, 63, 64, 65, 256, 257, 300}) {
      all.push_back({1 + number % 3, T, 1 + number % 5, HS});
      ++number;
    }
  }
  return all;
}

template <class T>
double tolerance(const Case& c) {
  const double roots = std::sqrt(static_cast<double>(c.HS)) + std::sqrt(static_cast<double>(c.T));
  const double fp32 = c.q_scale * (4 + roots) * 0x1p-24;
  if constexpr (std::is_same_v<T, float>) return fp32;
  const double exp2_error = 0x1p-22;  // error of the hardware's approximation
  return 2 * 0.72 * llmc_test::kSpacing<T> / std::sqrt(3.0) + fp32 + exp2_error;
}

template <class T>
std::vector<T> nan_filled(std::int64_t n) {
  return llmc_test::convert<T>(std::vector<float>(static_cast<std::size_t>(n), std::nanf("")));
}

// Keys, values and the newest token's qkv of each sequence, copied from qkv (B, T, 3C).
template <class T>
struct Cached {
  std::vector<T> keys, values, qkv;
  Ids position;

  Cached(const Case& c, const std::vector<T>& all)
      : keys(nan_filled<T>(c.B * c.T * c.C())), values(keys) {
    for (std::int64_t b = 0; b < c.B; ++b) {
      for (std::int64_t t = 0; t < c.length(b); ++t) {
        const auto row = all.begin() + (b * c.T + t) * 3 * c.C();
        std::copy_n(row + c.C(), c.C(), keys.begin() + (b * c.T + t) * c.C());
        std::copy_n(row + 2 * c.C(), c.C(), values.begin() + (b * c.T + t) * c.C());
      }
      const auto last = all.begin() + (b * c.T + c.length(b) - 1) * 3 * c.C();
      qkv.insert(qkv.end(), last, last + 3 * c.C());
      position.push_back(static_cast<std::int32_t>(c.length(b) - 1));
    }
  }
};

template <class T>
std::vector<T> random_qkv(const Case& c) {
  auto values = llmc_test::random_floats(c.B * c.T * 3 * c.C(), 5);
  for (std::int64_t i = 0; i < std::ssize(values); ++i) {
    if (i % (3 * c.C()) < c.C()) values[i] *= static_cast<float>(c.q_scale);
  }
  return llmc_test::convert<T>(values);
}

template <class T>
std::vector<T> run_cached(const Case& c, const Cached<T>& in, bool& intact) {
  Stream stream;
  const auto qkv = upload(in.qkv, stream), keys = upload(in.keys, stream),
             values = upload(in.values, stream);
  const auto position = upload(in.position, stream);
  Guarded<T> out(nan_filled<T>(c.B * c.C()), stream);
  llmc::cached_attention<T>(
      make_tensor(out.data(), c.B, 1, c.C()), make_tensor(qkv.data(), c.B, 1, 3 * c.C()),
      make_tensor(keys.data(), c.B, c.T, c.C()), make_tensor(values.data(), c.B, c.T, c.C()),
      make_tensor(static_cast<const std::int32_t*>(position.data()), c.B), c.NH, stream);
  intact = out.intact();
  return out.values();
}

// Attention of the last token of each sequence, in fp64.
template <class T>
std::vector<double> definition(const Case& c, const std::vector<T>& qkv) {
  std::vector<double> exact;
  for (const T& x : qkv) exact.push_back(llmc_test::as_double(x));
  const auto all = llmc::oracle::attention_forward(exact, c.B, c.T, c.NH, c.HS);
  std::vector<double> expected;
  for (std::int64_t b = 0; b < c.B; ++b) {
    const auto row = all.out.begin() + (b * c.T + c.length(b) - 1) * c.C();
    expected.insert(expected.end(), row, row + c.C());
  }
  return expected;
}

}  // namespace

TEST_SUITE_BEGIN("infer_ops");

TEST_CASE_TEMPLATE("cached attention matches the last row of attention", T, float, bf16, fp16) {
  for (const Case& c : cases()) {
    CAPTURE(describe(c));
    const std::vector<T> qkv = random_qkv<T>(c);
    bool intact = false;
    const auto got = run_cached(c, Cached<T>(c, qkv), intact);
    CHECK(intact);
    CHECK(relative_l2(got, definition(c, qkv)) < tolerance<T>(c));
  }
}

TEST_CASE_TEMPLATE("cached attention is bitwise repeatable, for one sequence and in a batch", T,
                   float, bf16, fp16) {
  const Case c = llmc_test::tiny_shapes() ? Case{2, 40, 1, 8} : Case{3, 150, 3, 64};
  const std::vector<T> qkv = random_qkv<T>(c);
  bool intact = false;
  const auto first = run_cached(c, Cached<T>(c, qkv), intact);
  CHECK(same_bits(first, run_cached(c, Cached<T>(c, qkv), intact)));
  // The first sequence in a batch of its own: only its own rows matter.
  const Case alone{1, c.T, c.NH, c.HS};
  const std::vector<T> part(qkv.begin(), qkv.begin() + c.T * 3 * c.C());
  const auto single = run_cached(alone, Cached<T>(alone, part), intact);
  CHECK(same_bits(single, std::vector<T>(first.begin(), first.begin() + c.C())));
}

TEST_CASE_TEMPLATE("store_keys_values writes the given rows and no others", T, float, bf16, fp16) {
  for (const std::int64_t C : {8, 40, 2056}) {
    const std::int64_t B = 3, T_new = 2, T_max = 7;
    const Ids first = {0, 5, 2};
    const Data<T> qkv(B * T_new * 3 * C, 1), keys(B * T_max * C, 2), values(B * T_max * C, 3);
    Stream stream;
    Guarded<T> k(keys.stored, stream), v(values.stored, stream);
    const auto source = upload(qkv.stored, stream);
    const auto positions = upload(first, stream);
    llmc::store_keys_values<T>(
        make_tensor(k.data(), B, T_max, C), make_tensor(v.data(), B, T_max, C),
        make_tensor(source.data(), B, T_new, 3 * C),
        make_tensor(static_cast<const std::int32_t*>(positions.data()), B), stream);
    auto want_k = keys.stored, want_v = values.stored;
    for (std::int64_t row = 0; row < B * T_new; ++row) {
      const std::int64_t b = row / T_new, to = b * T_max + first[b] + row % T_new;
      std::copy_n(qkv.stored.begin() + row * 3 * C + C, C, want_k.begin() + to * C);
      std::copy_n(qkv.stored.begin() + row * 3 * C + 2 * C, C, want_v.begin() + to * C);
    }
    CHECK(same_bits(k.values(), want_k));
    CHECK(same_bits(v.values(), want_v));
    CHECK(k.intact());
    CHECK(v.intact());
  }
}

TEST_CASE_TEMPLATE("embeddings begin at the first position of each sequence", T, float, bf16,
                   fp16) {
  const std::int64_t B = 3, T_new = 2, C = 24, V = 11, context = 9;
  const Ids tokens = {3, 0, 10, 10, 1, 7}, first = {0, 7, 4};
  const Data<T> wte(V * C, 1), wpe(context * C, 2);
  Stream stream;
  const auto ids = upload(tokens, stream), positions = upload(first, stream);
  const auto words = upload(wte.stored, stream), places = upload(wpe.stored, stream);
  Guarded<T> out(nan_filled<T>(B * T_new * C), stream);
  llmc::embedding_forward<T>(make_tensor(out.data(), B * T_new, C),
                             make_tensor(static_cast<const std::int32_t*>(ids.data()), B * T_new),
                             make_tensor(words.data(), V, C),
                             make_tensor(places.data(), context, C),
                             static_cast<const std::int32_t*>(positions.data()), T_new, stream);
  std::vector<T> expected;
  for (std::int64_t row = 0; row < B * T_new; ++row) {
    const std::int64_t place = first[row / T_new] + row % T_new;
    for (std::int64_t c = 0; c < C; ++c) {
      expected.push_back(llmc::from_float<T>(llmc::to_float(wte.stored[tokens[row] * C + c]) +
                                             llmc::to_float(wpe.stored[place * C + c])));
    }
  }
  CHECK(same_bits(out.values(), expected));
  CHECK(out.intact());
}

TEST_CASE("cached attention rejects shapes that it does not support") {
  Stream stream;
  llmc::Buffer<float> memory(1 << 12);
  llmc::Buffer<std::int32_t> position(4);
  const auto attend = [&](std::int64_t C, std::int64_t NH, std::int64_t q_rows,
                          std::int64_t key_width) {
    const auto out = make_tensor(memory.data(), 2, 1, C);
    llmc::cached_attention<float>(
        out, make_tensor(memory.data(), 2, q_rows, 3 * C),
        make_tensor(memory.data(), 2, 4, key_width), make_tensor(memory.data(), 2, 4, C),
        make_tensor(static_cast<const std::int32_t*>(position.data()), 2), NH, stream);
  };
  CHECK_THROWS_WITH_AS(attend(24, 2, 1, 24), doctest::Contains("multiple of 8, from 8 to 128"),
                       llmc::Error);
  CHECK_THROWS_WITH_AS(attend(16, 2, 2, 16), doctest::Contains("'qkv'"), llmc::Error);
  CHECK_THROWS_WITH_AS(attend(16, 2, 1, 8), doctest::Contains("'keys'"), llmc::Error);
}

TEST_SUITE_END();
