// Products of matrices whose elements are spread over the registers of a warp (PTX ISA 9.0,
// section 9.7.14.5).
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "llmc/base/hash.h"
#include "test/ptx/floats.h"
#include "test/ptx/lanes.h"
#include "test/ptx/memory.h"
#include "test/ptx/undefined.h"

namespace llmc_ptx {

namespace {

constexpr int kM = 16, kN = 8;

// How a product sums. The manual leaves the order and the rounding open. A group of products is
// summed as if exactly, and then added to the accumulator.
struct SumOrder {
  int group;       // 1, 4, 8 or 16 products
  bool ascending;  // order of the groups
  bool truncates;  // the sum with the accumulator; else it is rounded to nearest

  explicit SumOrder(U64 seed) {
    const U64 random = seed == 0 ? 0 : llmc::mix64(seed, 0x6D6D61);
    constexpr int kGroups[] = {16, 8, 4, 1};
    group = kGroups[random & 3];
    ascending = (random >> 2 & 1) == 0;
    truncates = seed != 0 && (random >> 3 & 1) != 0;
  }
};

float truncated(double x) {
  const auto rounded = static_cast<float>(x);
  return std::fabs(double{rounded}) > std::fabs(x) ? std::nextafter(rounded, 0.0f) : rounded;
}

// d += a b, with a (kM, 16), b (16, kN), d (kM, kN).
void multiply(const float (&a)[kM][16], const float (&b)[16][kN], float (&d)[kM][kN],
              const SumOrder& order) {
  for (int m = 0; m < kM; ++m) {
    for (int g = 0; g < 16 / order.group; ++g) {
      const int first = (order.ascending ? g : 16 / order.group - 1 - g) * order.group;
      double sums[kN] = {};
      for (int k = first; k < first + order.group; ++k) {
        for (int n = 0; n < kN; ++n) sums[n] += double{a[m][k]} * double{b[k][n]};
      }
      for (int n = 0; n < kN; ++n) {
        const double sum = double{d[m][n]} + sums[n];
        d[m][n] = order.truncates ? truncated(sum) : static_cast<float>(sum);
      }
    }
  }
}

// mma.sync.aligned.m16n8k16.row.col: d = a b + c, with halves in a and b.
template <float (*kWiden)(U16)>
void mma_halves(Warp& warp, const Instruction& i) {
  warp.require_whole("mma");
  alignas(64) float a[kM][16], b[16][kN], d[kM][kN];
  for (int lane = 0; lane < kLanes; ++lane) {
    const int group = lane / 4, thread = lane % 4;
    for (int e = 0; e < 8; ++e) {
      const int row = group + (e % 4 < 2 ? 0 : 8), column = thread * 2 + e % 2 + (e < 4 ? 0 : 8);
      a[row][column] =
          kWiden(static_cast<U16>(warp.lanes<U32>(i.operands[4 + e / 2])[lane] >> (16 * (e % 2))));
    }
    for (int e = 0; e < 4; ++e) {
      const int row = thread * 2 + e % 2 + (e < 2 ? 0 : 8);
      b[row][group] =
          kWiden(static_cast<U16>(warp.lanes<U32>(i.operands[8 + e / 2])[lane] >> (16 * (e % 2))));
    }
    for (int e = 0; e < 4; ++e) {
      d[group + (e < 2 ? 0 : 8)][thread * 2 + e % 2] = warp.lanes<float>(i.operands[10 + e])[lane];
    }
  }
  multiply(a, b, d, SumOrder(warp.block().seed));
  for (int lane = 0; lane < kLanes; ++lane) {
    const int group = lane / 4, thread = lane % 4;
    for (int e = 0; e < 4; ++e) {
      warp.lanes<float>(i.operands[e])[lane] = d[group + (e < 2 ? 0 : 8)][thread * 2 + e % 2];
    }
  }
}

// mma.sync.aligned.m16n8k32.row.col: exact sums of products of signed bytes.
void mma_bytes(Warp& warp, const Instruction& i) {
  warp.require_whole("mma");
  constexpr int kK = 32;
  alignas(64) S32 a[kM][kK], b[kK][kN], d[kM][kN];
  for (int lane = 0; lane < kLanes; ++lane) {
    const int group = lane / 4, thread = lane % 4;
    for (int e = 0; e < 16; ++e) {
      const int row = group + (e % 8 < 4 ? 0 : 8), column = thread * 4 + e % 4 + (e < 8 ? 0 : 16);
      a[row][column] =
          static_cast<S8>(warp.lanes<U32>(i.operands[4 + e / 4])[lane] >> (8 * (e % 4)));
    }
    for (int e = 0; e < 8; ++e) {
      const int row = thread * 4 + e % 4 + (e < 4 ? 0 : 16);
      b[row][group] =
          static_cast<S8>(warp.lanes<U32>(i.operands[8 + e / 4])[lane] >> (8 * (e % 4)));
    }
    for (int e = 0; e < 4; ++e) {
      d[group + (e < 2 ? 0 : 8)][thread * 2 + e % 2] = warp.lanes<S32>(i.operands[10 + e])[lane];
    }
  }
  for (int m = 0; m < kM; ++m) {
    S32 sums[kN] = {};
    for (int k = 0; k < kK; ++k) {
      for (int n = 0; n < kN; ++n) sums[n] += a[m][k] * b[k][n];
    }
    for (int n = 0; n < kN; ++n)
      d[m][n] = static_cast<S32>(static_cast<U32>(d[m][n]) + static_cast<U32>(sums[n]));
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    const int group = lane / 4, thread = lane % 4;
    for (int e = 0; e < 4; ++e) {
      warp.lanes<S32>(i.operands[e])[lane] = d[group + (e < 2 ? 0 : 8)][thread * 2 + e % 2];
    }
  }
}

using Rows = std::array<const std::byte*, kLanes>;

// Writes the elements of four matrices to a register each; lane l has the address of row l % 8 of
// matrix l / 8.
template <bool kTransposed>
void spread_matrices(Warp& warp, const Rows& rows, const std::array<Operand, 4>& registers) {
  U16 matrices[4][8][8];
  for (std::size_t lane = 0; lane < kLanes; ++lane)
    std::memcpy(matrices[lane / 8][lane % 8], rows[lane], 16);
  for (std::size_t x = 0; x < 4; ++x) {
    U32* const out = warp.lanes<U32>(registers[x]);
    const auto& matrix = matrices[x];
    for (int lane = 0; lane < kLanes; ++lane) {
      const int row = lane / 4, column = lane % 4 * 2;
      const U16 low = kTransposed ? matrix[column][row] : matrix[row][column];
      const U16 high = kTransposed ? matrix[column + 1][row] : matrix[row][column + 1];
      out[lane] = U32{high} << 16 | low;
    }
  }
}

// The undefined bits of the rows become those of the registers.
template <bool kTransposed>
void spread_undefined(Warp& warp, const Instruction& i, const Rows& rows) {
  Rows bits;
  bool any = false;
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    bits[lane] = undefined_bits(warp, rows[lane], 16);
    any = any || any_undefined(bits[lane], 16);
  }
  for (int x = 0; x < 4; ++x) any = any || warp.has_undefined(i.operands[x]);
  if (!any) return;
  std::array<Operand, 4> registers;
  for (std::size_t x = 0; x < 4; ++x) registers[x] = warp.undefined(i.operands[x]);
  spread_matrices<kTransposed>(warp, bits, registers);
  for (int x = 0; x < 4; ++x) warp.update_undefined(i.operands[x], sizeof(U32) * kLanes);
}

// ldmatrix.x4: lane l has the address of row l % 8 of matrix l / 8. A lane gets two neighbours of a
// row of each matrix; with .trans, of a column.
template <bool kTransposed, class B>
void load_matrices(Warp& warp, const Instruction& i) {
  warp.require_whole("ldmatrix");
  const Places places =
      find_places(warp, Space::shared, addresses_of<B>(warp, i.operands[4], i.offset), 16);
  for (int lane = 0; lane < kLanes; ++lane) {
    note_read(warp, lane, places[static_cast<std::size_t>(lane)], 16);
  }
  Rows rows;
  std::ranges::copy(places, rows.begin());
  spread_matrices<kTransposed>(warp, rows,
                               {i.operands[0], i.operands[1], i.operands[2], i.operands[3]});
  if (warp.checks_undefined()) spread_undefined<kTransposed>(warp, i, rows);
}

template <bool kTransposed>
Run matrices_by_width(const std::vector<Width>& widths) {
  return widths[0] == Width::bits32 ? load_matrices<kTransposed, U32>
                                    : load_matrices<kTransposed, U64>;
}

}  // namespace

void add_matrix_forms(FormTable& table) {
  const char* const product = "WWWWwwwwwwwwww";
  table.add({.name = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
             .section = "9.7.14.5.8",
             .operands = product,
             .run = mma_halves<from_bf16>});
  table.add({.name = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
             .section = "9.7.14.5.8",
             .operands = product,
             .run = mma_halves<from_fp16>});
  table.add({.name = "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32",
             .section = "9.7.14.5.10",
             .operands = product,
             .run = mma_bytes});
  table.add({.name = "ldmatrix.sync.aligned.m8n8.x4.shared.b16",
             .section = "9.7.14.5.15",
             .operands = "WWWW[",
             .by_width = matrices_by_width<false>});
  table.add({.name = "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16",
             .section = "9.7.14.5.15",
             .operands = "WWWW[",
             .by_width = matrices_by_width<true>});
}

}  // namespace llmc_ptx
