// Faults of overlapped launches and of results that blocks share, for faults.cu.
#pragma once

#include <cstdint>

#include "llmc/device/device.h"
#include "test/faults/stream_faults.h"

namespace llmc_faults {

// ---- overlapped launches ---------------------------------------------------------------------

template <class = void>
__global__ void produce_kernel(float* out) {
  allow_next_launch();
  wait_for_previous_launch();
  out[global_thread()] = 1.0f;  // FAULT: early_read early_next early_older early_graph
}

// Only waits.
template <class = void>
__global__ void pass_kernel() {
  allow_next_launch();
  wait_for_previous_launch();
}

// Reads the results of earlier launches, and not those of its own thread. `Early`: before the wait.
template <bool Early>
__global__ void consume_kernel(float* out, const float* in) {
  allow_next_launch();
  if (!Early) wait_for_previous_launch();
  const std::int64_t i = kCount - 1 - global_thread();
  const float x = in[i];  // FAULT: early_read early_next early_older early_graph early_write
  if (Early) wait_for_previous_launch();
  out[global_thread()] = x;
}

template <bool Early>
__global__ void overwrite_kernel(float* out) {
  allow_next_launch();
  if (!Early) wait_for_previous_launch();
  out[global_thread()] = 2.0f;  // FAULT: early_write
  if (Early) wait_for_previous_launch();
}

// As consume_kernel, but each thread reads what the same thread of an earlier launch wrote.
template <bool Early>
__global__ void consume_own_kernel(float* out, const float* in) {
  allow_next_launch();
  if (!Early) wait_for_previous_launch();
  const float x = in[global_thread()];  // FAULT: early_own
  if (Early) wait_for_previous_launch();
  out[global_thread()] = x;
}

template <class = void>
__global__ void produce_own_kernel(float* out) {
  allow_next_launch();
  wait_for_previous_launch();
  out[global_thread()] = 1.0f;  // FAULT: early_own
}

// `Between` launches lie between the launch that writes and the one that reads.
template <int Between>
void submit_chain(void (*produce)(float*), void (*consume)(float*, const float*), float* out,
                  float* values, Stream& stream) {
  launch_overlapped(produce, {kBlocks}, kThreads, 0, stream, values);
  for (int i = 0; i < Between; ++i) {
    launch_overlapped(pass_kernel<>, {kBlocks}, kThreads, 0, stream);
  }
  launch_overlapped(consume, {kBlocks}, kThreads, 0, stream, out, values);
}

// Two rounds: the second one reuses the checker's contexts.
template <int Between>
void chain(void (*produce)(float*), void (*consume)(float*, const float*)) {
  Buffer<float> values(kCount), out(kCount);
  Stream stream;
  for (int round = 0; round < 2; ++round) {
    submit_chain<Between>(produce, consume, out.data(), values.data(), stream);
  }
}

template <bool Fixed>
void early_read() {
  chain<0>(produce_kernel<>, consume_kernel<!Fixed>);
}

// An ordinary launch between two overlapped ones completes before the second one only if that one
// waits.
template <bool Fixed>
void early_next() {
  Buffer<float> values(kCount), out(kCount);
  Stream stream;
  launch(produce_kernel<>, {kBlocks}, kThreads, 0, stream, values.data());
  launch_overlapped(consume_kernel<!Fixed>, {kBlocks}, kThreads, 0, stream, out.data(),
                    values.data());
}

template <bool Fixed>
void early_older() {
  chain<1>(produce_kernel<>, consume_kernel<!Fixed>);
}

template <bool Fixed>
void early_own() {
  chain<1>(produce_own_kernel<>, consume_own_kernel<!Fixed>);
}

template <bool Fixed>
void early_write() {
  Buffer<float> values(kCount), out(kCount);
  Stream stream;
  fill_zero(values.data(), kCount, stream);
  launch_overlapped(consume_kernel<false>, {kBlocks}, kThreads, 0, stream, out.data(),
                    values.data());
  launch_overlapped(overwrite_kernel<!Fixed>, {kBlocks}, kThreads, 0, stream, values.data());
}

template <bool Fixed>
void early_graph() {
  Buffer<float> values(kCount), out(kCount);
  Stream stream;
  Graph graph;
  graph.capture(stream, [&] {
    submit_chain<1>(produce_kernel<>, consume_kernel<!Fixed>, out.data(), values.data(), stream);
  });
  for (int round = 0; round < 2; ++round) graph.launch(stream);
}

// An early read is correct here: an ordinary launch, a copy or the host's wait separates it from
// the write. The fault is that the host reads results without a wait.
template <bool Fixed>
void missing_overlap_synchronize() {
  Buffer<float> values(kCount), out(kCount), copy(kCount);
  Stream stream;
  launch_overlapped(produce_kernel<>, {kBlocks}, kThreads, 0, stream, values.data());
  launch(pass_kernel<>, {1}, kThreads, 0, stream);
  launch_overlapped(consume_kernel<true>, {kBlocks}, kThreads, 0, stream, out.data(),
                    values.data());
  copy_on_device(copy.data(), out.data(), kCount, stream);
  launch_overlapped(consume_kernel<true>, {kBlocks}, kThreads, 0, stream, out.data(), copy.data());
  if (Fixed) stream.synchronize();
  if (out.data()[0] != 1.0f) std::puts("wrong");  // FAULT: missing_overlap_synchronize
  stream.synchronize();
  launch_overlapped(consume_kernel<true>, {kBlocks}, kThreads, 0, stream, copy.data(), out.data());
  stream.synchronize();
}

// ---- results of blocks -----------------------------------------------------------------------

enum class Arrival { counted, plain_counter, not_published, not_counted, reset_first };

// Each block writes its part; the last one adds up all parts.
template <Arrival How>
__global__ void merge_parts_kernel(float* out, float* parts, std::int32_t* counter) {
  allow_next_launch();
  wait_for_previous_launch();
  parts[global_thread()] = 1.0f;  // FAULT: merge_plain merge_early merge_uncounted
  if (How == Arrival::reset_first && global_thread() == 0) {
    *counter = 0;  // FAULT: merge_reset
  }
  if (How != Arrival::not_published) block_barrier();
  bool is_last = false;
  if (thread_index() == 0) {
    if (How == Arrival::plain_counter) {
      is_last = ++*counter == kBlocks;  // COMPILED: merge_plain
    } else if (How == Arrival::not_counted) {
      is_last = block_x() == kBlocks - 1;
    } else {
      is_last = count_arrival(counter) == kBlocks - 1;  // COMPILED: merge_reset
    }
  }
  if (!block_any(is_last)) return;
  float sum = 0;
  for (std::int64_t b = 0; b < kBlocks; ++b) {
    sum += parts[b * kThreads + thread_index()];  // FAULT: merge_plain merge_early merge_uncounted
  }
  out[thread_index()] = sum;
  if (thread_index() == 0) *counter = 0;
}

template <Arrival How>
void merge_parts() {
  Buffer<float> out(kThreads), parts(kCount);
  Buffer<std::int32_t> counter(1);
  Stream stream;
  fill_zero(counter.data(), 1, stream);
  for (int round = 0; round < 2; ++round) {
    launch_overlapped(merge_parts_kernel<How>, {kBlocks}, kThreads, 0, stream, out.data(),
                      parts.data(), counter.data());
  }
  stream.synchronize();
}

}  // namespace llmc_faults
