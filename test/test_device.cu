// The vocabulary of kernels, part 1: number types, indices, vectors. The same tests run on a GPU
// and on the host executor.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "llmc/device/device.h"
#include "test/support.h"

using namespace llmc;
using llmc_test::download;
using llmc_test::random_floats;
using llmc_test::upload;

// Has a name because DEVICE=ptx finds kernels by theirs.
namespace device_kernels {

// ---- number types --------------------------------------------------------------------------

template <class = void>
__global__ void round_kernel(bf16* rounded, float* back, const float* in, std::int64_t n) {
  const std::int64_t i = global_thread();
  if (i >= n) return;
  rounded[i] = from_float<bf16>(in[i]);
  back[i] = to_float(rounded[i]);
}

struct RoundingResult {
  std::vector<bf16> values;
  std::vector<float> back;
};

RoundingResult round_on_device(const std::vector<float>& values) {
  Stream stream;
  const auto n = static_cast<std::int64_t>(values.size());
  const auto in = upload(values, stream);
  Buffer<bf16> rounded(n);
  Buffer<float> back(n);
  launch(round_kernel<>, {ceil_div(n, 64)}, 64, 0, stream, rounded.data(), back.data(), in.data(),
         n);
  return {download(rounded, stream), download(back, stream)};
}

bool is_nan(bf16 x) {
  return (x.bits & 0x7fffu) > 0x7f80u;
}

// The nearer of the two bf16 neighbours, computed in fp64, where both and their distances are
// exact.
bf16 nearest_bf16(float x) {
  const auto low = static_cast<std::uint16_t>(bits_of(x) >> 16);
  const double down = to_float(bf16{low});
  const auto high = static_cast<std::uint16_t>(low + 1);
  // The neighbour above the largest finite number is 2^128; a tie with it rounds to infinity.
  const double up = (high & 0x7fffu) == 0x7f80u ? std::copysign(0x1p128, x) : to_float(bf16{high});
  const double below = std::abs(x - down), above = std::abs(up - x);
  if (below != above) return bf16{below < above ? low : high};
  return bf16{low % 2 == 0 ? low : high};
}

}  // namespace device_kernels

using namespace device_kernels;

TEST_SUITE("device") {
  TEST_CASE("bf16 rounds to nearest even for every kind of number") {
    struct Case {
      std::uint32_t from;
      std::uint16_t to;
    };
    const std::vector<Case> cases = {
        {0x00000000, 0x0000}, {0x80000000, 0x8000},  // zeros keep their sign
        {0x3f800000, 0x3f80},                        // 1
        {0x3f807fff, 0x3f80},                        // just below a tie
        {0x3f808000, 0x3f80},                        // a tie, down to even
        {0x3f808001, 0x3f81},                        // just above
        {0x3f818000, 0x3f82},                        // a tie, up to even
        {0xbf818000, 0xbf82}, {0x3fffffff, 0x4000},  // carries into the exponent
        {0x7f7f7fff, 0x7f7f},                        // the largest that stays finite
        {0x7f7f8000, 0x7f80}, {0x7f7fffff, 0x7f80},  // overflow to infinity
        {0x7f800000, 0x7f80}, {0xff800000, 0xff80},  // infinities
        {0x00000001, 0x0000}, {0x00008000, 0x0000},  // denormal numbers round normally
        {0x00008001, 0x0001}, {0x00018000, 0x0002}, {0x807fffff, 0x8080}};
    std::vector<float> values;
    for (const Case& c : cases) values.push_back(float_from_bits(c.from));
    const auto on_device = round_on_device(values).values;
    for (std::size_t i = 0; i < cases.size(); ++i) {
      CAPTURE(cases[i].from);
      CHECK(on_device[i].bits == cases[i].to);
      CHECK(round_to_bf16(values[i]).bits == cases[i].to);
    }
  }

  TEST_CASE("bf16 keeps NaN") {
    std::vector<float> values;
    for (const std::uint32_t bits :
         {0x7fc00000u, 0x7f800001u, 0xff800001u, 0x7fffffffu, 0x7fbfffffu}) {
      values.push_back(float_from_bits(bits));
    }
    const RoundingResult on_device = round_on_device(values);
    for (std::size_t i = 0; i < values.size(); ++i) {
      CHECK(is_nan(on_device.values[i]));
      CHECK(std::isnan(on_device.back[i]));
      CHECK(is_nan(round_to_bf16(values[i])));
    }
  }

  TEST_CASE("bf16 rounding agrees with the nearest neighbour computed in fp64") {
    std::mt19937 bits(7);
    std::vector<float> values;
    while (values.size() < (llmc_test::tiny_shapes() ? 500u : 50000u)) {
      const float x = float_from_bits(static_cast<std::uint32_t>(bits()));
      if (std::isfinite(x)) values.push_back(x);
    }
    const auto on_device = round_on_device(values).values;
    int wrong = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const bf16 expected = nearest_bf16(values[i]);
      wrong += on_device[i].bits != expected.bits || round_to_bf16(values[i]).bits != expected.bits;
    }
    CHECK(wrong == 0);
  }

  TEST_CASE("every bf16 number converts to fp32 and back without change") {
    int wrong = 0;
    for (std::uint32_t i = 0; i < 0x10000; ++i) {
      const bf16 x{static_cast<std::uint16_t>(i)};
      if (!is_nan(x)) wrong += round_to_bf16(to_float(x)).bits != x.bits;
    }
    CHECK(wrong == 0);
  }

  TEST_CASE("every fp16 number converts to fp32 and back, and others round to nearest even") {
    int wrong = 0;
    for (std::uint32_t i = 0; i < 0x8000; ++i) {
      const fp16 x{static_cast<std::uint16_t>(i)}, minus{static_cast<std::uint16_t>(i | 0x8000)};
      if (std::isnan(to_float(x))) {
        wrong += !std::isnan(to_float(round_to_fp16(to_float(x))));
        continue;
      }
      wrong += round_to_fp16(to_float(x)).bits != x.bits;
      wrong += round_to_fp16(to_float(minus)).bits != minus.bits || to_float(minus) != -to_float(x);
      if (i >= 0x7bff) continue;
      const float low = to_float(x), high = to_float(fp16{static_cast<std::uint16_t>(i + 1)});
      const float middle = 0.5f * (low + high);  // exact in fp32
      const auto rounded = [](float value) { return round_to_fp16(value).bits; };
      wrong += rounded(std::nextafter(middle, 0.0f)) != i;
      wrong += rounded(std::nextafter(middle, 1e6f)) != i + 1;
      wrong += rounded(middle) != (i % 2 == 0 ? i : i + 1);
    }
    CHECK(wrong == 0);
    CHECK(to_float(fp16{0x3c00}) == 1.0f);
    CHECK(to_float(fp16{0x0001}) == 0x1p-24f);
    CHECK(to_float(fp16{0x7bff}) == 65504.0f);
    CHECK(round_to_fp16(65519.996f).bits == 0x7bff);
    CHECK(round_to_fp16(65520.0f).bits == 0x7c00);
    CHECK(round_to_fp16(3e38f).bits == 0x7c00);
    CHECK(round_to_fp16(-INFINITY).bits == 0xfc00);
    CHECK(round_to_fp16(1e-30f).bits == 0);
  }

  TEST_CASE("every dtype has a name and a storage type") {
    CHECK(parse_dtype("bf16") == Dtype::bf16);
    CHECK(parse_dtype(dtype_name(Dtype::fp32)) == Dtype::fp32);
    CHECK_THROWS_WITH_AS(parse_dtype("fp8"), "unknown dtype 'fp8': expected fp32, bf16 or fp16",
                         Error);
    const auto size = [](Dtype dtype) {
      return dispatch_dtype(dtype, [&]<class T>() { return sizeof(T); });
    };
    CHECK(size(Dtype::fp32) == 4);
    CHECK(size(Dtype::bf16) == 2);
    CHECK(size(Dtype::fp16) == 2);
    CHECK(parse_dtype(dtype_name(Dtype::fp16)) == Dtype::fp16);
  }
}

// ---- threads and vectors -------------------------------------------------------------------

namespace device_kernels {

constexpr int kIndices = 13;

template <class = void>
__global__ void index_kernel(std::int64_t* out) {
  const std::int64_t block = (block_z() * grid_y() + block_y()) * grid_x() + block_x();
  std::int64_t* own = out + (block * block_size() + thread_index()) * kIndices;
  const std::int64_t all[kIndices] = {
      thread_index(), block_size(), lane(),   warp_index(), warps_per_block(), block_x(), block_y(),
      block_z(),      grid_x(),     grid_y(), grid_z(),     global_thread(),   block};
  for (int i = 0; i < kIndices; ++i) own[i] = all[i];
}

template <class T, int N, bool Streaming>
__global__ void vector_kernel(T* out, const T* in, std::int64_t n) {
  const std::int64_t i = global_thread() * N;
  if (i >= n) return;
  Vec<T, N> v = Streaming ? load_streaming<N>(in + i) : load_vec<N>(in + i);
  // Reverses the vector, so that a vector at the wrong place or in the wrong order is detected.
  for (int k = 0; k < N / 2; ++k) {
    const T first = v[k];
    v[k] = v[N - 1 - k];
    v[N - 1 - k] = first;
  }
  Streaming ? store_streaming(out + i, v) : store_vec(out + i, v);
}

template <class T, int N, bool Streaming>
void check_vectors() {
  Stream stream;
  const auto values = llmc_test::convert<T>(random_floats(16 * 37, 3));
  const auto n = static_cast<std::int64_t>(values.size());
  const auto in = upload(values, stream);
  Buffer<T> out(n);
  launch(vector_kernel<T, N, Streaming>, {ceil_div(n, 32 * N)}, 32, 0, stream, out.data(),
         in.data(), n);
  const auto actual = download(out, stream);
  int wrong = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t from = i / N * N + N - 1 - i % N;
    wrong += std::memcmp(&actual[static_cast<std::size_t>(i)],
                         &values[static_cast<std::size_t>(from)], sizeof(T)) != 0;
  }
  CAPTURE(N);
  CHECK(wrong == 0);
}

}  // namespace device_kernels

TEST_SUITE("device") {
  TEST_CASE("indices of threads, lanes, warps and blocks match the launch") {
    Stream stream;
    const std::int64_t x = 3, y = 2, z = 2, threads = 64;
    Buffer<std::int64_t> out(x * y * z * threads * kIndices);
    launch(index_kernel<>, {x, y, z}, threads, 0, stream, out.data());
    const auto actual = download(out, stream);
    int wrong = 0;
    for (std::int64_t i = 0; i < x * y * z * threads; ++i) {
      const std::int64_t block = i / threads, t = i % threads;
      const std::int64_t expected[kIndices] = {t,
                                               threads,
                                               t % 32,
                                               t / 32,
                                               2,
                                               block % x,
                                               block / x % y,
                                               block / (x * y),
                                               x,
                                               y,
                                               z,
                                               block % x * threads + t,
                                               block};
      for (int k = 0; k < kIndices; ++k) {
        wrong += actual[static_cast<std::size_t>(i * kIndices + k)] != expected[k];
      }
    }
    CHECK(wrong == 0);
  }

  TEST_CASE("vector loads and stores move the right elements") {
    static_assert(alignof(Vec<float, 4>) == 16 && alignof(Vec<bf16, 8>) == 16);
    static_assert(alignof(Vec<bf16, 2>) == 4 && alignof(Vec<float, 8>) == 16);
    static_assert(kVecSize<float> == 4 && kVecSize<bf16> == 8);
    check_vectors<float, 1, false>();
    check_vectors<float, 2, false>();
    check_vectors<float, 4, false>();
    check_vectors<float, 8, false>();
    check_vectors<bf16, 1, false>();
    check_vectors<bf16, 2, false>();
    check_vectors<bf16, 4, false>();
    check_vectors<bf16, 8, false>();
    check_vectors<bf16, 16, false>();
    check_vectors<float, 4, true>();
    check_vectors<float, 2, true>();
    check_vectors<bf16, 8, true>();
    check_vectors<bf16, 4, true>();
  }
}
