// Faults that the host target shows only with LLMC_GUARD=1, for faults.cu: host code in device
// memory, copies of the wrong side, and results used before the host has waited for them.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <vector>

#include "llmc/comm/thread_ranks.h"
#include "llmc/device/device.h"
#include "llmc/device/graph.h"
#include "test/faults/stream_faults.h"

namespace llmc_faults {

std::string text_of(const std::source_location& location) {
  return std::string(location.file_name()) + ":" + std::to_string(location.line());
}

void expect_value(float value, float expected,
                  std::source_location location = std::source_location::current()) {
  require(value == expected, "wrong value " + std::to_string(value) + " at " + text_of(location));
}

// Runs a call that may throw, and adds its line to the error.
template <class Call>
void locate(const Call& call, std::source_location location = std::source_location::current()) {
  try {
    call();
  } catch (const Error& error) {
    fail(std::string(error.what()) + " at " + text_of(location));
  }
}

template <class = void>
__global__ void double_kernel(float* values) {
  values[global_thread()] *= 2;
}

void double_values(const Buffer<float>& device, Stream& stream) {
  launch(double_kernel<>, {kBlocks}, kThreads, 0, stream, device.data());
}

// A buffer of zeros, and pinned memory of ones.
struct Values {
  Buffer<float> device{kCount};
  PinnedBuffer<float> pinned{kCount};
  Stream stream;

  Values() {
    for (std::int64_t i = 0; i < kCount; ++i) pinned.data()[i] = 1;
    fill_zero(device.data(), kCount, stream);
    stream.synchronize();
  }
  void to_device() { copy_to_device<float>(device.data(), pinned.data(), kCount, stream); }
  void to_host() { copy_to_host<float>(pinned.data(), device.data(), kCount, stream); }
};

template <bool Fixed>
void host_read() {
  Values values;
  const volatile float* const data = Fixed ? values.pinned.data() : values.device.data();
  const float value = data[kCount - 1];  // FAULT: host_read
  expect_value(value, Fixed ? 1 : 0);
}

template <bool Fixed>
void host_write() {
  Values values;
  volatile float* const data = Fixed ? values.pinned.data() : values.device.data();
  data[0] = 2;  // FAULT: host_write
}

// A rank reads its device memory after an exchange with another one.
template <bool Fixed>
void host_read_of_rank() {
  run_thread_ranks(2, [](World& world) {
    Values values;
    values.to_device();
    world.all()->all_reduce(make_tensor(values.device.data(), kCount), values.stream);
    values.to_host();
    values.stream.synchronize();
    world.all()->barrier(values.stream);
    const volatile float* const data = Fixed ? values.pinned.data() : values.device.data();
    const float sum = data[1];  // FAULT: host_read_of_rank
    expect_value(sum, 2);
  });
}

template <bool Fixed>
void wrong_side() {
  Values values;
  float* const to = Fixed ? values.pinned.data() : values.device.data();
  const auto copy = [&] { copy_to_host<float>(to, values.device.data(), 1, values.stream); };
  locate(copy);  // FAULT: wrong_side
}

template <bool Fixed>
void long_copy() {
  Values values;
  const std::int64_t count = Fixed ? kCount / 2 : kCount;
  float* const half = values.device.data() + kCount / 2;
  const auto copy = [&] {
    copy_to_device<float>(half, values.pinned.data(), count, values.stream);
  };
  locate(copy);  // FAULT: long_copy
}

// Reads pinned memory before the copy to it.
template <bool Fixed>
void stale_result() {
  Values values;
  values.to_host();
  if (Fixed) values.stream.synchronize();
  expect_value(values.pinned.data()[0], 0);  // FAULT: stale_result
}

// Waits for an event before the copy instead of one after it.
template <bool Fixed>
void stale_event() {
  Values values;
  Event before, after;
  before.record(values.stream);
  values.to_host();
  after.record(values.stream);
  (Fixed ? after : before).synchronize();
  expect_value(values.pinned.data()[0], 0);  // FAULT: stale_event
}

// Changes the source of a copy before the copy. CUDA has read pageable memory by then.
template <bool Fixed>
void early_source() {
  Values values;
  std::vector<float> pageable(kCount, 1), result(kCount);
  float* const source = Fixed ? pageable.data() : values.pinned.data();
  copy_to_device<float>(values.device.data(), source, kCount, values.stream);
  source[0] = 3;
  double_values(values.device, values.stream);
  copy_to_host(result.data(), values.device.data(), kCount, values.stream);
  expect_value(result[0], 2);  // FAULT: early_source
}

// A stream uses what another one has not computed yet.
template <bool Fixed>
void stale_input() {
  Values values;
  Stream other;
  Event written;
  values.to_device();
  written.record(values.stream);
  if (Fixed) other.wait(written);
  double_values(values.device, other);
  other.synchronize();
  values.to_host();
  values.stream.synchronize();
  expect_value(values.pinned.data()[0], 2);  // FAULT: stale_input
}

template <bool Fixed>
void pageable_graph() {
  Values values;
  std::vector<float> pageable(kCount);
  float* const to = Fixed ? values.pinned.data() : pageable.data();
  Graph graph;
  const auto record = [&] {
    graph.capture(values.stream, [&] {
      double_values(values.device, values.stream);
      copy_to_host<float>(to, values.device.data(), kCount, values.stream);
    });
  };
  locate(record);  // FAULT: pageable_graph
  for (int i = 0; i < 2; ++i) graph.launch(values.stream);
  values.stream.synchronize();
  expect_value(to[0], 0);
}

}  // namespace llmc_faults
