// Products of inference for tests: problems with their results by fp64 loops, and checks of
// anything that computes them, as `launch_call(call, stream)`.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "llmc/ops/gemm/invariant_gemm.h"
#include "llmc/ops/gemm/invariant_gemm_checks.h"
#include "test/support.h"

namespace llmc_test::invariant_gemms {

using llmc::Activation, llmc::bf16, llmc::fp16, llmc::make_tensor, llmc::RowEpilogue,
    llmc::InvariantGemmCall;
using llmc::Stream, llmc::to_float;

inline constexpr std::int64_t kGuard = 16;
inline constexpr float kGuardValue = -777;

// Inputs of a product, and its result by fp64 loops.
template <class T>
struct Problem {
  Problem(std::int64_t M, std::int64_t N, std::int64_t K, RowEpilogue epilogue, bool norm,
          Activation activation = Activation::gelu_new, float epsilon = 1e-5f)
      : M(M), N(N), K(K), epilogue(epilogue), norm(norm), activation(activation), epsilon(epsilon) {
    inp = convert<T>(random_floats(M * K, 1));
    gain = convert<T>(random_floats(K, 2));
    shift = convert<T>(random_floats(K, 3));
    weight = convert<T>(random_floats(K * N, 4, 1 / std::sqrt(static_cast<double>(K))));
    bias = convert<T>(random_floats(N, 5));
    residual = convert<T>(random_floats(M * N, 6));
  }
  bool is_logits() const { return epilogue == RowEpilogue::logits; }
  std::vector<double> row(std::int64_t r) const {
    std::vector<double> x(static_cast<std::size_t>(K));
    for (std::int64_t k = 0; k < K; ++k) x[k] = as_double(inp[r * K + k]);
    if (!norm) return x;
    double mean = 0, variance = 0;
    for (const double v : x) mean += v / static_cast<double>(K);
    for (const double v : x) variance += (v - mean) * (v - mean) / static_cast<double>(K);
    for (std::int64_t k = 0; k < K; ++k) {
      const double z = (x[k] - mean) / std::sqrt(variance + static_cast<double>(epsilon));
      x[k] = as_double(
          llmc::from_float<T>(static_cast<float>(z * as_double(gain[k]) + as_double(shift[k]))));
    }
    return x;
  }
  std::vector<double> expected() const {
    std::vector<double> out;
    for (std::int64_t r = 0; r < M; ++r) {
      const auto x = row(r);
      for (std::int64_t j = 0; j < N; ++j) {
        double s = is_logits() ? 0 : as_double(bias[j]);
        for (std::int64_t k = 0; k < K; ++k)
          s += x[k] * as_double(weight[is_logits() ? j * K + k : k * N + j]);
        if (epilogue == RowEpilogue::activation) s = activated(s);
        if (epilogue == RowEpilogue::add) s += as_double(residual[r * N + j]);
        out.push_back(s);
      }
    }
    return out;
  }
  double activated(double s) const {
    if (activation == Activation::relu) return std::max(s, 0.0);
    if (activation == Activation::gelu) return s * std::erfc(-s / std::sqrt(2.0)) / 2;
    return s / 2 *
           (1 + std::tanh(std::sqrt(2 / 3.14159265358979323846) * (s + 0.044715 * s * s * s)));
  }
  std::int64_t M, N, K;
  RowEpilogue epilogue;
  bool norm;
  Activation activation;
  float epsilon;
  std::vector<T> inp, gain, shift, weight, bias, residual;
};

// Runs rows [first, first + count) of the problem; `launch_call` starts the product.
template <class TO, class T, class Launch>
std::vector<TO> run_rows(const Problem<T>& p, std::int64_t first, std::int64_t count,
                         Launch launch_call) {
  Stream stream;
  const auto inp = upload(p.inp, stream), gain = upload(p.gain, stream),
             shift = upload(p.shift, stream), weight = upload(p.weight, stream),
             bias = upload(p.bias, stream), residual = upload(p.residual, stream);
  // Rows of logits are longer than the product.
  const std::int64_t stride = p.is_logits() ? p.N + 3 : p.N;
  auto out = upload(std::vector<TO>(static_cast<std::size_t>(count * stride + 2 * kGuard),
                                    llmc::from_float<TO>(kGuardValue)),
                    stream);
  InvariantGemmCall<T, TO, T> call;
  call.epilogue = p.epilogue;
  call.activation = p.activation;
  call.M = count;
  call.N = p.N;
  call.K = p.K;
  call.inp = inp.data() + first * p.K;
  if (p.norm) call.norm_weight = gain.data();
  if (p.norm) call.norm_bias = shift.data();
  call.norm_epsilon = p.epsilon;
  call.weight = weight.data();
  call.bias = p.is_logits() ? nullptr : bias.data();
  call.out = out.data() + kGuard;
  call.out_stride = stride;
  if (p.epilogue == RowEpilogue::add) call.residual = residual.data() + first * p.N;
  launch_call(call, stream);
  const auto all = download(out, stream);
  std::vector<TO> rows;
  for (std::int64_t i = 0; i < std::ssize(all); ++i) {
    const std::int64_t place = i - kGuard;
    if (place >= 0 && place < count * stride && place % stride < p.N) {
      rows.push_back(all[i]);
    } else if (to_float(all[i]) != to_float(llmc::from_float<TO>(kGuardValue))) {
      FAIL_CHECK("a number outside the result changed, at ", place);
    }
  }
  return rows;
}

template <class TO, class T, class Launch>
void check_problem(const Problem<T>& p, Launch launch_call) {
  CAPTURE(p.M);
  CAPTURE(p.N);
  CAPTURE(p.K);
  const auto actual = run_rows<TO>(p, 0, p.M, launch_call);
  const double allowed = 2 * tolerance<TO>(p.K) + (p.norm ? 2 * kRounding<T> : 0);
  CHECK(relative_l2(actual, p.expected()) <= allowed);
}

// Whether rows have the same bits in the whole problem and in parts of it: `counts` rows at the
// beginning, in the middle and at the end.
template <class TO, class T, class Launch>
bool rows_are_independent(const Problem<T>& p, Launch launch_call,
                          std::initializer_list<std::int64_t> counts) {
  const auto all = run_rows<TO>(p, 0, p.M, launch_call);
  bool same = true;
  for (const std::int64_t count : counts) {
    if (count > p.M) continue;
    for (const std::int64_t first : {std::int64_t{0}, (p.M - count) / 2, p.M - count}) {
      const auto part = run_rows<TO>(p, first, count, launch_call);
      same = same && same_bits(part, std::vector<TO>(all.begin() + first * p.N,
                                                     all.begin() + (first + count) * p.N));
    }
  }
  return same;
}

// Rows with slots and positions out of order: q, the new rows of the caches, and all other rows.
template <class T, class KV, class Launch>
void check_cache(std::int64_t M, bool with_slots, Launch launch_product) {
  constexpr std::int64_t C = 40, K = 72, kLength = 7;
  const std::int64_t slots = M + 2;
  const Problem<T> p(M, 3 * C, K, RowEpilogue::qkv, true);
  Stream stream;
  const auto inp = upload(p.inp, stream), gain = upload(p.gain, stream),
             shift = upload(p.shift, stream), weight = upload(p.weight, stream),
             bias = upload(p.bias, stream);
  std::vector<std::int32_t> slot, position;
  for (std::int64_t r = 0; r < M; ++r) {
    slot.push_back(static_cast<std::int32_t>(with_slots ? slots - 1 - r : r));
    position.push_back(static_cast<std::int32_t>((5 * r + 3) % kLength));
  }
  const auto slot_memory = upload(slot, stream), position_memory = upload(position, stream);
  const std::vector<KV> before = convert<KV>(random_floats(slots * kLength * C, 9));
  auto keys = upload(before, stream), values = upload(before, stream);
  auto q = upload(std::vector<T>(static_cast<std::size_t>(M * C)), stream);
  llmc::InvariantGemm<T> product;
  product.inp = make_tensor(inp.data(), M, K);
  product.norm_weight = make_tensor(gain.data(), K);
  product.norm_bias = make_tensor(shift.data(), K);
  product.weight = make_tensor(weight.data(), K, 3 * C);
  product.bias = make_tensor(bias.data(), 3 * C);
  launch_product(make_tensor(q.data(), M, C), make_tensor(keys.data(), slots, kLength, C),
                 make_tensor(values.data(), slots, kLength, C),
                 make_tensor(with_slots ? slot_memory.data() : nullptr, M),
                 make_tensor(position_memory.data(), M), product, stream);
  const auto expected = p.expected();
  const auto q_out = download(q, stream);
  const std::vector<KV> caches[2] = {download(keys, stream), download(values, stream)};
  for (int part = 0; part < 3; ++part) {
    std::vector<double> actual, reference;
    std::vector<KV> untouched = before;
    for (std::int64_t r = 0; r < M; ++r) {
      const std::int64_t row = (slot[r] * kLength + position[r]) * C;
      for (std::int64_t c = 0; c < C; ++c) {
        reference.push_back(expected[r * 3 * C + part * C + c]);
        actual.push_back(part == 0 ? as_double(q_out[r * C + c])
                                   : as_double(caches[part - 1][row + c]));
        if (part > 0) untouched[row + c] = caches[part - 1][row + c];
      }
    }
    CHECK(relative_l2(actual, reference) <= 2 * tolerance<T>(K) + 2 * kRounding<T>);
    if (part > 0) CHECK(same_bits(untouched, caches[part - 1]));
  }
}

// Starts a qkv product by `launch_call`, as invariant_gemm_qkv does.
template <class T, class KV, class Launch>
auto qkv_launcher(Launch launch_call) {
  return [launch_call](auto q, auto keys, auto values, auto slot, auto position,
                       const auto& product, Stream& stream) {
    auto call = llmc::detail::invariant_gemm_call<T, KV>(RowEpilogue::qkv, product, q.shape[0],
                                                         3 * q.shape[1]);
    call.out = q.data;
    call.keys = keys.data;
    call.values = values.data;
    call.T_max = keys.shape[1];
    call.slot = slot.data;
    call.position = position.data;
    launch_call(call, stream);
  };
}

}  // namespace llmc_test::invariant_gemms
