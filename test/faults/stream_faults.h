// Faults in the order of streams, for faults.cu.
#pragma once

#include <cstdint>
#include <cstdio>
#include <vector>

#include "llmc/comm/thread_ranks.h"
#include "llmc/device/device.h"

namespace llmc_faults {

using namespace llmc;

constexpr int kThreads = 64;
constexpr std::int64_t kBlocks = 3;
constexpr std::int64_t kCount = kThreads * kBlocks;

template <class = void>
__global__ void write_kernel(float* out) {
  out[global_thread()] = 1.0f;  // FAULT: missing_event missing_event_back
}

template <class = void>
__global__ void read_kernel(float* out, const float* in) {
  out[global_thread()] = in[global_thread()];  // FAULT: missing_event missing_event_back
}

template <bool Fixed>
void missing_event() {
  Buffer<float> shared(kCount), out(kCount);
  Stream producer, consumer;
  Event written;
  launch(write_kernel<>, {kBlocks}, kThreads, 0, producer, shared.data());
  written.record(producer);
  if (Fixed) consumer.wait(written);
  launch(read_kernel<>, {kBlocks}, kThreads, 0, consumer, out.data(), shared.data());
}

// The opposite order: overwrites a buffer that is still being read.
template <bool Fixed>
void missing_event_back() {
  Buffer<float> shared(kCount), out(kCount);
  Stream producer, consumer;
  Event written, read;
  launch(write_kernel<>, {kBlocks}, kThreads, 0, producer, shared.data());
  written.record(producer);
  consumer.wait(written);
  launch(read_kernel<>, {kBlocks}, kThreads, 0, consumer, out.data(), shared.data());
  read.record(consumer);
  if (Fixed) producer.wait(read);
  launch(write_kernel<>, {kBlocks}, kThreads, 0, producer, shared.data());
}

template <bool Fixed>
void missing_synchronize() {
  Buffer<float> device(kCount);
  std::vector<float> host(kCount);
  Stream stream;
  launch(write_kernel<>, {kBlocks}, kThreads, 0, stream, device.data());
  copy_to_host(host.data(), device.data(), kCount, stream);
  if (Fixed) stream.synchronize();
  if (host[1] != 1.0f) std::puts("wrong");  // FAULT: missing_synchronize
  stream.synchronize();
}

// Two ranks add up their gradients on a communication stream.

template <class = void>
__global__ void gradient_kernel(float* out) {
  out[global_thread()] = 1.0f;  // FAULT: missing_event_before_collective
}

template <class = void>
__global__ void update_kernel(float* out, const float* in) {
  out[global_thread()] = in[global_thread()];  // FAULT: missing_event_after_collective
}

template <bool WaitBefore, bool WaitAfter>
void reduce_gradients() {
  run_thread_ranks(2, [](World& world) {
    Buffer<float> gradients(kCount), out(kCount);
    Stream compute, communication;
    Event computed, reduced;
    const auto group = world.all();
    launch(gradient_kernel<>, {kBlocks}, kThreads, 0, compute, gradients.data());
    computed.record(compute);
    if (WaitBefore) communication.wait(computed);
    group->all_reduce(make_tensor(gradients.data(), kCount), communication);
    reduced.record(communication);
    if (WaitAfter) compute.wait(reduced);
    launch(update_kernel<>, {kBlocks}, kThreads, 0, compute, out.data(), gradients.data());
    communication.synchronize();
    compute.synchronize();
  });
}

template <bool Fixed>
void missing_event_before_collective() {
  reduce_gradients<Fixed, true>();
}

template <bool Fixed>
void missing_event_after_collective() {
  reduce_gradients<true, Fixed>();
}

}  // namespace llmc_faults
