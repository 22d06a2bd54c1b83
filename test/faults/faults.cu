// Kernels and stream programs with one fault each, for test_faults.py:
//
//   faults NAME           runs the fault; the builds that detect it report it at the lines marked
//                         with FAULT and its name; kernels as nvcc compiled them also at those
//                         with COMPILED
//   faults NAME --fixed   runs the same code without the fault; no build may report anything
//   faults --list         prints the names
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <numeric>
#include <vector>

#include "llmc/device/device.h"
#include "llmc/device/floats.h"
#include "test/faults/access_faults.h"
#include "test/faults/compiled_faults.h"
#include "test/faults/guard_faults.h"
#include "test/faults/overlap_faults.h"
#include "test/faults/stream_faults.h"
#include "test/faults/transfer_faults.h"

namespace llmc_faults {

using namespace llmc;

// ---- races ---------------------------------------------------------------------------------

template <bool Fixed>
__global__ void race_in_block_kernel(float* out) {
  SharedMemory shared;
  float* values = shared.take<float>(kThreads);
  values[thread_index()] = 1.0f;  // FAULT: race_in_block
  if (Fixed) block_barrier();
  out[global_thread()] = values[(thread_index() + 1) % kThreads];  // FAULT: race_in_block
}

template <bool Fixed>
__global__ void race_in_warp_kernel(float* out) {
  SharedMemory shared;
  float* values = shared.take<float>(kThreads);
  values[thread_index()] = 1.0f;  // FAULT: race_in_warp
  // The lanes wait for each other at a collective, but it does not order memory.
  const float sum = warp_sum(1.0f);
  if (Fixed) warp_barrier();
  out[global_thread()] = sum + values[thread_index() ^ 1];  // FAULT: race_in_warp
}

template <bool Fixed>
__global__ void race_between_blocks_kernel(float* out) {
  const float x = static_cast<float>(block_x());
  const float sum = block_sum(x, SharedMemory().take<float>(kBlockScratch));
  if (thread_index() != 0) return;
  out[Fixed ? block_x() : 0] = sum;  // FAULT: race_between_blocks
}

// Each block reads the elements that the next block writes.
template <bool Fixed>
__global__ void race_with_next_block_kernel(float* out) {
  block_barrier();
  const std::int64_t i = global_thread();
  const std::int64_t source = Fixed ? i : (i + kThreads) % kCount;
  const float old = out[source];  // FAULT: race_with_next_block
  block_barrier();
  out[i] = old + 1.0f;  // FAULT: race_with_next_block
}

// Each block reads the elements that the previous block wrote. A block barrier orders only the
// threads of its own block.
template <bool Fixed>
__global__ void race_with_block_before_kernel(float* out) {
  const std::int64_t i = global_thread();
  out[i] = 1.0f;  // FAULT: race_with_block_before
  const float all = block_sum(1.0f, SharedMemory().take<float>(kBlockScratch));
  block_barrier();
  const std::int64_t source = Fixed || block_x() == 0 ? i : i - kThreads;
  if (out[source] != 1.0f) out[i] = all;  // FAULT: race_with_block_before
}

// A sum in shared memory. Missing = 0: no barrier before the loop; 1: no barrier inside the loop;
// -1: no fault.
template <int Missing>
__global__ void reduction_kernel(float* out, const float* in) {
  SharedMemory shared;
  float* values = shared.take<float>(kThreads);
  values[thread_index()] = in[global_thread()];  // FAULT: reduction_0
  if (Missing != 0) block_barrier();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (thread_index() < half) {
      values[thread_index()] += values[thread_index() + half];  // FAULT: reduction_0 reduction_1
    }
    if (Missing != 1) block_barrier();
  }
  if (thread_index() == 0) out[block_x()] = values[0];
}

// Tiles pass through two buffers that asynchronous copies fill. Missing = 0: no wait for the
// copies; 1: no barrier between the wait and the use by other threads; 2: no barrier between the
// use and the next copy; -1: no fault.
template <int Missing>
__global__ void pipeline_kernel(float* out, const float* in, std::int64_t tiles) {
  constexpr int kTile = 4 * kThreads;
  SharedMemory shared;
  float* buffers[2] = {shared.take<float>(kTile), shared.take<float>(kTile)};
  const auto fetch = [&](std::int64_t tile) {
    if (tile < tiles) {
      const float* source = in + tile * kTile + 4 * thread_index();
      copy_async_16(buffers[tile % 2] + 4 * thread_index(), source);  // FAULT: pipeline_2
    }
    copy_async_commit();
  };
  fetch(0);
  float sum = 0;
  for (std::int64_t tile = 0; tile < tiles; ++tile) {
    fetch(tile + 1);
    if (Missing != 0) copy_async_wait<1>();
    if (Missing != 1) block_barrier();
    for (int i = thread_index(); i < kTile; i += kThreads) {
      sum += buffers[tile % 2][i];  // FAULT: pipeline_0 pipeline_1 pipeline_2
    }
    if (Missing != 2) block_barrier();
  }
  copy_async_wait<0>();
  out[thread_index()] = sum;  // COMPILED: pipeline_0
}

// ---- barriers ------------------------------------------------------------------------------

template <bool Fixed>
__global__ void divergent_barrier_kernel(float* out) {
  if (Fixed || lane() < 16) {
    block_barrier();  // FAULT: divergent_barrier
  } else {
    block_barrier();  // FAULT: divergent_barrier
  }
  out[global_thread()] = 1.0f;
}

template <bool Fixed>
__global__ void divergent_collective_kernel(float* out) {
  float sum = 1.0f;
  if (Fixed || lane() < 16) sum = warp_sum(sum);  // FAULT: divergent_collective
  block_barrier();                                // FAULT: divergent_collective
  out[global_thread()] = sum;
}

template <bool Fixed>
__global__ void lane_returned_kernel(float* out) {
  if (!Fixed && thread_index() == 3) return;
  out[global_thread()] = warp_sum(1.0f);  // FAULT: lane_returned
}

// ---- running the faults --------------------------------------------------------------------

// Copies results to the host.
void read_back(const Buffer<float>& out, Stream& stream) {
  std::vector<float> values(static_cast<std::size_t>(out.size()));
  copy_to_host(values.data(), out.data(), out.size(), stream);
  stream.synchronize();
}

// Launches a kernel with `pieces` pieces of shared memory, each of 4 floats per thread. The kernel
// writes out[kCount] and may read an input of the same size.
template <class... Inputs>
void run(void (*kernel)(float*, Inputs...), int pieces) {
  Buffer<float> out(kCount), in(kCount);
  std::vector<float> values(kCount);
  std::iota(values.begin(), values.end(), 1.0f);
  Stream stream;
  copy_to_device(in.data(), values.data(), kCount, stream);
  fill_zero(out.data(), kCount, stream);
  SharedLayout layout;
  for (int i = 0; i < pieces; ++i) layout = layout.add<float>(4 * kThreads);
  if constexpr (sizeof...(Inputs) == 0) {
    launch(kernel, {kBlocks}, kThreads, layout.bytes(), stream, out.data());
  } else {
    launch(kernel, {kBlocks}, kThreads, layout.bytes(), stream, out.data(), in.data());
  }
  read_back(out, stream);
}

template <bool Fixed>
void uninitialised_global() {
  Buffer<float> out(kCount);
  Buffer<bf16> in(kCount);
  Stream stream;
  if (Fixed) fill_zero(in.data(), kCount, stream);
  launch(uninitialised_global_kernel<bf16>, {kBlocks}, kThreads, 0, stream, out.data(), in.data());
  read_back(out, stream);
}

template <int Missing>
void pipeline() {
  constexpr std::int64_t kTiles = 5, kSize = kTiles * 4 * kThreads;
  Buffer<float> out(kThreads), in(kSize);
  Stream stream;
  fill_zero(in.data(), kSize, stream);
  const std::size_t bytes =
      SharedLayout().add<float>(4 * kThreads).add<float>(4 * kThreads).bytes();
  launch(pipeline_kernel<Missing>, {1}, kThreads, bytes, stream, out.data(), in.data(), kTiles);
  read_back(out, stream);
}

template <auto Kernel, int Pieces>
void run() {
  run(Kernel, Pieces);
}

struct Fault {
  const char* name;
  void (*faulty)();
  void (*fixed)();
};

const Fault kFaults[] = {
    {"race_in_block", run<race_in_block_kernel<false>, 1>, run<race_in_block_kernel<true>, 1>},
    {"race_in_warp", run<race_in_warp_kernel<false>, 1>, run<race_in_warp_kernel<true>, 1>},
    {"race_between_blocks", run<race_between_blocks_kernel<false>, 1>,
     run<race_between_blocks_kernel<true>, 1>},
    {"race_with_next_block", run<race_with_next_block_kernel<false>, 0>,
     run<race_with_next_block_kernel<true>, 0>},
    {"race_with_block_before", run<race_with_block_before_kernel<false>, 1>,
     run<race_with_block_before_kernel<true>, 1>},
    {"reduction_0", run<reduction_kernel<0>, 1>, run<reduction_kernel<-1>, 1>},
    {"reduction_1", run<reduction_kernel<1>, 1>, run<reduction_kernel<-1>, 1>},
    {"pipeline_0", pipeline<0>, pipeline<-1>},
    {"pipeline_1", pipeline<1>, pipeline<-1>},
    {"pipeline_2", pipeline<2>, pipeline<-1>},
    {"out_of_bounds_global", run<out_of_bounds_global_kernel<false>, 0>,
     run<out_of_bounds_global_kernel<true>, 0>},
    {"out_of_bounds_shared", run<out_of_bounds_shared_kernel<false>, 2>,
     run<out_of_bounds_shared_kernel<true>, 2>},
    {"out_of_bounds_copy", run<out_of_bounds_copy_kernel<false>, 1>,
     run<out_of_bounds_copy_kernel<true>, 1>},
    {"missing_copy_wait", run<missing_copy_wait_kernel<false>, 1>,
     run<missing_copy_wait_kernel<true>, 1>},
    {"wait_for_too_few", run<wait_for_too_few_kernel<false>, 1>,
     run<wait_for_too_few_kernel<true>, 1>},
    {"copy_never_waited_for", run<copy_never_waited_for_kernel<false>, 1>,
     run<copy_never_waited_for_kernel<true>, 1>},
    {"uninitialised_shared", run<uninitialised_shared_kernel<false>, 1>,
     run<uninitialised_shared_kernel<true>, 1>},
    {"uninitialised_global", uninitialised_global<false>, uninitialised_global<true>},
    {"misaligned_load", run<misaligned_load_kernel<false>, 0>,
     run<misaligned_load_kernel<true>, 0>},
    {"misaligned_store", run<misaligned_store_kernel<false>, 0>,
     run<misaligned_store_kernel<true>, 0>},
    {"divergent_barrier", run<divergent_barrier_kernel<false>, 0>,
     run<divergent_barrier_kernel<true>, 0>},
    {"divergent_collective", run<divergent_collective_kernel<false>, 0>,
     run<divergent_collective_kernel<true>, 0>},
    {"lane_returned", run<lane_returned_kernel<false>, 0>, run<lane_returned_kernel<true>, 0>},
    {"missing_event", missing_event<false>, missing_event<true>},
    {"missing_event_back", missing_event_back<false>, missing_event_back<true>},
    {"early_use", early_use<false>, early_use<true>},
    {"busy_slot", busy_slot<false>, busy_slot<true>},
    {"early_leave", early_leave<false>, early_leave<true>},
    {"early_reuse", early_reuse<false>, early_reuse<true>},
    {"early_update", early_update<false>, early_update<true>},
    {"early_weights", early_weights<false>, early_weights<true>},
    {"missing_synchronize", missing_synchronize<false>, missing_synchronize<true>},
    {"missing_event_before_collective", missing_event_before_collective<false>,
     missing_event_before_collective<true>},
    {"missing_event_after_collective", missing_event_after_collective<false>,
     missing_event_after_collective<true>},
    {"early_read", early_read<false>, early_read<true>},
    {"early_next", early_next<false>, early_next<true>},
    {"early_older", early_older<false>, early_older<true>},
    {"early_own", early_own<false>, early_own<true>},
    {"early_write", early_write<false>, early_write<true>},
    {"early_graph", early_graph<false>, early_graph<true>},
    {"missing_overlap_synchronize", missing_overlap_synchronize<false>,
     missing_overlap_synchronize<true>},
    {"host_read", host_read<false>, host_read<true>},
    {"host_write", host_write<false>, host_write<true>},
    {"wrong_side", wrong_side<false>, wrong_side<true>},
    {"long_copy", long_copy<false>, long_copy<true>},
    {"stale_result", stale_result<false>, stale_result<true>},
    {"stale_event", stale_event<false>, stale_event<true>},
    {"early_source", early_source<false>, early_source<true>},
    {"stale_input", stale_input<false>, stale_input<true>},
    {"pageable_graph", pageable_graph<false>, pageable_graph<true>},
    {"host_read_of_rank", host_read_of_rank<false>, host_read_of_rank<true>},
    {"merge_plain", merge_parts<Arrival::plain_counter>, merge_parts<Arrival::counted>},
    {"merge_early", merge_parts<Arrival::not_published>, merge_parts<Arrival::counted>},
    {"merge_reset", merge_parts<Arrival::reset_first>, merge_parts<Arrival::counted>},
    {"early_arrival", early_arrival<false>, early_arrival<true>},
    {"next_tensor", next_tensor<false>, next_tensor<true>},
    {"undefined_index", undefined_index<false>, undefined_index<true>},
    {"undefined_branch", undefined_branch<false>, undefined_branch<true>},
    {"product", product, product},
    {"merge_uncounted", merge_parts<Arrival::not_counted>, merge_parts<Arrival::counted>},
};

}  // namespace llmc_faults

int main(int count, char** arguments) {
  const char* name = count > 1 ? arguments[1] : "";
  const bool fixed = count > 2 && std::strcmp(arguments[2], "--fixed") == 0;
  const bool list = std::strcmp(name, "--list") == 0;
  for (const llmc_faults::Fault& fault : llmc_faults::kFaults) {
    if (list) std::puts(fault.name);
    if (std::strcmp(fault.name, name) != 0) continue;
    try {
      fixed ? fault.fixed() : fault.faulty();
    } catch (const llmc::Error& error) {
      std::cerr << error.what() << std::endl;
      return 1;
    }
    return 0;
  }
  if (list) return 0;
  std::cerr << "usage: faults NAME [--fixed] | faults --list" << std::endl;
  return 2;
}
