// Fragments of mma and ldmatrix against the formulae of the manual (PTX ISA 9.0, section 9.7.14.5).
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <string>

#include "test/ptx/floats.h"
#include "test/ptx_rig.h"

namespace {

using namespace llmc_test;

std::string registers(int first, int count) {
  std::string text = "{";
  for (int i = 0; i < count; ++i) text += (i == 0 ? "$" : ", $") + std::to_string(first + i);
  return text + "}";
}

// The text of mma, whose operands are numbered in their order.
std::string mma_text(const std::string& types) {
  return "mma.sync.aligned." + types + " " + registers(0, 4) + ", " + registers(4, 4) + ", " +
         registers(8, 2) + ", " + registers(10, 4);
}

// Row and column of element `index` of a lane's fragment, as the manual states them for elements of
// `bits` bits: with groupID = lane >> 2 and threadID = lane % 4.
struct Place {
  int row, column;
};
Place place_in_a(int lane, int index, int per_register) {
  const int group = lane >> 2, thread = lane % 4, reg = index / per_register;
  return {reg == 0 || reg == 2 ? group : group + 8,
          thread * per_register + index % per_register + (reg >= 2 ? 4 * per_register : 0)};
}
Place place_in_b(int lane, int index, int per_register) {
  const int group = lane >> 2, thread = lane % 4;
  return {
      thread * per_register + index % per_register + (index >= per_register ? 4 * per_register : 0),
      group};
}
Place place_in_c(int lane, int index) {
  return {(lane >> 2) + (index < 2 ? 0 : 8), lane % 4 * 2 + (index & 1)};
}

}  // namespace

TEST_SUITE("ptx_matrix") {
  TEST_CASE("mma of halves multiplies the matrices whose fragments the manual describes") {
    std::mt19937_64 random(1);
    for (const bool is_bf16 : {true, false}) {
      double a[16][16], b[16][8], c[16][8];
      std::vector<Lanes> in(10);
      const auto half = [&](double x) {
        return is_bf16 ? llmc_ptx::to_bf16(static_cast<float>(x))
                       : llmc_ptx::to_fp16(static_cast<float>(x));
      };
      // Small integers over 8, so that all sums are exact in every order.
      const auto draw = [&] { return (static_cast<double>(random() % 33) - 16) / 8; };
      for (auto& row : a)
        for (double& x : row) x = draw();
      for (auto& row : b)
        for (double& x : row) x = draw();
      for (auto& row : c)
        for (double& x : row) x = draw();
      for (std::size_t lane = 0; lane < 32; ++lane) {
        const auto l = static_cast<int>(lane);
        for (int e = 0; e < 8; ++e) {
          const Place at = place_in_a(l, e, 2);
          in[static_cast<std::size_t>(e / 2)][lane] |=
              static_cast<std::uint64_t>(half(a[at.row][at.column])) << (e % 2 * 16);
        }
        for (int e = 0; e < 4; ++e) {
          const Place at = place_in_b(l, e, 2);
          in[static_cast<std::size_t>(4 + e / 2)][lane] |=
              static_cast<std::uint64_t>(half(b[at.row][at.column])) << (e % 2 * 16);
        }
        for (int e = 0; e < 4; ++e) {
          const Place at = place_in_c(l, e);
          in[static_cast<std::size_t>(6 + e)][lane] =
              std::bit_cast<std::uint32_t>(static_cast<float>(c[at.row][at.column]));
        }
      }
      const std::string type = is_bf16 ? "bf16.bf16" : "f16.f16";
      for (const std::uint64_t seed : {0, 1, 2, 3, 4, 5}) {
        const std::vector<Lanes> out = run_instruction(
            mma_text("m16n8k16.row.col.f32." + type + ".f32"), "WWWWwwwwwwwwww", in, {}, seed);
        for (std::size_t lane = 0; lane < 32; ++lane) {
          for (int e = 0; e < 4; ++e) {
            const Place at = place_in_c(static_cast<int>(lane), e);
            double expected = c[at.row][at.column];
            for (int k = 0; k < 16; ++k) expected += a[at.row][k] * b[k][at.column];
            REQUIRE(std::bit_cast<float>(static_cast<std::uint32_t>(
                        out[static_cast<std::size_t>(e)][lane])) == static_cast<float>(expected));
          }
        }
      }
    }
  }

  TEST_CASE(
      "the order of the sum in mma of halves depends on the seed, and its error stays small") {
    std::mt19937_64 random(2);
    std::vector<Lanes> in(10);
    for (std::size_t i = 0; i < 6; ++i) {
      for (std::uint64_t& lane : in[i]) {
        lane = std::uint64_t{llmc_ptx::to_bf16(static_cast<float>(random() % 1000) / 300)} << 16 |
               llmc_ptx::to_bf16(static_cast<float>(random() % 1000) / 300);
      }
    }
    const auto run = [&](std::uint64_t seed) {
      return run_instruction(mma_text("m16n8k16.row.col.f32.bf16.bf16.f32"), "WWWWwwwwwwwwww", in,
                             {}, seed);
    };
    const std::vector<Lanes> first = run(0);
    bool differs = false;
    for (std::uint64_t seed = 1; seed < 12; ++seed) {
      const std::vector<Lanes> other = run(seed);
      CHECK(other == run(seed));
      differs = differs || other != first;
      for (std::size_t e = 0; e < 4; ++e) {
        for (std::size_t lane = 0; lane < 32; ++lane) {
          const float x = std::bit_cast<float>(static_cast<std::uint32_t>(first[e][lane])),
                      y = std::bit_cast<float>(static_cast<std::uint32_t>(other[e][lane]));
          REQUIRE(std::fabs(x - y) <= 17 * 0x1p-23f * std::fabs(x));
        }
      }
    }
    CHECK(differs);
  }

  TEST_CASE("mma of bytes has exact sums") {
    std::mt19937_64 random(3);
    std::vector<Lanes> in(10);
    for (Lanes& lanes : in) lanes = some_bits(random, {0, 0x80808080, 0x7F7F7F7F});
    const std::vector<Lanes> out =
        run_instruction(mma_text("m16n8k32.row.col.s32.s8.s8.s32"), "WWWWwwwwwwwwww", in);
    int a[16][32], b[32][8];
    for (int lane = 0; lane < 32; ++lane) {
      const auto byte = [&](std::size_t reg, int e) {
        return static_cast<std::int8_t>(in[reg][static_cast<std::size_t>(lane)] >> (8 * (e % 4)));
      };
      for (int e = 0; e < 16; ++e)
        a[place_in_a(lane, e, 4).row][place_in_a(lane, e, 4).column] =
            byte(static_cast<std::size_t>(e / 4), e);
      for (int e = 0; e < 8; ++e)
        b[place_in_b(lane, e, 4).row][place_in_b(lane, e, 4).column] =
            byte(static_cast<std::size_t>(4 + e / 4), e);
    }
    for (std::size_t lane = 0; lane < 32; ++lane) {
      for (int e = 0; e < 4; ++e) {
        const Place at = place_in_c(static_cast<int>(lane), e);
        std::int64_t expected =
            static_cast<std::int32_t>(in[static_cast<std::size_t>(6 + e)][lane]);
        for (int k = 0; k < 32; ++k) expected += a[at.row][k] * b[k][at.column];
        REQUIRE(static_cast<std::uint32_t>(out[static_cast<std::size_t>(e)][lane]) ==
                static_cast<std::uint32_t>(expected));
      }
    }
  }

  TEST_CASE("ldmatrix gives a lane two neighbours of a row, or of a column with .trans") {
    DeviceArray<std::uint16_t> in(256);
    DeviceArray<std::uint32_t> out(128);
    for (std::size_t i = 0; i < 256; ++i) in[i] = static_cast<std::uint16_t>(1000 + i);
    for (const std::string trans : {"", ".trans"}) {
      // Row r of matrix x is at 16 * ((8 x + r) * 5 % 32), to show that each lane's address counts.
      run_text(kernel_text(".reg .b64 %in, %out, %at; .reg .b32 %lane, %to, %a, %b, %c, "
                           "%d;\nmov.u32 %lane, %tid.x;\n"
                           "mul.wide.u32 %at, %lane, 16;\nld.param.u64 %in, [p0];\nld.param.u64 "
                           "%out, [p1];\nadd.s64 %in, %in, %at;\n"
                           "add.s64 %out, %out, %at;\nmul.lo.s32 %to, %lane, 5;\nand.b32 %to, %to, "
                           "31;\nshl.b32 %to, %to, 4;\n"
                           "ld.global.v4.u32 {%a, %b, %c, %d}, [%in];\nst.shared.v4.u32 [%to], "
                           "{%a, %b, %c, %d};\n"
                           "bar.warp.sync -1;\nldmatrix.sync.aligned.m8n8.x4" +
                               trans +
                               ".shared.b16 {%a, %b, %c, %d}, [%to];\n"
                               "st.global.v4.u32 [%out], {%a, %b, %c, %d};\nret;",
                           2),
               {in.data(), out.data()}, 32, 512);
      for (std::size_t lane = 0; lane < 32; ++lane) {
        for (std::size_t x = 0; x < 4; ++x) {
          const std::size_t row = lane / 4, column = lane % 4 * 2;
          const auto element = [&](std::size_t r, std::size_t c) { return in[x * 64 + r * 8 + c]; };
          const std::uint32_t low = trans.empty() ? element(row, column) : element(column, row);
          const std::uint32_t high =
              trans.empty() ? element(row, column + 1) : element(column + 1, row);
          REQUIRE(out[lane * 4 + x] == (high << 16 | low));
        }
      }
    }
  }
}
