// Warp-level matrix instructions on the host, element by element, with the fragment layouts of the
// PTX ISA.
#pragma once

#include <cstdint>
#include <cstring>

#include "llmc/device/dtype.h"
#include "llmc/device/host/block.h"
#include "llmc/device/vec.h"

namespace llmc {

namespace host {

struct MatrixRows {
  std::uint16_t rows[kWarpSize][8];  // the 16 bytes at each lane's address
};

// Each lane reads its own row, so sanitizers attribute that access to the lane. It then selects its
// elements from all rows.
template <bool Transposed>
void ldmatrix(std::uint32_t (&registers)[4], const void* row, const CallSite& site) {
  const auto own_row = load_vec<8>(static_cast<const std::uint16_t*>(row));
  TsanIgnoreScope bookkeeping;
  const int lane = Block::thread()->index % kWarpSize;
  auto& buffer = Block::current()->warp_buffer<MatrixRows>();
  std::memcpy(buffer.rows[lane], &own_row, sizeof own_row);
  Block::current()->meet_warp(site, false, [] {});
  const int g = lane / 4, t = lane % 4;
  for (int matrix = 0; matrix < 4; ++matrix) {
    const auto* m = buffer.rows + 8 * matrix;
    const std::uint32_t low = Transposed ? m[2 * t][g] : m[g][2 * t];
    const std::uint32_t high = Transposed ? m[2 * t + 1][g] : m[g][2 * t + 1];
    registers[matrix] = low | high << 16;
  }
}

// The register of lane 4g + t holds elements 2t and 2t + 1 of row g of an 8x8 matrix. The registers
// of all lanes in order are therefore that matrix, row by row.
struct MmaValues {
  std::uint32_t a[4][kWarpSize];  // A's quarters: upper left, lower left, upper right, lower right
  std::uint32_t b[2][kWarpSize];  // the halves of B, transposed
  float d[16][8];
};

template <class T>
void unpack(const std::uint32_t (&registers)[kWarpSize], float (&matrix)[8][8]) {
  T stored[8][8];
  static_assert(sizeof stored == sizeof registers);
  std::memcpy(stored, registers, sizeof stored);
  for (int i = 0; i < 8; ++i) {
    for (int j = 0; j < 8; ++j) matrix[i][j] = to_float(stored[i][j]);
  }
}

// Eight floats of a row as a SIMD vector: without it the compiler vectorises the wrong loop.
using Row [[gnu::vector_size(32), gnu::may_alias]] = float;

template <class T>
void multiply(MmaValues& buffer) {
  Row d[16] = {};
  for (int half = 0; half < 2; ++half) {
    float t[8][8];  // transposed
    unpack<T>(buffer.b[half], t);
    Row b[8];
    for (int k = 0; k < 8; ++k) {
      b[k] = Row{t[0][k], t[1][k], t[2][k], t[3][k], t[4][k], t[5][k], t[6][k], t[7][k]};
    }
    for (int part = 0; part < 2; ++part) {
      float a[8][8];
      unpack<T>(buffer.a[2 * half + part], a);
      for (int i = 0; i < 8; ++i) {
        for (int k = 0; k < 8; ++k) d[8 * part + i] += a[i][k] * b[k];
      }
    }
  }
  std::memcpy(buffer.d, d, sizeof buffer.d);
}

// As MmaValues, with four signed bytes in a register: a register of all lanes is 8 rows of 16
// terms.
struct MmaCodes {
  std::int8_t a[4][kWarpSize][4], b[2][kWarpSize][4];
  std::int32_t d[16][8];
};

inline void multiply_codes(MmaCodes& buffer) {
  const auto product = [](const std::int8_t(*x)[4], const std::int8_t(*y)[4]) {
    std::int32_t sum = 0;
    for (int k = 0; k < 16; ++k) sum += x[k / 4][k % 4] * y[k / 4][k % 4];
    return sum;
  };
  for (int i = 0; i < 16; ++i) {
    const int half = i / 8, row = i % 8 * 4;  // first lane
    for (int j = 0; j < 8; ++j)
      buffer.d[i][j] = product(buffer.a[half] + row, buffer.b[0] + 4 * j) +
                       product(buffer.a[half + 2] + row, buffer.b[1] + 4 * j);
  }
}

}  // namespace host

inline void ldmatrix_x4(std::uint32_t (&r)[4], const void* row,
                        host::SourceLocation location = host::SourceLocation::current()) {
  host::ldmatrix<false>(r, row, {"ldmatrix_x4", location});
}
inline void ldmatrix_x4_transposed(
    std::uint32_t (&r)[4], const void* row,
    host::SourceLocation location = host::SourceLocation::current()) {
  host::ldmatrix<true>(r, row, {"ldmatrix_x4_transposed", location});
}

template <class T>
void mma_m16n8k16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                  host::SourceLocation location = host::SourceLocation::current()) {
  const int lane = host::Block::thread()->index % host::kWarpSize;
  auto& buffer = host::Block::current()->warp_buffer<host::MmaValues>();
  host::TsanIgnoreScope bookkeeping;
  for (int i = 0; i < 4; ++i) buffer.a[i][lane] = a[i];
  for (int i = 0; i < 2; ++i) buffer.b[i][lane] = b[i];
  host::Block::current()->meet_warp({"mma_m16n8k16", location}, false,
                                    [&] { host::multiply<T>(buffer); });
  for (int half = 0; half < 2; ++half) {
    const float* row = buffer.d[lane / 4 + 8 * half] + lane % 4 * 2;
    d[2 * half] += row[0];
    d[2 * half + 1] += row[1];
  }
}

inline void mma_m16n8k32_s8(std::int32_t (&d)[4], const std::uint32_t (&a)[4],
                            const std::uint32_t (&b)[2],
                            host::SourceLocation location = host::SourceLocation::current()) {
  const int lane = host::Block::thread()->index % host::kWarpSize;
  auto& buffer = host::Block::current()->warp_buffer<host::MmaCodes>();
  host::TsanIgnoreScope bookkeeping;
  for (int i = 0; i < 4; ++i) std::memcpy(buffer.a[i][lane], &a[i], 4);
  for (int i = 0; i < 2; ++i) std::memcpy(buffer.b[i][lane], &b[i], 4);
  host::Block::current()->meet_warp({"mma_m16n8k32_s8", location}, false,
                                    [&] { host::multiply_codes(buffer); });
  for (int half = 0; half < 2; ++half) {
    const std::int32_t* row = buffer.d[lane / 4 + 8 * half] + lane % 4 * 2;
    d[2 * half] += row[0];
    d[2 * half + 1] += row[1];
  }
}

}  // namespace llmc
