// Overlapped launches, and counters of arrivals. test/faults has the races that the race checker
// must find.
#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "llmc/device/device.h"
#include "test/support.h"

using namespace llmc;
using llmc_test::complaint;
using llmc_test::contains;
using llmc_test::download;
using llmc_test::tiny_shapes;
using llmc_test::upload;

// Has a name because DEVICE=ptx finds kernels by theirs.
namespace device_overlap_kernels {

constexpr int kThreads = cooperating_threads(64);
constexpr std::int64_t kBlocks = 5;
constexpr std::int64_t kCount = 64 * kBlocks;

// out[i] = in[(i + 1) % n] + weight[i]. Weights do not change, so they are read before the wait.
template <class = void>
__global__ void shift_kernel(float* out, const float* in, const float* weight, std::int64_t n) {
  allow_next_launch();
  const std::int64_t i = global_thread();
  const float w = i < n ? weight[i] : 0.0f;
  wait_for_previous_launch();
  if (i < n) out[i] = in[(i + 1) % n] + w;
}

template <class = void>
__global__ void careless_kernel(float* out, std::int64_t first_block_without_wait) {
  allow_next_launch();
  if (block_x() < first_block_without_wait) wait_for_previous_launch();
  out[global_thread()] = 1.0f;
}

// Thread 0 waits for the whole block.
template <class = void>
__global__ void one_waits_kernel(float* out, const float* in) {
  if (thread_index() == 0) wait_for_previous_launch();
  block_barrier();
  out[global_thread()] = in[global_thread()] + 1.0f;
}

template <class = void>
__global__ void early_count_kernel(std::int32_t* counter) {
  if (thread_index() == 0) count_arrival(counter);
  wait_for_previous_launch();
}

// Each block adds up its part of `in`. The last block merges the parts in the order of blocks:
// merged[0] = sum of (block + 1) * part, and merged[1] counts the last blocks. The last block
// resets the counter.
template <class = void>
__global__ void merge_kernel(float* merged, float* parts, std::int32_t* counter, const float* in,
                             std::int64_t part_size) {
  allow_next_launch();
  wait_for_previous_launch();
  float sum = 0;
  const float* part = in + block_x() * part_size;
  for (std::int64_t i = thread_index(); i < part_size; i += block_size()) sum += part[i];
  sum = block_sum(sum, SharedMemory().take<float>(kBlockScratch));
  if (thread_index() == 0) parts[block_x()] = sum;
  block_barrier();
  const bool is_last = thread_index() == 0 && count_arrival(counter) == grid_x() - 1;
  if (!block_any(is_last)) return;
  if (thread_index() != block_size() - 1) return;  // another thread than the one that counted
  float total = 0;
  for (std::int64_t b = 0; b < grid_x(); ++b) total += static_cast<float>(b + 1) * parts[b];
  merged[0] = total;
  merged[1] += 1.0f;
  *counter = 0;
}

std::vector<float> ascending(std::int64_t n) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < n; ++i) values.push_back(static_cast<float>(i));
  return values;
}

}  // namespace device_overlap_kernels

using namespace device_overlap_kernels;

TEST_SUITE("device_overlap") {
  TEST_CASE("overlapped launches in a row see each other's results") {
    Stream stream;
    const auto start = ascending(kCount);
    const auto weight = upload(std::vector<float>(kCount, 0.5f), stream);
    Buffer<float> a = upload(start, stream), b(kCount);
    const int rounds = tiny_shapes() ? 3 : 20;
    const auto shift = [&](auto&& start_kernel, Buffer<float>& out, const Buffer<float>& in) {
      start_kernel(shift_kernel<>, Grid{ceil_div(kCount, 64)}, 64, 0, stream, out.data(), in.data(),
                   weight.data(), kCount);
    };
    const auto overlapped = [](auto&&... arguments) { launch_overlapped(arguments...); };
    const auto ordinary = [](auto&&... arguments) { launch(arguments...); };
    for (int round = 0; round < rounds; ++round) {
      shift(overlapped, b, a);
      shift(overlapped, a, b);
      if (round % 3 == 2) {
        shift(ordinary, b, a);
        copy_on_device(a.data(), b.data(), kCount, stream);
      }
    }
    const int shifts = 2 * rounds + rounds / 3;
    const auto actual = download(a, stream);
    for (std::int64_t i = 0; i < kCount; ++i) {
      const float expected = start[static_cast<std::size_t>((i + shifts) % kCount)] +
                             0.5f * static_cast<float>(shifts);
      CHECK(actual[static_cast<std::size_t>(i)] == expected);
    }
  }

  TEST_CASE("one thread can wait for its block") {
    Stream stream;
    Buffer<float> a = upload(ascending(kCount), stream), b(kCount);
    for (int round = 0; round < 2; ++round) {
      launch_overlapped(one_waits_kernel<>, {kCount / kThreads}, kThreads, 0, stream, b.data(),
                        a.data());
      launch_overlapped(one_waits_kernel<>, {kCount / kThreads}, kThreads, 0, stream, a.data(),
                        b.data());
    }
    const auto actual = download(a, stream);
    for (std::int64_t i = 0; i < kCount; ++i) {
      CHECK(actual[static_cast<std::size_t>(i)] == static_cast<float>(i + 4));
    }
  }

  TEST_CASE("a graph replays overlapped launches") {
    Stream stream;
    const auto weight = upload(std::vector<float>(kCount, 1.0f), stream);
    Buffer<float> a(kCount), b(kCount);
    fill_zero(a.data(), kCount, stream);
    Graph graph;
    graph.capture(stream, [&] {
      for (Buffer<float>* out : {&b, &a}) {
        launch_overlapped(shift_kernel<>, {kBlocks}, 64, 0, stream, out->data(),
                          (out == &b ? a : b).data(), weight.data(), kCount);
      }
    });
    CHECK(graph.nodes() == 2);
    for (int round = 0; round < 3; ++round) graph.launch(stream);
    for (const float x : download(a, stream)) CHECK(x == 6.0f);
  }

  TEST_CASE("exactly one block arrives last, and it merges in the order of blocks") {
    Stream stream;
    Buffer<float> merged(2), parts(64);
    Buffer<std::int32_t> counter(1);
    fill_zero(merged.data(), 2, stream);
    fill_zero(counter.data(), 1, stream);
    const std::int64_t part_size = 100;
    float launches = 0;
    for (const std::int64_t blocks : {1, 2, tiny_shapes() ? 5 : 64}) {
      const auto in = upload(std::vector<float>(blocks * part_size, 0.25f), stream);
      for (int round = 0; round < (tiny_shapes() ? 2 : 10); ++round) {
        launch_overlapped(merge_kernel<>, {blocks}, kThreads,
                          SharedLayout().add<float>(kBlockScratch).bytes(), stream, merged.data(),
                          parts.data(), counter.data(), in.data(), part_size);
        launches += 1.0f;
      }
      const auto actual = download(merged, stream);
      CHECK(actual[0] == 25.0f * static_cast<float>(blocks * (blocks + 1) / 2));
      CHECK(actual[1] == launches);
      CHECK(download(counter, stream)[0] == 0);
    }
  }

  TEST_CASE("a kernel that waits can be launched in the ordinary way") {
    Stream stream;
    const auto weight = upload(std::vector<float>(kCount, 1.0f), stream);
    const auto in = upload(ascending(kCount), stream);
    Buffer<float> out(kCount);
    launch(shift_kernel<>, {kBlocks}, 64, 0, stream, out.data(), in.data(), weight.data(), kCount);
    CHECK(download(out, stream)[0] == 2.0f);
    launch(careless_kernel<>, {kBlocks}, 64, 0, stream, out.data(), 0);
    CHECK(download(out, stream)[0] == 1.0f);
  }

  // A GPU does not detect the faults of the next two cases. For compiled kernels, test/faults has
  // them.
  TEST_CASE("a block of an overlapped launch that never waits is an error") {
    if (kGpuKernels) return;
    Stream stream;
    Buffer<float> out(kCount);
    const auto launch_careless = [&](std::int64_t first) {
      return complaint([&] {
        launch_overlapped(careless_kernel<>, {kBlocks}, 64, 0, stream, out.data(), first);
        stream.synchronize();
      });
    };
    CHECK(launch_careless(kBlocks).empty());
    const std::string expected = "launched overlapped and never waited for the previous launch";
    CHECK(contains(launch_careless(0), expected));
    CHECK(contains(launch_careless(kBlocks - 1), expected + ", in block (4, 0, 0)"));
    CHECK(launch_careless(kBlocks).empty());
    Graph graph;
    graph.capture(stream, [&] {
      launch_overlapped(careless_kernel<>, {kBlocks}, 64, 0, stream, out.data(), 0);
    });
    CHECK(contains(complaint([&] { graph.launch(stream); }), expected));
  }

  TEST_CASE("counting arrivals before the wait is an error") {
    if (kGpuKernels) return;
    Stream stream;
    Buffer<std::int32_t> counter(1);
    fill_zero(counter.data(), 1, stream);
    launch(early_count_kernel<>, {2}, kThreads, 0, stream, counter.data());
    const std::string text = complaint(
        [&] { launch_overlapped(early_count_kernel<>, {2}, kThreads, 0, stream, counter.data()); });
    CHECK(text.starts_with("count_arrival at "));
    CHECK(contains(text, " comes before wait_for_previous_launch"));
    CHECK(download(counter, stream)[0] == 2);
  }
}
