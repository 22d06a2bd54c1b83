// Faults that only kernels as nvcc compiled them show (test/ptx), and a kernel of which
// test_ptx_faults.py changes the compiled instructions.
#pragma once

#include <cstdint>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/device/device.h"
#include "llmc/nn/memory_plan.h"
#include "test/faults/stream_faults.h"

namespace llmc_faults {

// ---- tensors of a plan -----------------------------------------------------------------------

template <bool Fixed>
__global__ void next_tensor_kernel(float* out, const float* in) {
  const std::int64_t i = global_thread() + (Fixed ? 0 : 1);
  out[global_thread()] = in[i];  // FAULT: next_tensor
}

// Reads one element past the end of a tensor, in the memory of the same plan.
template <bool Fixed>
void next_tensor() {
  MemoryPlan plan;
  Tensor<float, 1> first, second, out;
  plan.reserve("tensors", first, kCount);
  plan.reserve("tensors", second, kCount);
  plan.reserve("tensors", out, kCount);
  plan.allocate();
  Stream stream;
  fill_zero(first.data, kCount, stream);
  fill_zero(second.data, kCount, stream);
  launch(next_tensor_kernel<Fixed>, {kBlocks}, kThreads, 0, stream, out.data, first.data);
  stream.synchronize();
}

// ---- undefined values ------------------------------------------------------------------------

// Reads an index that no one wrote.
template <bool Fixed>
__global__ void undefined_index_kernel(float* out, const std::int32_t* indices) {
  const std::int32_t i = indices[Fixed ? 0 : thread_index()] & 7;
  out[global_thread()] = out[i + 8];  // FAULT: undefined_index
}

template <bool Fixed>
void undefined_index() {
  Buffer<float> out(kCount);
  Buffer<std::int32_t> indices(kThreads);
  Stream stream;
  fill_zero(out.data(), kCount, stream);
  fill_zero(indices.data(), 1, stream);
  launch(undefined_index_kernel<Fixed>, {1}, kThreads, 0, stream, out.data(), indices.data());
  stream.synchronize();
}

// Decides by a value of a local array that not every thread wrote.
template <bool Fixed>
__global__ void undefined_branch_kernel(float* out) {
  float last[4];
  for (int i = Fixed ? 0 : 1; i < 4; ++i) last[i] = static_cast<float>(i);
  float* const value = &last[(thread_index() + block_x()) % 4];
  if (*value > 1.0f) out[global_thread()] = 1.0f;  // FAULT: undefined_branch
}

template <bool Fixed>
void undefined_branch() {
  Buffer<float> out(kCount);
  Stream stream;
  fill_zero(out.data(), kCount, stream);
  launch(undefined_branch_kernel<Fixed>, {1}, kThreads, 0, stream, out.data());
  stream.synchronize();
}

// ---- launches that overlap -------------------------------------------------------------------

// Counts an arrival before the wait, when the launch before may still count its own.
template <bool Fixed>
__global__ void early_arrival_kernel(std::int32_t* counter) {
  allow_next_launch();
  if (Fixed) wait_for_previous_launch();
  if (thread_index() == 0) count_arrival(counter);  // FAULT: early_arrival
  if (!Fixed) wait_for_previous_launch();
}

template <bool Fixed>
void early_arrival() {
  Buffer<std::int32_t> counter(1);
  Stream stream;
  fill_zero(counter.data(), 1, stream);
  for (int round = 0; round < 2; ++round)
    launch_overlapped(early_arrival_kernel<Fixed>, {kBlocks}, kThreads, 0, stream, counter.data());
  stream.synchronize();
}

// ---- a product -------------------------------------------------------------------------------

inline constexpr int kProductM = 16, kProductN = 8, kProductK = 32;

// out (16, 8) = a (16, 32) b (32, 8), by one warp; out[128] is the sum of all results.
template <class = void>
__global__ void product_kernel(float* out, const bf16* a, const bf16* b) {
  SharedMemory shared;
  bf16* const left = shared.take<bf16>(kProductM * kProductK);
  bf16* const right = shared.take<bf16>(kProductK * kProductN);
  wait_for_previous_launch();
  for (int i = lane(); i < kProductM * kProductK / 8; i += 32)
    copy_async_16(left + 8 * i, a + 8 * i);
  copy_async_commit();
  copy_async_16(right + 8 * lane(), b + 8 * lane());
  copy_async_commit();
  copy_async_wait<0>();
  warp_barrier();
  float sums[4] = {};
  std::uint32_t columns[4];
  ldmatrix_x4_transposed(columns, right + 8 * lane());
  for (int step = 0; step < 2; ++step) {
    std::uint32_t rows[4];
    ldmatrix_x4(rows, left + lane() % 16 * kProductK + 16 * step + lane() / 16 * 8);
    const std::uint32_t pair[2] = {columns[2 * step], columns[2 * step + 1]};
    mma_m16n8k16<bf16>(sums, rows, pair);
  }
  for (int e = 0; e < 4; ++e) {
    const int row = lane() / 4 + (e < 2 ? 0 : 8), column = lane() % 4 * 2 + e % 2;
    out[row * kProductN + column] = sums[e];
  }
  const float all = warp_sum(sums[0] + sums[1] + sums[2] + sums[3]);
  if (lane() == 0) out[kProductM * kProductN] = all;
}

// Throws an Error if a result is wrong. All of them are small integers.
inline void check_product(const std::vector<float>& out) {
  int all = 0;
  for (int m = 0; m < kProductM; ++m) {
    for (int n = 0; n < kProductN; ++n) {
      int sum = 0;
      for (int k = 0; k < kProductK; ++k)
        sum += (m * kProductK + k) % 7 * ((k * kProductN + n) % 5 - 1);
      all += sum;
      require(out[static_cast<std::size_t>(m * kProductN + n)] == static_cast<float>(sum),
              "a wrong result");
    }
  }
  require(out.back() == static_cast<float>(all), "a wrong sum");
}

inline void product() {
  constexpr std::int64_t kA = kProductM * kProductK, kB = kProductK * kProductN;
  constexpr std::int64_t kOut = kProductM * kProductN + 1;
  std::vector<bf16> a_values(kA), b_values(kB);
  for (std::size_t i = 0; i < kA; ++i) a_values[i] = from_float<bf16>(static_cast<float>(i % 7));
  for (std::size_t i = 0; i < kB; ++i)
    b_values[i] = from_float<bf16>(static_cast<float>(i % 5) - 1.0f);
  Buffer<bf16> a(kA), b(kB);
  Buffer<float> out(kOut);
  Stream stream;
  copy_to_device(a.data(), a_values.data(), kA, stream);
  copy_to_device(b.data(), b_values.data(), kB, stream);
  const std::size_t bytes = SharedLayout().add<bf16>(kA).add<bf16>(kB).bytes();
  launch_overlapped(product_kernel<>, {1}, 32, bytes, stream, out.data(), a.data(), b.data());
  std::vector<float> results(kOut);
  copy_to_host(results.data(), out.data(), kOut, stream);
  stream.synchronize();
  check_product(results);
}

}  // namespace llmc_faults
