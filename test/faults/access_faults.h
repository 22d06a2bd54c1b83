// Kernels whose accesses are out of bounds, misaligned, too early, or of what no one wrote, for
// faults.cu.
#pragma once

#include <cstdint>

#include "llmc/device/device.h"
#include "llmc/device/floats.h"
#include "test/faults/stream_faults.h"

namespace llmc_faults {

template <bool Fixed>
__global__ void out_of_bounds_global_kernel(float* out) {
  const std::int64_t last = Fixed ? kCount - 1 : kCount;
  if (global_thread() == kCount - 1) out[last] = 1.0f;  // FAULT: out_of_bounds_global
}

// Writes past the end of the first of two pieces; on a GPU the write lands in the second.
template <bool Fixed>
__global__ void out_of_bounds_shared_kernel(float* out) {
  SharedMemory shared;
  float* first = shared.take<float>(kThreads);
  float* second = shared.take<float>(kThreads);
  second[thread_index()] = 1.0f;
  float* end = first + kThreads - (Fixed ? 1 : 0);
  if (thread_index() == 5) *end = 2.0f;  // FAULT: out_of_bounds_shared
  out[global_thread()] = second[thread_index()];
}

template <bool Fixed>
__global__ void out_of_bounds_copy_kernel(float* out, const float* in) {
  SharedMemory shared;
  float* tile = shared.take<float>(4 * kThreads);
  const std::int64_t from = 4 * thread_index();
  const bool valid = !Fixed || from < kCount;
  copy_async_16(tile + 4 * thread_index(), in + from, valid);  // FAULT: out_of_bounds_copy
  copy_async_commit();
  copy_async_wait<0>();
  out[global_thread()] = tile[4 * thread_index()];
}

template <bool Fixed>
__global__ void missing_copy_wait_kernel(float* out, const float* in) {
  SharedMemory shared;
  float* tile = shared.take<float>(4 * kThreads);
  copy_async_16(tile + 4 * thread_index(), in);
  copy_async_commit();
  if (Fixed) copy_async_wait<0>();
  const float first = tile[4 * thread_index()];  // FAULT: missing_copy_wait
  copy_async_wait<0>();
  out[global_thread()] = first;  // COMPILED: missing_copy_wait
}

// Waits for all copy groups except the last, then reads the last.
template <bool Fixed>
__global__ void wait_for_too_few_kernel(float* out, const float* in) {
  SharedMemory shared;
  float* tile = shared.take<float>(4 * kThreads);
  float* own = tile + thread_index() / 2 * 8;
  for (int group = 0; group < 2; ++group) {
    if (thread_index() % 2 == 0) copy_async_16(own + 4 * group, in);
    copy_async_commit();
  }
  if (Fixed) copy_async_wait<0>();
  copy_async_wait<1>();
  if (thread_index() % 2 == 0) out[global_thread()] = own[0] + own[4];  // FAULT: wait_for_too_few
  copy_async_wait<0>();
}

template <bool Fixed>
__global__ void copy_never_waited_for_kernel(float* out, const float* in) {
  SharedMemory shared;
  float* tile = shared.take<float>(4 * kThreads);
  copy_async_16(tile + 4 * thread_index(), in);  // FAULT: copy_never_waited_for
  copy_async_commit();
  if (Fixed) copy_async_wait<0>();
  out[global_thread()] = 1.0f;
}

template <bool Fixed>
__global__ void uninitialised_shared_kernel(float* out) {
  SharedMemory shared;
  float* values = shared.take<float>(kThreads);
  if (Fixed || thread_index() != 7) values[thread_index()] = 1.0f;
  block_barrier();
  out[global_thread()] = 2.0f * values[thread_index()];  // FAULT: uninitialised_shared
}

template <class T>
__global__ void uninitialised_global_kernel(float* out, const T* in) {
  out[global_thread()] = 2.0f * to_float(in[global_thread()]);  // FAULT: uninitialised_global
}

template <bool Fixed>
__global__ void misaligned_load_kernel(float* out, const float* in) {
  if (thread_index() > 7) return;
  const float* const vector = in + 4 * thread_index() + (Fixed ? 0 : 1);
  out[global_thread()] = sum_of(load_floats<4>(vector));  // FAULT: misaligned_load
}

template <bool Fixed>
__global__ void misaligned_store_kernel(float* out) {
  if (thread_index() > 7) return;
  float* const vector = out + block_x() * kThreads + 4 * thread_index() + (Fixed ? 0 : 2);
  store_vec(vector, Vec<float, 4>{});  // FAULT: misaligned_store
}

}  // namespace llmc_faults
