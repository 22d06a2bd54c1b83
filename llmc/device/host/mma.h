// Matrix instructions of a warp, on the host, element by element as the PTX ISA lays fragments out.
#pragma once

#include <cstdint>
#include <cstring>
#include <source_location>

#include "llmc/device/dtype.h"
#include "llmc/device/host/block.h"
#include "llmc/device/host/collectives.h"
#include "llmc/device/vec.h"

namespace llmc {

namespace host {

struct MatrixRow {
  Vec<std::uint16_t, 8> row;  // the 16 bytes this lane's address points at
  std::uint32_t result[4];
};

template <bool Transposed>
void load_matrices(ThreadSlot* lanes) {
  const auto row = [&](int matrix, int r) -> const Vec<std::uint16_t, 8>& {
    return static_cast<MatrixRow*>(lanes[matrix * 8 + r].operand)->row;
  };
  for (int matrix = 0; matrix < 4; ++matrix) {
    for (int l = 0; l < kWarpSize; ++l) {
      const int g = l / 4, t = l % 4;
      const std::uint32_t low = Transposed ? row(matrix, 2 * t)[g] : row(matrix, g)[2 * t];
      const std::uint32_t high = Transposed ? row(matrix, 2 * t + 1)[g] : row(matrix, g)[2 * t + 1];
      static_cast<MatrixRow*>(lanes[l].operand)->result[matrix] = low | high << 16;
    }
  }
}

// Each lane reads its own row, as its own access, then the warp exchanges.
template <bool Transposed>
void ldmatrix(std::uint32_t (&registers)[4], const void* row, Place place) {
  MatrixRow mine;
  mine.row = *static_cast<const Vec<std::uint16_t, 8>*>(row);
  Block::current()->meet_warp(place, false, &mine,
                              [](ThreadSlot* lanes, int) { load_matrices<Transposed>(lanes); });
  std::memcpy(registers, mine.result, sizeof registers);
}

struct MmaOperands {
  float* d;
  const std::uint32_t* a;
  const std::uint32_t* b;
};

template <class T>
float half_of(std::uint32_t pair, int upper) {
  T value;
  value.bits = static_cast<std::uint16_t>(upper ? pair >> 16 : pair);
  return to_float(value);
}

template <class T>
void multiply(ThreadSlot* lanes) {
  float a[16][16], b[16][8], d[16][8] = {};
  for (int l = 0; l < kWarpSize; ++l) {
    const int g = l / 4, t = l % 4;
    const auto& operands = *static_cast<MmaOperands*>(lanes[l].operand);
    for (int r = 0; r < 4; ++r) {
      for (int half = 0; half < 2; ++half) {
        a[g + 8 * (r % 2)][2 * t + 8 * (r / 2) + half] = half_of<T>(operands.a[r], half);
      }
    }
    for (int r = 0; r < 2; ++r) {
      for (int half = 0; half < 2; ++half) b[2 * t + 8 * r + half][g] = half_of<T>(operands.b[r], half);
    }
  }
  for (int i = 0; i < 16; ++i) {
    for (int k = 0; k < 16; ++k) {
      for (int j = 0; j < 8; ++j) d[i][j] += a[i][k] * b[k][j];
    }
  }
  for (int l = 0; l < kWarpSize; ++l) {
    const int g = l / 4, t = l % 4;
    float* mine = static_cast<MmaOperands*>(lanes[l].operand)->d;
    for (int e = 0; e < 4; ++e) mine[e] += d[g + 8 * (e / 2)][2 * t + e % 2];
  }
}

}  // namespace host

inline void ldmatrix_x4(std::uint32_t (&r)[4], const void* row,
                        host::Where where = host::Where::current()) {
  host::ldmatrix<false>(r, row, {"ldmatrix_x4", where});
}
inline void ldmatrix_x4_transposed(std::uint32_t (&r)[4], const void* row,
                                   host::Where where = host::Where::current()) {
  host::ldmatrix<true>(r, row, {"ldmatrix_x4_transposed", where});
}

template <class T>
void mma_m16n8k16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                  host::Where where = host::Where::current()) {
  host::MmaOperands mine{d, a, b};
  host::Block::current()->meet_warp(
      {"mma_m16n8k16", where}, false, &mine,
      [](host::ThreadSlot* lanes, int) { host::multiply<T>(lanes); });
}

}  // namespace llmc
