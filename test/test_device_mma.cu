// Matrix instructions of a warp against plain loops, with fragments laid out as in
// llmc/device/README.md, and the approximate functions of math.h.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "llmc/device/device.h"
#include "test/support.h"

using namespace llmc;
using llmc_test::download;
using llmc_test::random_floats;
using llmc_test::upload;

// Has a name because DEVICE=ptx finds kernels by theirs.
namespace device_mma_kernels {

// The row of shared memory that stores row `row` of the tile. Rows are permuted, because lanes may
// pass any row address.
__host__ __device__ constexpr int stored_row(int row) {
  return (row * 5 + 3) % 32;
}

// out: 4 registers per lane of the plain load, then 4 registers per lane of the transposed load.
template <class = void>
__global__ void ldmatrix_kernel(std::uint32_t* out, const bf16* in) {
  SharedMemory shared;
  bf16* tile = shared.take<bf16>(32 * 8);
  for (int i = 0; i < 8; ++i) tile[stored_row(lane()) * 8 + i] = in[lane() * 8 + i];
  warp_barrier();
  std::uint32_t plain[4], transposed[4];
  ldmatrix_x4(plain, tile + stored_row(lane()) * 8);
  ldmatrix_x4_transposed(transposed, tile + stored_row(lane()) * 8);
  for (int r = 0; r < 4; ++r) {
    out[lane() * 8 + r] = plain[r];
    out[lane() * 8 + 4 + r] = transposed[r];
  }
}

// d (16, 8) = c + a (16, 16) · b (16, 8). Each lane fills its fragments element by element.
template <class T>
__global__ void mma_kernel(float* d, const float* c, const T* a, const T* b) {
  const int g = lane() / 4, t = lane() % 4;
  const auto pair = [](const T* low, const T* high) {
    return pack2<T>(to_float(*low), to_float(*high));
  };
  const auto of_a = [&](int row, int column) {
    return pair(a + row * 16 + column, a + row * 16 + column + 1);
  };
  const auto of_b = [&](int row) { return pair(b + row * 8 + g, b + (row + 1) * 8 + g); };
  const std::uint32_t fa[4] = {of_a(g, 2 * t), of_a(g + 8, 2 * t), of_a(g, 2 * t + 8),
                               of_a(g + 8, 2 * t + 8)};
  const std::uint32_t fb[2] = {of_b(2 * t), of_b(2 * t + 8)};
  float sum[4];
  for (int e = 0; e < 4; ++e) sum[e] = c[(g + e / 2 * 8) * 8 + 2 * t + e % 2];
  mma_m16n8k16<T>(sum, fa, fb);
  for (int e = 0; e < 4; ++e) d[(g + e / 2 * 8) * 8 + 2 * t + e % 2] = sum[e];
}

// The host fills the registers: 4 per lane of a, 2 per lane of b. d receives the 4 result registers
// of each lane in their order.
template <class T>
__global__ void raw_mma_kernel(float* d, const std::uint32_t* a, const std::uint32_t* b) {
  std::uint32_t fa[4], fb[2];
  for (int r = 0; r < 4; ++r) fa[r] = a[lane() * 4 + r];
  for (int r = 0; r < 2; ++r) fb[r] = b[lane() * 2 + r];
  float sum[4] = {};
  mma_m16n8k16<T>(sum, fa, fb);
  for (int i = 0; i < 4; ++i) d[lane() * 4 + i] = sum[i];
}

// The same with signed bytes.
template <class = void>
__global__ void raw_byte_mma_kernel(std::int32_t* d, const std::uint32_t* a,
                                    const std::uint32_t* b) {
  std::uint32_t fa[4], fb[2];
  for (int r = 0; r < 4; ++r) fa[r] = a[lane() * 4 + r];
  for (int r = 0; r < 2; ++r) fb[r] = b[lane() * 2 + r];
  std::int32_t sum[4] = {1000, 2000, 3000, 4000};
  mma_m16n8k32_s8(sum, fa, fb);
  for (int i = 0; i < 4; ++i) d[lane() * 4 + i] = sum[i];
}

// d (16, 16) = a (16, K) · b (K, 16), both row-major, through shared memory and ldmatrix, like a
// GEMM or attention: two products of 8 columns per step.
template <class T>
__global__ void tile_product_kernel(float* d, const T* a, const T* b, std::int64_t depth) {
  SharedMemory shared;
  T* tile_a = shared.take<T>(16 * 16);
  T* tile_b = shared.take<T>(16 * 16);
  float sum[2][4] = {};
  for (std::int64_t k = 0; k < depth; k += 16) {
    const int row = lane() / 2, column = lane() % 2 * 8;
    copy_async_16(tile_a + row * 16 + column, a + row * depth + k + column);
    copy_async_16(tile_b + row * 16 + column, b + (k + row) * 16 + column);
    copy_async_commit();
    copy_async_wait<0>();
    warp_barrier();
    // Matrices 0 and 1 are the upper and lower half of the left 8 columns, 2 and 3 of the right 8.
    const int offset = lane() % 16 * 16 + lane() / 16 * 8;
    std::uint32_t fa[4], fb[4];
    ldmatrix_x4(fa, tile_a + offset);
    ldmatrix_x4_transposed(fb, tile_b + offset);
    for (int half = 0; half < 2; ++half) {
      const std::uint32_t columns[2] = {fb[2 * half], fb[2 * half + 1]};
      mma_m16n8k16<T>(sum[half], fa, columns);
    }
    warp_barrier();
  }
  for (int half = 0; half < 2; ++half) {
    for (int e = 0; e < 4; ++e) {
      d[(lane() / 4 + e / 2 * 8) * 16 + half * 8 + lane() % 4 * 2 + e % 2] = sum[half][e];
    }
  }
}

template <class T>
__global__ void pack_kernel(std::uint32_t* out, const float* in, std::int64_t n) {
  const std::int64_t i = global_thread();
  if (i < n) out[i] = pack2<T>(in[2 * i], in[2 * i + 1]);
}

template <class = void>
__global__ void exp2_kernel(float* out, const float* in, std::int64_t n) {
  if (global_thread() < n) out[global_thread()] = fast_exp2(in[global_thread()]);
}

template <class T>
float at(const std::vector<T>& m, std::int64_t row, std::int64_t column, std::int64_t columns) {
  return to_float(m[static_cast<std::size_t>(row * columns + column)]);
}

// The position of element i of a lane's fragment in its matrix. The functions use the conditions on
// i from the PTX ISA ("Matrix Fragments for mma.m16n8k16 with floating point type"), independently
// of the rest of the engine. Two elements share a register; the one with the lower i is in the
// lower half.
struct Position {
  int row, column;
};
Position position_in_a(int lane, int i) {
  const int group = lane >> 2, in_group = lane % 4;
  return {(0 <= i && i < 2) || (4 <= i && i < 6) ? group : group + 8,
          in_group * 2 + (i & 1) + (i < 4 ? 0 : 8)};
}
Position position_in_b(int lane, int i) {
  const int group = lane >> 2, in_group = lane % 4;
  return {in_group * 2 + (i & 1) + (i < 2 ? 0 : 8), group};
}
Position position_in_d(int lane, int i) {
  const int group = lane >> 2, in_group = lane % 4;
  return {i < 2 ? group : group + 8, in_group * 2 + (i & 1)};
}

// "Matrix Fragments for mma.m16n8k32", operands of type .s8; d is as above.
Position position_in_byte_a(int lane, int i) {
  const int group = lane >> 2, in_group = lane % 4;
  return {(0 <= i && i < 4) || (8 <= i && i < 12) ? group : group + 8,
          in_group * 4 + (i & 3) + (i < 8 ? 0 : 16)};
}
Position position_in_byte_b(int lane, int i) {
  const int group = lane >> 2, in_group = lane % 4;
  return {in_group * 4 + (i & 3) + (i < 4 ? 0 : 16), group};
}

// The registers of all lanes for a matrix of `columns` columns, `elements` elements per lane.
template <class T, class PositionOf>
std::vector<std::uint32_t> fragments(const std::vector<T>& matrix, int columns, int elements,
                                     PositionOf position_of) {
  std::vector<std::uint32_t> registers;
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < elements; i += 2) {
      const Position low = position_of(lane, i), high = position_of(lane, i + 1);
      registers.push_back(matrix[low.row * columns + low.column].bits |
                          std::uint32_t{matrix[high.row * columns + high.column].bits} << 16);
    }
  }
  return registers;
}

template <class PositionOf>
std::vector<std::uint32_t> byte_fragments(const std::vector<std::int8_t>& matrix, int columns,
                                          int elements, PositionOf position_of) {
  std::vector<std::uint32_t> registers;
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < elements; ++i) {
      const Position p = position_of(lane, i);
      const auto byte = static_cast<std::uint8_t>(matrix[p.row * columns + p.column]);
      if (i % 4 == 0) registers.push_back(0);
      registers.back() |= std::uint32_t{byte} << 8 * (i % 4);
    }
  }
  return registers;
}

// The largest |actual - c - a·b|, relative to |c| + Σ|a·b|.
template <class T>
double product_error(const std::vector<float>& actual, const std::vector<float>& c,
                     const std::vector<T>& a, const std::vector<T>& b, std::int64_t columns,
                     std::int64_t depth) {
  double max_error = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const std::int64_t row = static_cast<std::int64_t>(i) / columns;
    const std::int64_t column = static_cast<std::int64_t>(i) % columns;
    double expected = c[i], scale = std::abs(c[i]);
    for (std::int64_t k = 0; k < depth; ++k) {
      const double product = double{at(a, row, k, depth)} * at(b, k, column, columns);
      expected += product;
      scale += std::abs(product);
    }
    const double error = std::abs(actual[i] - expected) / scale;
    if (!(error <= max_error)) max_error = error;  // true for NaN too
  }
  return max_error;
}

// Products of half-precision numbers are exact in fp32. The remaining error is 16 roundings to 24
// bits per step, or truncations on a GPU, which sums in its own order: 2^-23 each, and few of them
// add up.
constexpr double kSumError = 16 * 0x1p-23;

}  // namespace device_mma_kernels

using namespace device_mma_kernels;

TEST_SUITE("device_mma") {
  TEST_CASE("ldmatrix loads two elements of each matrix into each lane") {
    Stream stream;
    std::vector<bf16> values(32 * 8);
    for (std::size_t i = 0; i < values.size(); ++i) values[i].bits = static_cast<std::uint16_t>(i);
    const auto in = upload(values, stream);
    Buffer<std::uint32_t> out(32 * 8);
    launch(ldmatrix_kernel<>, {1}, 32, SharedLayout().add<bf16>(32 * 8).bytes(), stream, out.data(),
           in.data());
    const auto actual = download(out, stream);
    for (std::uint32_t l = 0; l < 32; ++l) {
      const std::uint32_t g = l / 4, t = l % 4;
      for (std::uint32_t m = 0; m < 4; ++m) {
        const auto element = [&](std::uint32_t row, std::uint32_t column) {
          return (m * 8 + row) * 8 + column;
        };
        CAPTURE(l);
        CAPTURE(m);
        CHECK(actual[l * 8 + m] == (element(g, 2 * t) | element(g, 2 * t + 1) << 16));
        CHECK(actual[l * 8 + 4 + m] == (element(2 * t, g) | element(2 * t + 1, g) << 16));
      }
    }
  }

  TEST_CASE_TEMPLATE("mma computes d = c + a b", T, bf16, fp16) {
    Stream stream;
    for (const std::uint64_t seed : {1u, 2u, 3u}) {
      const auto a = llmc_test::convert<T>(random_floats(16 * 16, seed));
      const auto b = llmc_test::convert<T>(random_floats(16 * 8, seed + 10));
      const auto c = random_floats(16 * 8, seed + 20, 3.0);
      const auto da = upload(a, stream), db = upload(b, stream);
      const auto dc = upload(c, stream);
      Buffer<float> d(16 * 8);
      launch(mma_kernel<T>, {1}, 32, 0, stream, d.data(), dc.data(), da.data(), db.data());
      CHECK(product_error(download(d, stream), c, a, b, 8, 16) < kSumError);
    }
  }

  TEST_CASE_TEMPLATE("mma is exact if all sums are representable", T, bf16, fp16) {
    Stream stream;
    std::vector<T> a(16 * 16), b(16 * 8);
    std::vector<float> c(16 * 8);
    for (std::size_t i = 0; i < a.size(); ++i) {
      a[i] = from_float<T>(static_cast<float>(static_cast<int>(i * 7 % 31) - 15));
    }
    for (std::size_t i = 0; i < b.size(); ++i) {
      b[i] = from_float<T>(static_cast<float>(static_cast<int>(i * 5 % 23) - 11));
      c[i] = static_cast<float>(i);
    }
    const auto da = upload(a, stream), db = upload(b, stream);
    const auto dc = upload(c, stream);
    Buffer<float> d(16 * 8);
    launch(mma_kernel<T>, {1}, 32, 0, stream, d.data(), dc.data(), da.data(), db.data());
    CHECK(product_error(download(d, stream), c, a, b, 8, 16) == 0.0);
  }

  TEST_CASE_TEMPLATE("fragments have the layout of the PTX ISA", T, bf16, fp16) {
    Stream stream;
    // Every element of a and b affects d. They are small integers, so that the sums are exact.
    std::vector<T> a(16 * 16), b(16 * 8);
    for (int i = 0; i < 256; ++i) a[i] = from_float<T>(static_cast<float>(i * 37 % 101 - 50));
    for (int i = 0; i < 128; ++i) b[i] = from_float<T>(static_cast<float>(i * 29 % 67 - 33));
    const auto da = upload(fragments(a, 16, 8, position_in_a), stream);
    const auto db = upload(fragments(b, 8, 4, position_in_b), stream);
    Buffer<float> d(32 * 4);
    launch(raw_mma_kernel<T>, {1}, 32, 0, stream, d.data(), da.data(), db.data());
    const auto actual = download(d, stream);
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < 4; ++i) {
        const Position p = position_in_d(lane, i);
        float expected = 0;
        for (int k = 0; k < 16; ++k) expected += at(a, p.row, k, 16) * at(b, k, p.column, 8);
        CAPTURE(lane);
        CAPTURE(i);
        CHECK(actual[lane * 4 + i] == expected);
      }
    }
  }

  TEST_CASE("the product of signed bytes has the fragments of the PTX ISA and is exact") {
    Stream stream;
    std::vector<std::int8_t> a(16 * 32), b(32 * 8);
    for (int i = 0; i < 16 * 32; ++i) a[i] = static_cast<std::int8_t>(i * 37 % 256 - 128);
    for (int i = 0; i < 32 * 8; ++i) b[i] = static_cast<std::int8_t>(i * 29 % 256 - 128);
    const auto da = upload(byte_fragments(a, 32, 16, position_in_byte_a), stream);
    const auto db = upload(byte_fragments(b, 8, 8, position_in_byte_b), stream);
    Buffer<std::int32_t> d(32 * 4);
    launch(raw_byte_mma_kernel<>, {1}, 32, 0, stream, d.data(), da.data(), db.data());
    const auto actual = download(d, stream);
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < 4; ++i) {
        const Position p = position_in_d(lane, i);
        int expected = 1000 * (i + 1);
        for (int k = 0; k < 32; ++k) expected += a[p.row * 32 + k] * b[k * 8 + p.column];
        CAPTURE(lane);
        CAPTURE(i);
        CHECK(actual[lane * 4 + i] == expected);
      }
    }
  }

  TEST_CASE_TEMPLATE("ldmatrix and mma together multiply row-major matrices", T, bf16, fp16) {
    Stream stream;
    for (const std::int64_t depth : {16, 48}) {
      const auto a = llmc_test::convert<T>(random_floats(16 * depth, 4));
      const auto b = llmc_test::convert<T>(random_floats(depth * 16, 5));
      const auto da = upload(a, stream), db = upload(b, stream);
      Buffer<float> d(16 * 16);
      launch(tile_product_kernel<T>, {1}, 32,
             SharedLayout().add<T>(256).template add<T>(256).bytes(), stream, d.data(), da.data(),
             db.data(), depth);
      const std::vector<float> zero(16 * 16, 0.0f);
      CHECK(product_error(download(d, stream), zero, a, b, 16, depth) < kSumError);
    }
  }

  TEST_CASE("pack2 rounds both halves") {
    Stream stream;
    const std::vector<float> pairs = {1.0f, -2.0f, float_from_bits(0x3f818000),
                                      float_from_bits(0x3f808000)};
    const auto in = upload(pairs, stream);
    Buffer<std::uint32_t> out(2);
    launch(pack_kernel<bf16>, {1}, 32, 0, stream, out.data(), in.data(), 2);
    const auto actual = download(out, stream);
    CHECK(actual[0] == 0xc0003f80u);
    CHECK(actual[1] == 0x3f803f82u);
    // In fp16: exact values, then two ties, which round to even: one down and one up.
    const std::vector<float> halves = {1.0f, -2.0f, 1.0f + 0x1p-11f, 1.0f + 3 * 0x1p-11f};
    const auto half_in = upload(halves, stream);
    launch(pack_kernel<fp16>, {1}, 32, 0, stream, out.data(), half_in.data(), 2);
    const auto half = download(out, stream);
    CHECK(half[0] == 0xc0003c00u);
    CHECK(half[1] == 0x3c023c00u);
  }

  TEST_CASE("fast_exp2 has a relative error of at most 2^-22") {
    Stream stream;
    auto values = random_floats(500, 8, 20.0);
    values.insert(values.end(), {0.0f, -1.0f, 10.0f, -200.0f, -INFINITY});
    const auto n = static_cast<std::int64_t>(values.size());
    const auto in = upload(values, stream);
    Buffer<float> out(n);
    launch(exp2_kernel<>, {ceil_div(n, 64)}, 64, 0, stream, out.data(), in.data(), n);
    const auto actual = download(out, stream);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double expected = std::exp2(double{values[i]});
      CAPTURE(values[i]);
      // ex2.approx errs by up to 2 units in the last place (PTX ISA); results below 2^-126 may
      // become zero.
      CHECK(std::abs(actual[i] - expected) <= expected * 0x1p-22 + 0x1p-126);
    }
  }

  TEST_CASE("ceil_div and round_up round up") {
    CHECK(ceil_div(0, 4) == 0);
    CHECK(ceil_div(1, 4) == 1);
    CHECK(ceil_div(8, 4) == 2);
    CHECK(ceil_div(std::int64_t{1} << 40, 3) == 366503875926);
    CHECK(round_up(5, 4) == 8);
    CHECK(round_up(8, 4) == 8);
  }
}
