// Products of inference into an INT8 key-value cache: codes and scales are those of quantize.h for
// the fp32 sums that the same product writes into a cache of floats.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "llmc/ops/gemm/invariant_gemm.h"
#include "llmc/ops/gemm/invariant_gemm_kernels.h"
#include "llmc/ops/gemm/invariant_gemm_prompt.h"
#include "llmc/ops/gemm/quantize_weight.h"
#include "llmc/ops/quantize.h"
#include "test/invariant_gemms.h"

namespace {

using namespace llmc_test;
using namespace llmc_test::invariant_gemms;
using namespace llmc;

constexpr std::int64_t kInputs = 72, kLength = 7;
constexpr std::int8_t kOldCode = 99;
constexpr float kOldScale = -5;

struct Used {
  template <class Call>
  void operator()(const Call& call, Stream& stream) const {
    run_invariant_gemm(call, stream);
  }
};
template <RowKind kKind>
struct Kernel {
  template <class Call>
  void operator()(Call call, Stream& stream) const {
    call.kind = kKind;
    launch_invariant_gemm(call, stream);
  }
};
struct WidePrompt {
  template <class T, class KV>
  void operator()(const InvariantGemmCall<T, T, KV>& call, Stream& stream) const {
    row_kernels::launch_prompt_tile<row_kernels::PromptTile<T, 128, 128, false>>(call, stream);
  }
};

// The kernels of INT8 weights: the product's weight becomes codes first.
template <RowKind kKind, bool kQuantizedRows>
struct CodeKernel {
  template <class T, class KV>
  void operator()(InvariantGemmCall<T, T, KV> call, Stream& stream) const {
    std::vector<T> stored(static_cast<std::size_t>(call.K * call.N));
    copy_to_host(stored.data(), call.weight, std::ssize(stored), stream);
    stream.synchronize();
    std::vector<float> weight;
    for (const T x : stored) weight.push_back(to_float(x));
    WeightCodes quantized =
        quantize_weight(weight.data(), call.K, call.N, OutputAxis::columns, "weight");
    const auto columns = static_cast<std::size_t>(CodeMatrix::padded_columns(call.N));
    std::vector<std::int8_t> packed(static_cast<std::size_t>(code_bytes(call.K, call.N)));
    std::vector<std::int32_t> sums(columns);
    pack_codes<WarpCodeLayout>(packed.data(), sums.data(), quantized.codes.data(), call.K, call.N,
                               OutputAxis::columns);
    quantized.scales.resize(columns);
    const auto codes = upload(packed, stream);
    const auto scales = upload(quantized.scales, stream);
    const auto column_sums = upload(sums, stream);
    call.weight = nullptr;
    call.codes = {codes.data(), scales.data(), column_sums.data(), call.K, call.N};
    call.quantizer.enabled = kQuantizedRows;
    call.kind = kKind;
    launch_invariant_gemm(call, stream);
    stream.synchronize();
  }
};

// Keys and values (slots, kLength, C) after a product, and their scales (slots, kLength, NH).
template <class KV>
struct Caches {
  std::vector<KV> numbers[2];
  std::vector<float> scales[2];
};

// M rows of NH heads, with slots and positions out of order.
template <class T>
struct HeadProblem {
  std::int64_t M, NH, HS;
  std::vector<T> inp, weight, bias, gain, shift;
  std::vector<std::int32_t> slot, position;

  HeadProblem(std::int64_t M, std::int64_t NH, std::int64_t HS)
      : M(M),
        NH(NH),
        HS(HS),
        inp(convert<T>(random_floats(M * kInputs, 1))),
        weight(convert<T>(random_floats(kInputs * 3 * C(), 2, 0.1))),
        bias(convert<T>(random_floats(3 * C(), 3))),
        gain(convert<T>(random_floats(kInputs, 4))),
        shift(convert<T>(random_floats(kInputs, 5))) {
    for (std::int64_t r = 0; r < M; ++r) {
      slot.push_back(static_cast<std::int32_t>(slots() - 1 - r));
      position.push_back(static_cast<std::int32_t>((5 * r + 3) % kLength));
    }
  }
  std::int64_t C() const { return NH * HS; }
  std::int64_t slots() const { return M + 2; }
  std::int64_t token(std::int64_t r) const { return slot[r] * kLength + position[r]; }

  // Runs the product of rows first .. first + count - 1, twice: the counters must be left at 0.
  template <class KV, class Launch>
  Caches<KV> run(Launch launch, std::int64_t first, std::int64_t count) const {
    Stream stream;
    const auto inp_memory = upload(inp, stream), weight_memory = upload(weight, stream),
               bias_memory = upload(bias, stream), gain_memory = upload(gain, stream),
               shift_memory = upload(shift, stream);
    const auto slot_memory = upload(slot, stream), position_memory = upload(position, stream);
    const std::int64_t tokens = slots() * kLength;
    const std::vector<KV> old(static_cast<std::size_t>(tokens * C()), KV{kOldCode});
    const std::vector<float> old_scales(static_cast<std::size_t>(tokens * NH), kOldScale);
    auto keys = upload(old, stream), values = upload(old, stream);
    auto key_scales = upload(old_scales, stream), value_scales = upload(old_scales, stream);
    auto q = upload(std::vector<T>(static_cast<std::size_t>(M * C())), stream);
    auto sums = upload(std::vector<float>(qkv_scratch(M, C()), NAN), stream);
    auto counters = upload(std::vector<std::int32_t>(qkv_counters(M, NH)), stream);
    InvariantGemmCall<T, T, KV> call;
    call.epilogue = RowEpilogue::qkv;
    call.M = count;
    call.N = 3 * C();
    call.K = kInputs;
    call.inp = inp_memory.data() + first * kInputs;
    call.norm_weight = gain_memory.data();
    call.norm_bias = shift_memory.data();
    call.norm_epsilon = 1e-5f;
    call.weight = weight_memory.data();
    call.bias = bias_memory.data();
    call.out = q.data();
    call.out_stride = C();
    call.keys = keys.data();
    call.values = values.data();
    call.T_max = kLength;
    call.slot = slot_memory.data() + first;
    call.position = position_memory.data() + first;
    call.key_scales = key_scales.data();
    call.value_scales = value_scales.data();
    call.NH = NH;
    call.head_sums = sums.data();
    call.head_counters = counters.data();
    for (int i = 0; i < 2; ++i) launch(call, stream);
    stream.synchronize();
    const auto left = download(counters, stream);
    CHECK(left == std::vector<std::int32_t>(left.size()));
    return {{download(keys, stream), download(values, stream)},
            {download(key_scales, stream), download(value_scales, stream)}};
  }
};

// The codes and scales of caches of floats, in the rows of the problem.
template <class T>
Caches<std::int8_t> quantized(const HeadProblem<T>& p, const Caches<float>& sums) {
  Caches<std::int8_t> expected;
  for (int part = 0; part < 2; ++part) {
    const std::vector<float>& x = sums.numbers[part];
    expected.numbers[part].assign(x.size(), kOldCode);
    expected.scales[part].assign(static_cast<std::size_t>(p.slots() * kLength * p.NH), kOldScale);
    for (std::int64_t r = 0; r < p.M; ++r) {
      for (std::int64_t head = 0; head < p.NH; ++head) {
        const std::int64_t place = p.token(r) * p.NH + head;
        float magnitude = 0;
        for (std::int64_t i = place * p.HS; i < (place + 1) * p.HS; ++i)
          magnitude = std::isfinite(x[i]) ? std::fmax(magnitude, std::fabs(x[i])) : INFINITY;
        const Quantization q = symmetric_quantization({-magnitude, magnitude});
        for (std::int64_t i = place * p.HS; i < (place + 1) * p.HS; ++i)
          expected.numbers[part][i] = CodeRounding(q).code(x[i]);
        expected.scales[part][place] = q.scale;
      }
    }
  }
  return expected;
}

void check_equal(const Caches<std::int8_t>& a, const Caches<std::int8_t>& b) {
  for (int part = 0; part < 2; ++part) {
    CHECK(a.numbers[part] == b.numbers[part]);
    CHECK(same_bits(a.scales[part], b.scales[part]));
  }
}

template <class T, class Launch>
void check_heads(std::initializer_list<std::int64_t> rows) {
  struct Heads {
    std::int64_t NH, HS;
  };
  const std::vector<Heads> sizes =
      tiny_shapes()
          ? std::vector<Heads>{{3, 24}}
          : std::vector<Heads>{{1, 8}, {7, 8}, {5, 24}, {3, 40}, {3, 64}, {1, 80}, {2, 128}};
  for (const std::int64_t M : rows) {
    if (tiny_shapes() && M > 9) continue;
    for (const Heads& size : sizes) {
      CAPTURE(M);
      CAPTURE(size.HS);
      const HeadProblem<T> p(M, size.NH, size.HS);
      const auto codes = p.template run<std::int8_t>(Launch(), 0, M);
      check_equal(codes, quantized(p, p.template run<float>(Launch(), 0, M)));
    }
  }
}

}  // namespace

TEST_SUITE("invariant_gemm_heads") {
  TEST_CASE_TEMPLATE("keys and values become the codes and scales of their fp32 sums", T, float,
                     bf16, fp16) {
    if (checked_as_bf16<T>()) return;
    check_heads<T, Used>({1, 3, 16, 20});
    check_heads<T, Kernel<RowKind::generated>>({1, 9, 33});
    check_heads<T, Kernel<RowKind::prompt>>({1, 67});
    if constexpr (sizeof(T) == 2) check_heads<T, WidePrompt>({2, 130});
    check_heads<T, CodeKernel<RowKind::generated, true>>({1, 9});
    check_heads<T, CodeKernel<RowKind::generated, false>>({3});
    check_heads<T, CodeKernel<RowKind::prompt, true>>({1, 67});
  }

  TEST_CASE_TEMPLATE("other rows do not change the codes of a row", T, float, bf16) {
    if (tiny_shapes()) return;
    const HeadProblem<T> p(35, 3, 24);
    const auto check = [&](auto launch) {
      const auto all = p.template run<std::int8_t>(launch, 0, p.M);
      for (const std::int64_t r : {std::int64_t{0}, std::int64_t{7}, p.M - 1}) {
        const auto one = p.template run<std::int8_t>(launch, r, 1);
        for (int part = 0; part < 2; ++part) {
          for (std::int64_t i = 0; i < p.C(); ++i) {
            const std::int64_t place = p.token(r) * p.C() + i;
            CHECK(one.numbers[part][place] == all.numbers[part][place]);
          }
          for (std::int64_t i = p.token(r) * p.NH; i < (p.token(r) + 1) * p.NH; ++i)
            CHECK(one.scales[part][i] == all.scales[part][i]);
        }
      }
    };
    check(Used());
    check(Kernel<RowKind::generated>());
    check(Kernel<RowKind::prompt>());
  }

  TEST_CASE_TEMPLATE("a head with a number that is not finite has the scale NaN", T, float, fp16) {
    if (tiny_shapes()) return;
    for (const float value : {NAN, INFINITY, -INFINITY}) {
      HeadProblem<T> p(5, 3, 24);
      p.bias[p.C() + 30] = from_float<T>(value);      // key head 1
      p.bias[2 * p.C() + 71] = from_float<T>(value);  // value head 2
      const auto check = [&](auto launch) {
        const auto codes = p.template run<std::int8_t>(launch, 0, p.M);
        check_equal(codes, quantized(p, p.template run<float>(launch, 0, p.M)));
        for (std::int64_t r = 0; r < p.M; ++r) {
          for (std::int64_t head = 0; head < p.NH; ++head) {
            for (int part = 0; part < 2; ++part)
              CHECK(std::isnan(codes.scales[part][p.token(r) * p.NH + head]) == (head == part + 1));
          }
        }
      };
      check(Used());
      check(Kernel<RowKind::generated>());
      check(Kernel<RowKind::prompt>());
    }
  }

  TEST_CASE("an INT8 cache without scales or scratch, or with other heads, is an error") {
    Stream stream;
    Buffer<float> memory(4096);
    Buffer<std::int8_t> codes(4096);
    Buffer<std::int32_t> ints(64);
    fill_zero(memory.data(), 4096, stream);
    fill_zero(ints.data(), 64, stream);
    const auto message = [&](std::int64_t NH, std::int64_t floats, std::int64_t counters,
                             std::int64_t offset, bool has_scales) {
      InvariantGemm<float> product;
      product.inp = make_tensor(static_cast<const float*>(memory.data()), 2, 8);
      product.weight = make_tensor(static_cast<const float*>(memory.data()), 8, 48);
      const auto numbers = make_tensor(codes.data() + offset, 2, 3, 16);
      const auto scales = make_tensor(has_scales ? memory.data() + 3072 : nullptr, 2, 3, NH);
      return complaint([&] {
        invariant_gemm_qkv<float, std::int8_t>(
            make_tensor(memory.data() + 1024, 2, 16), {numbers, scales}, {numbers, scales}, {},
            make_tensor(static_cast<const std::int32_t*>(ints.data()), 2), product, stream,
            {make_tensor(memory.data() + 2048, floats), make_tensor(ints.data(), counters)});
      });
    };
    CHECK(message(2, 64, 8, 8, true) == "");
    CHECK(contains(message(3, 64, 4, 0, true), "16 channels in 3 heads of an INT8 cache"));
    CHECK(contains(message(4, 64, 8, 0, true), "multiple of 8, up to 128"));
    CHECK(contains(message(2, 63, 8, 0, true), "scratch holds 63 floats, 64 are needed"));
    CHECK(contains(message(2, 64, 7, 0, true), "scratch has 7 counters, 8 are needed"));
    CHECK(contains(message(2, 64, 8, 4, true), "does not start at a multiple of 8 bytes"));
    CHECK(contains(message(2, 64, 8, 0, false), "'keys scales'"));
  }
}
