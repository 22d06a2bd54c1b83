// Faults in the order of a compute stream, the transfers of offloaded state, and the host, for
// faults.cu: two for each direction, and two of an update by the CPU.
#pragma once

#include "llmc/offload/store.h"
#include "llmc/offload/transfers.h"
#include "test/faults/stream_faults.h"

namespace llmc_faults {

template <class = void>
__global__ void use_kernel(float* slot) {
  slot[global_thread()] *= 2;  // FAULT: early_use busy_slot early_leave early_reuse
}

// A value arrives in a slot, is changed there, and leaves again; then the next one follows.
template <bool AwaitsArrival, bool FreesSlot, bool FollowsUse, bool AwaitsDeparture>
void move_values() {
  Buffer<float> slot(kCount);
  const std::int64_t bytes = kCount * static_cast<std::int64_t>(sizeof(float));
  HostStore store;
  store.allocate(2 * bytes);
  Transfers transfers;
  Stream compute;
  TransferPoint arrived, left;
  const auto use = [&] { launch(use_kernel<>, {kBlocks}, kThreads, 0, compute, slot.data()); };
  use();
  if (FreesSlot) transfers.follow(compute);
  transfers.submit([&](Stream& stream) { store.read(slot.data(), 0, bytes, stream); });
  transfers.mark(arrived);
  if (AwaitsArrival) transfers.await(arrived, compute);
  use();
  if (FollowsUse) transfers.follow(compute);
  transfers.submit([&](Stream& stream) { store.write(bytes, slot.data(), bytes, stream); });
  transfers.mark(left);
  if (AwaitsDeparture) transfers.await(left, compute);
  use();
  compute.synchronize();
  transfers.synchronize();
}

template <bool Fixed>
void early_use() {
  move_values<Fixed, true, true, true>();
}
template <bool Fixed>
void busy_slot() {
  move_values<true, Fixed, true, true>();
}
template <bool Fixed>
void early_leave() {
  move_values<true, true, Fixed, true>();
}
template <bool Fixed>
void early_reuse() {
  move_values<true, true, true, Fixed>();
}

// The host computes new values from what has left the device, in a slot from which they go back.
template <bool AwaitsDeparture, bool AwaitsSlot>
void update_values() {
  Buffer<float> device(kCount);
  const PinnedBuffer<float> slot(kCount);
  const std::int64_t bytes = kCount * static_cast<std::int64_t>(sizeof(float));
  HostStore store;
  store.allocate(bytes);
  Transfers transfers;
  Stream compute;
  TransferPoint left;
  Event ready;
  launch(use_kernel<>, {kBlocks}, kThreads, 0, compute, device.data());
  transfers.follow(compute);
  transfers.submit([&](Stream& stream) { store.write(0, device.data(), bytes, stream); });
  transfers.mark(left);
  transfers.await(left, compute);
  if (AwaitsDeparture) transfers.synchronize();
  const float* const values = reinterpret_cast<const float*>(store.memory());
  for (int i = 0; i < kCount; ++i) slot.data()[i] = 2 * values[i];  // FAULT: early_update
  copy_to_device(device.data(), static_cast<const float*>(slot.data()), kCount, compute);
  ready.record(compute);
  if (AwaitsSlot) ready.synchronize();
  slot.data()[0] = 0;  // FAULT: early_weights
  compute.synchronize();
  transfers.synchronize();
}

template <bool Fixed>
void early_update() {
  update_values<Fixed, true>();
}
template <bool Fixed>
void early_weights() {
  update_values<true, Fixed>();
}

}  // namespace llmc_faults
