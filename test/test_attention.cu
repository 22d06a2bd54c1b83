// Attention against its definition in fp64: flash (bf16 and fp16 on tensor cores, fp32) and
// standard, forward and backward, with and without document boundaries, at sizes on both sides of
// every tile.
//
// Tolerances. In fp32, rounding a sum of n random terms costs about u sqrt(n) / 2 of its size, with
// u = 2^-24. The longest sums are over the HS columns of a score and over the T keys or queries of
// a row. (4 + sqrt(HS) + sqrt(T)) u allows twice that and a few single roundings. The rounding
// error of scores of size s > 1 is s times as large, and becomes a relative error of p. bf16 keeps
// 8 bits, fp16 11: one rounding costs 0.72 * 2^-8 (2^-11) / sqrt(3) of a tensor's norm; 0.72 is the
// mean over mantissas. A straightforward bf16 implementation rounds twice for out and d_v: the
// probabilities and the result. It rounds three times for d_q and d_k: out (inside D), the score
// gradients and the result. The tests allow twice that.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "llmc/ops/attention/attention.h"
#include "llmc/ops/attention/standard_attention.h"
#include "test/oracle/dropout.h"
#include "test/oracle/ops.h"
#include "test/support.h"

namespace {

using llmc::bf16;
using llmc::Buffer;
using llmc::fp16;
using llmc::make_tensor;
using llmc::Stream;
using llmc_test::relative_l2;

struct Case {
  std::int64_t B, T, NH, HS;
  bool documents;
  double q_scale = 1.0;  // > 1: sharp softmax
  double dropout = 0;

  std::int64_t C() const { return NH * HS; }
};

std::string describe(const Case& c) {
  return "B " + std::to_string(c.B) + " T " + std::to_string(c.T) + " NH " + std::to_string(c.NH) +
         " HS " + std::to_string(c.HS) + (c.documents ? " documents" : "") +
         (c.q_scale > 1 ? " sharp" : "") +
         (c.dropout > 0 ? " dropout " + std::to_string(c.dropout) : "");
}

// Each T and HS occurs at least once; they lie on both sides of the tiles' edges.
std::vector<Case> cases() {
  if (llmc_test::tiny_shapes()) {
    return {{1, 1, 1, 8, false},
            {1, 17, 1, 40, true},
            {1, 66, 1, 32, true},
            {1, 33, 1, 72, false},
            {2, 37, 2, 24, true, 1.0, 0.3}};
  }
  return {{2, 1, 3, 8, false},
          {3, 2, 1, 128, true},
          {2, 17, 3, 24, true},
          {1, 63, 5, 32, false},
          {2, 64, 1, 64, true},
          {1, 65, 3, 40, true},
          {1, 128, 1, 80, false},
          {1, 200, 3, 64, false},
          {1, 200, 1, 96, true},
          {1, 300, 1, 64, true},
          {1, 130, 1, 128, false},
          {3, 65, 1, 64, false},
          {1, 260, 1, 32, true},
          {1, 100, 1, 64, false, 4.0},
          {2, 17, 3, 24, true, 1.0, 0.3},
          {3, 200, 2, 64, false, 1.0, 0.1},
          {1, 130, 2, 128, true, 1.0, 0.5},
          {1, 300, 1, 64, true, 1.0, 0.7},
          {2, 33, 2, 32, false, 1.0, 0.2}};
}

// The start of the document of each position, (B, T). Documents are contiguous and have 1 to about
// T / 3 tokens: their edges fall inside tiles, on tile edges, and more than a tile from the
// diagonal.
std::vector<std::int32_t> document_starts(const Case& c) {
  std::vector<std::int32_t> starts;
  const auto draws = llmc_test::random_ints(c.B * c.T, 77, c.T / 3 + 1);
  for (std::int64_t b = 0; b < c.B; ++b) {
    std::int64_t start = 0;
    std::int64_t next = 1 + draws[b * c.T];
    for (std::int64_t t = 0; t < c.T; ++t) {
      if (t == next) {
        start = t;
        next = t + 1 + draws[b * c.T + t];
      }
      starts.push_back(static_cast<std::int32_t>(start));
    }
  }
  return starts;
}

// Device memory for an output between guard bands. It is filled with NaN, so that an element that a
// kernel does not write is detected.
template <class T>
class GuardedOutput {
 public:
  GuardedOutput(std::int64_t n, Stream& stream) : n_(n) {
    std::vector<float> fill(n + 2 * kGuard, std::numeric_limits<float>::quiet_NaN());
    for (std::int64_t i = 0; i < kGuard; ++i) fill[i] = fill[n + kGuard + i] = kSentinel;
    buffer_ = llmc_test::upload(llmc_test::convert<T>(fill), stream);
  }
  T* data() const { return buffer_.data() + kGuard; }
  bool guards_intact(Stream& stream) const {
    const auto all = llmc_test::to_floats(llmc_test::download(buffer_, stream));
    for (std::int64_t i = 0; i < kGuard; ++i) {
      if (all[i] != kSentinel || all[n_ + kGuard + i] != kSentinel) return false;
    }
    return true;
  }
  std::vector<float> values(Stream& stream) const {
    return llmc_test::to_floats(llmc_test::download(static_cast<const T*>(data()), n_, stream));
  }

 private:
  static constexpr std::int64_t kGuard = 256;
  static constexpr float kSentinel = 12288.0f;  // 3 * 2^12: exact in bf16 and fp16
  std::int64_t n_;
  Buffer<T> buffer_;
};

// Every number that a mask depends on is far from zero; samples pass 2^32 within the batch.
constexpr std::uint64_t kSeed = 0x123456789abcdef;
constexpr std::int64_t kStep = 77, kSite = 7, kFirstSample = (std::int64_t{1} << 32) - 1;

llmc::Dropout dropout_of(const Case& c) {
  return llmc::make_dropout(c.dropout, kSeed, kStep, kSite, kFirstSample);
}

llmc::oracle::AttentionFactor oracle_factor(const Case& c) {
  const llmc::oracle::Dropout dropout{.seed = kSeed, .step = kStep, .first_sample = kFirstSample};
  return [=, rate = c.dropout](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
    return dropout.factor(rate, kSite, b, i, j, h);
  };
}

struct Problem {
  std::vector<float> qkv, d_out;  // already representable in the dtype under test
  std::vector<std::int32_t> doc_start;
};

template <class T>
Problem make_problem(const Case& c) {
  Problem p;
  p.qkv = llmc_test::random_floats(c.B * c.T * 3 * c.C(), 1);
  for (std::int64_t i = 0; i < std::ssize(p.qkv); ++i) {
    if (i % (3 * c.C()) < c.C()) p.qkv[i] *= static_cast<float>(c.q_scale);
  }
  p.qkv = llmc_test::to_floats(llmc_test::convert<T>(p.qkv));
  p.d_out =
      llmc_test::to_floats(llmc_test::convert<T>(llmc_test::random_floats(c.B * c.T * c.C(), 2)));
  if (c.documents) p.doc_start = document_starts(c);
  return p;
}

struct Result {
  std::vector<float> out, lse, d_qkv;
  bool guards = false;
};

template <class T>
Result run_flash(const Case& c, const Problem& p) {
  Stream stream;
  const auto qkv = llmc_test::upload(llmc_test::convert<T>(p.qkv), stream);
  const auto d_out = llmc_test::upload(llmc_test::convert<T>(p.d_out), stream);
  const auto doc_start = llmc_test::upload(p.doc_start, stream);
  const std::int32_t* starts = c.documents ? doc_start.data() : nullptr;
  GuardedOutput<T> out(c.B * c.T * c.C(), stream);
  GuardedOutput<float> lse(c.B * c.NH * c.T, stream);
  GuardedOutput<T> d_qkv(c.B * c.T * 3 * c.C(), stream);
  const std::int64_t floats = llmc::flash_attention_backward_scratch(c.B, c.T, c.NH, c.HS);
  GuardedOutput<float> scratch(floats, stream);

  const auto qkv_view = make_tensor(qkv.data(), c.B, c.T, 3 * c.C());
  const auto out_view = make_tensor(out.data(), c.B, c.T, c.C());
  const auto lse_view = make_tensor(lse.data(), c.B, c.NH, c.T);
  llmc::flash_attention_forward(out_view, lse_view, qkv_view, c.NH, starts, dropout_of(c), stream);
  llmc::flash_attention_backward(make_tensor(d_qkv.data(), c.B, c.T, 3 * c.C()),
                                 make_tensor(d_out.data(), c.B, c.T, c.C()), qkv_view, out_view,
                                 lse_view, c.NH, starts, dropout_of(c),
                                 make_tensor(scratch.data(), floats), stream);
  const bool guards = out.guards_intact(stream) && lse.guards_intact(stream) &&
                      d_qkv.guards_intact(stream) && scratch.guards_intact(stream);
  return {out.values(stream), lse.values(stream), d_qkv.values(stream), guards};
}

template <class T>
Result run_standard(const Case& c, const Problem& p) {
  Stream stream;
  const auto qkv = llmc_test::upload(llmc_test::convert<T>(p.qkv), stream);
  const auto d_out = llmc_test::upload(llmc_test::convert<T>(p.d_out), stream);
  const auto doc_start = llmc_test::upload(p.doc_start, stream);
  GuardedOutput<T> out(c.B * c.T * c.C(), stream);
  GuardedOutput<float> lse(c.B * c.NH * c.T, stream);
  GuardedOutput<T> probabilities(c.B * c.NH * c.T * c.T, stream);
  GuardedOutput<T> d_qkv(c.B * c.T * 3 * c.C(), stream);
  const std::int64_t floats = llmc::standard_attention_backward_scratch(c.B, c.T, c.NH);
  Buffer<float> scratch(floats);

  const auto qkv_view = make_tensor(qkv.data(), c.B, c.T, 3 * c.C());
  const auto out_view = make_tensor(out.data(), c.B, c.T, c.C());
  const auto lse_view = make_tensor(lse.data(), c.B, c.NH, c.T);
  const auto p_view = make_tensor(probabilities.data(), c.B, c.NH, c.T, c.T);
  llmc::standard_attention_forward(out_view, lse_view, p_view, qkv_view, c.NH,
                                   c.documents ? doc_start.data() : nullptr, stream, dropout_of(c));
  llmc::standard_attention_backward(make_tensor(d_qkv.data(), c.B, c.T, 3 * c.C()), p_view,
                                    make_tensor(d_out.data(), c.B, c.T, c.C()), qkv_view, out_view,
                                    lse_view, c.NH, make_tensor(scratch.data(), floats), stream,
                                    dropout_of(c));
  const bool guards = out.guards_intact(stream) && lse.guards_intact(stream) &&
                      d_qkv.guards_intact(stream) && probabilities.guards_intact(stream);
  return {out.values(stream), lse.values(stream), d_qkv.values(stream), guards};
}

// Extracts q, k or v (part 0, 1 or 2) from a packed tensor.
template <class Number>
std::vector<Number> part_of(const std::vector<Number>& packed, std::int64_t C, int part) {
  std::vector<Number> values;
  for (std::size_t row = 0; row < packed.size(); row += 3 * C) {
    const auto first = packed.begin() + row + part * C;
    values.insert(values.end(), first, first + C);
  }
  return values;
}

struct Tolerance {
  double out, d_qk, d_v, lse;
};

template <class T>
Tolerance tolerance(const Case& c) {
  const double roots = std::sqrt(static_cast<double>(c.HS)) + std::sqrt(static_cast<double>(c.T));
  const double fp32 = c.q_scale * (4 + roots) * 0x1p-24;
  const double lse = fp32 * 4;  // absolute error; log-sum-exps are of order 1 to 10
  if constexpr (std::is_same_v<T, float>) return {fp32, fp32, fp32, lse};
  const double rounding = 0.72 * llmc_test::kSpacing<T> / std::sqrt(3.0);
  const double exp2_error = 0x1p-22;  // error of the hardware's approximation
  return {2 * std::sqrt(2.0) * rounding, 2 * std::sqrt(3.0) * rounding,
          2 * std::sqrt(2.0) * rounding, lse + 4 * exp2_error};
}

// Standard attention also stores its scores and probabilities: one more rounding in out and d_v,
// two more in d_q and d_k. The rounding error of a score grows with the score.
template <class T>
Tolerance standard_tolerance(const Case& c) {
  Tolerance t = tolerance<T>(c);
  if constexpr (!std::is_same_v<T, float>) {
    t.out *= c.q_scale * std::sqrt(3.0 / 2.0);
    t.d_v *= c.q_scale * std::sqrt(3.0 / 2.0);
    t.d_qk *= c.q_scale * std::sqrt(5.0 / 3.0);
    t.lse = 4 * c.q_scale * llmc_test::kSpacing<T>;  // error of scores, which reach 4 q_scale
  }
  return t;
}

// Relative error of a gradient. If the terms of the expected gradient cancel to zero, the error is
// relative to 1, the size of the terms: a query that attends only to itself has no gradient of q or
// k.
double gradient_error(const std::vector<float>& got, const std::vector<double>& expected) {
  double norm = 0;
  for (const double w : expected) norm += w * w;
  const double ones = std::sqrt(static_cast<double>(expected.size()));
  if (std::sqrt(norm) > 0.01 * ones) return relative_l2(got, expected);
  std::vector<double> difference;
  for (std::size_t i = 0; i < got.size(); ++i) difference.push_back(1 + got[i] - expected[i]);
  return relative_l2(difference, std::vector<double>(expected.size(), 1.0));
}

void compare(const Case& c, const Problem& p, const Result& got, const Tolerance& allowed) {
  const auto qkv = llmc::oracle::to_double(p.qkv);
  const auto expected =
      llmc::oracle::attention_forward(qkv, c.B, c.T, c.NH, c.HS, p.doc_start, oracle_factor(c));
  const auto d_qkv = llmc::oracle::attention_backward(
      llmc::oracle::to_double(p.d_out), qkv, c.B, c.T, c.NH, c.HS, p.doc_start, oracle_factor(c));
  CHECK(got.guards);
  CHECK(relative_l2(got.out, expected.out) < allowed.out);
  if (!got.lse.empty())
    CHECK(llmc_test::max_abs_error(got.lse, expected.log_sum_exp) < allowed.lse);
  double error[3];
  for (int i = 0; i < 3; ++i) {
    error[i] = gradient_error(part_of(got.d_qkv, c.C(), i), part_of(d_qkv, c.C(), i));
  }
  CHECK(error[0] < allowed.d_qk);
  CHECK(error[1] < allowed.d_qk);
  CHECK(error[2] < allowed.d_v);
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace

TEST_SUITE_BEGIN("attention");

TEST_CASE_TEMPLATE("flash attention matches the definition", T, float, bf16, fp16) {
  for (const Case& c : cases()) {
    CAPTURE(describe(c));
    const Problem p = make_problem<T>(c);
    compare(c, p, run_flash<T>(c, p), tolerance<T>(c));
  }
}

TEST_CASE_TEMPLATE("flash attention is bitwise repeatable", T, float, bf16, fp16) {
  const Case c =
      llmc_test::tiny_shapes() ? Case{1, 40, 2, 16, true} : Case{2, 150, 3, 64, true, 1.0, 0.2};
  const Problem p = make_problem<T>(c);
  const Result first = run_flash<T>(c, p);
  const Result second = run_flash<T>(c, p);
  CHECK(same_bits(first.out, second.out));
  CHECK(same_bits(first.lse, second.lse));
  CHECK(same_bits(first.d_qkv, second.d_qkv));
}

TEST_CASE_TEMPLATE("standard attention matches the definition", T, float, bf16, fp16) {
  for (const Case& c : cases()) {
    CAPTURE(describe(c));
    const Problem p = make_problem<T>(c);
    compare(c, p, run_standard<T>(c, p), standard_tolerance<T>(c));
  }
}

TEST_CASE_TEMPLATE("flash and standard attention and their gradients agree", T, float, bf16, fp16) {
  const Case c = llmc_test::tiny_shapes() ? Case{1, 35, 3, 8, true} : Case{2, 140, 3, 64, true};
  const Problem p = make_problem<T>(c);
  const Result flash = run_flash<T>(c, p);
  const Result standard = run_standard<T>(c, p);
  const Tolerance a = tolerance<T>(c);
  const Tolerance b = standard_tolerance<T>(c);
  CHECK(relative_l2(flash.out, standard.out) < a.out + b.out);
  CHECK(llmc_test::max_abs_error(flash.lse, standard.lse) < a.lse + b.lse);
  for (int i = 0; i < 3; ++i) {
    CAPTURE(i);
    CHECK(relative_l2(part_of(flash.d_qkv, c.C(), i), part_of(standard.d_qkv, c.C(), i)) <
          (i == 2 ? a.d_v + b.d_v : a.d_qk + b.d_qk));
  }
}

TEST_CASE_TEMPLATE("flash and standard attention drop the same probabilities", T, float, bf16,
                   fp16) {
  const Case c = llmc_test::tiny_shapes() ? Case{1, 35, 3, 8, true, 1.0, 0.4}
                                          : Case{2, 140, 3, 64, true, 1.0, 0.4};
  const Problem p = make_problem<T>(c);
  const Result flash = run_flash<T>(c, p), standard = run_standard<T>(c, p);
  const Tolerance a = tolerance<T>(c), b = standard_tolerance<T>(c);
  CHECK(relative_l2(flash.out, standard.out) < a.out + b.out);
  CHECK(relative_l2(flash.d_qkv, standard.d_qkv) < a.d_qk + b.d_qk);
}

TEST_CASE("flash attention rejects shapes that it does not support") {
  Stream stream;
  Buffer<float> memory(1 << 16);
  const auto forward = [&](std::int64_t T, std::int64_t C, std::int64_t NH, std::int64_t skip = 0) {
    llmc::flash_attention_forward(make_tensor(memory.data() + skip, 1, T, C),
                                  make_tensor(memory.data(), 1, NH, T),
                                  make_tensor(memory.data(), 1, T, 3 * C), NH, nullptr, stream);
  };
  CHECK_THROWS_WITH_AS(forward(4, 24, 2), doctest::Contains("multiple of 8, from 8 to 128"),
                       llmc::Error);
  CHECK_THROWS_WITH_AS(forward(4, 136, 1), doctest::Contains("head size 136"), llmc::Error);
  CHECK_THROWS_WITH_AS(forward(4, 32, 3),
                       doctest::Contains("32 channels are not a multiple of 3 heads"), llmc::Error);
  CHECK_THROWS_WITH_AS(forward(0, 32, 1), doctest::Contains("T = 0"), llmc::Error);
  CHECK_THROWS_WITH_AS(forward(4, 32, 1, 1), doctest::Contains("16 bytes"), llmc::Error);
  CHECK_THROWS_WITH_AS(
      llmc::flash_attention_forward(make_tensor(memory.data(), 1, 4, 32),
                                    make_tensor(memory.data(), 1, 1, 4),
                                    make_tensor(memory.data(), 1, 4, 32), 1, nullptr, stream),
      doctest::Contains("'qkv'"), llmc::Error);
  const auto x = make_tensor(memory.data(), 1, 4, 32);
  const auto packed = make_tensor(memory.data(), 1, 4, 96);
  CHECK_THROWS_WITH_AS(
      llmc::flash_attention_backward(packed, x, packed, x, make_tensor(memory.data(), 1, 1, 4), 1,
                                     nullptr, make_tensor(memory.data(), 7), stream),
      doctest::Contains("scratch"), llmc::Error);
}

TEST_SUITE_END();
