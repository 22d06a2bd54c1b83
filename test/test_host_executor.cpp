// The host executor itself: its error reports, its recovery from its own errors, and its use of OS
// threads. test_faults.py plants the faults that the sanitizers detect.
#include <doctest/doctest.h>
#include <stdlib.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "llmc/device/device.h"
#include "llmc/device/host/workers.h"
#include "test/support.h"

using namespace llmc;
using llmc_test::download;
using llmc_test::tiny_shapes;
using llmc_test::upload;

namespace {

const std::string kFile = std::string(" at ") + __FILE__ + ":";

// The message of the error that a launch throws.
template <class... Parameters, class... Arguments>
std::string launch_error(void (*kernel)(Parameters...), Grid grid, int threads,
                         std::size_t shared_bytes, Arguments... arguments) {
  Stream stream;
  try {
    launch(kernel, grid, threads, shared_bytes, stream, arguments...);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// ---- kernels with faults that the executor detects ---------------------------------------------

constexpr int kDivergentLine = __LINE__ + 3;
__global__ void divergent_kernel(std::int64_t faulty_block) {
  if (block_x() == faulty_block && lane() >= 16) {
    block_barrier();
  } else {
    block_barrier();
  }
}

// Warp 0 waits for its block. Warp 1 waits for its own lanes, one of which has returned.
constexpr int kStuckLine = __LINE__ + 4;
__global__ void stuck_kernel() {
  if (thread_index() == 40) return;
  if (warp_index() == 0) {
    block_barrier();
  } else {
    warp_sum(1.0f);
  }
}

// The first half of the warp is one collective ahead.
constexpr int kAheadLine = __LINE__ + 2;
__global__ void ahead_kernel(float* out) {
  if (lane() < 16) out[lane()] = shuffle(1.0f, 3);
  out[lane()] = warp_max(2.0f);
}

constexpr int kReturnedLine = __LINE__ + 3;
__global__ void early_return_kernel(float* out) {
  if (thread_index() == 5) return;
  out[thread_index()] = block_sum(1.0f, SharedMemory().take<float>(kBlockScratch));
}

__global__ void take_kernel(std::int64_t floats, std::int64_t pieces) {
  SharedMemory shared;
  for (std::int64_t i = 0; i < pieces; ++i) shared.take<float>(floats);
}

// The last lane to arrive continues first: the other lanes are still ready to run when it fails.
constexpr int kMisalignedLine = __LINE__ + 5;
__global__ void misaligned_kernel(const float* in) {
  SharedMemory shared;
  float* tile = shared.take<float>(64);
  warp_barrier();
  if (lane() == 31) copy_async_16(tile + 1, in);
}

// ---- kernels without faults --------------------------------------------------------------------

// Only the n threads from `first` on reach the barrier, which ignores threads that have returned.
__global__ void live_thread_sum_kernel(float* out, std::int64_t n, std::int64_t first) {
  SharedMemory shared;
  float* values = shared.take<float>(block_size());
  const std::int64_t t = thread_index() - first;
  if (t < 0 || t >= n) return;
  values[t] = static_cast<float>(t + 1);
  block_barrier();
  if (t == 0) {
    float sum = 0;
    for (std::int64_t i = 0; i < n; ++i) sum += values[i];
    out[block_x()] = sum;
  }
}

// Alternates warp collectives with block barriers; each warp has another number of collectives.
__global__ void mixed_kernel(float* out) {
  SharedMemory shared;
  float* values = shared.take<float>(block_size());
  float x = static_cast<float>(thread_index());
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i <= warp_index(); ++i) x = shuffle_xor(x, 1);
    values[thread_index()] = x;
    block_barrier();
    x = values[thread_index() ^ kWarp];
    block_barrier();
  }
  out[global_thread()] = x;
}

__global__ void plain_kernel(float* out, std::int64_t n) {
  if (global_thread() < n) out[global_thread()] = static_cast<float>(block_x());
}

__global__ void uninitialised_shared_kernel(float* out) {
  SharedMemory shared;
  const float* values = shared.take<float>(block_size());
  std::memcpy(out + global_thread(), values + thread_index(), sizeof(float));
}

__global__ void deep_stack_kernel(float* out) {
  float large[6000];
  for (int i = 0; i < 6000; ++i) large[i] = static_cast<float>(i);
  block_barrier();
  out[thread_index()] = large[(thread_index() * 37) % 6000];
}

constexpr std::size_t kSharedBytes = SharedLayout().add<float>(1024).bytes();

void check_that_kernels_run() {
  Stream stream;
  const std::int64_t blocks = tiny_shapes() ? 3 : 40;
  Buffer<float> out(blocks);
  for (const std::int64_t first : {0, 14, 5}) {
    launch(live_thread_sum_kernel, {blocks}, 64, kSharedBytes, stream, out.data(), 50, first);
    for (const float x : download(out, stream)) CHECK(x == 50.0f * 51.0f / 2.0f);
  }
}

}  // namespace

TEST_SUITE("host_executor") {
  TEST_CASE("a divergent barrier throws an error with both source lines") {
    // Threads 0 to 15 of the block arrive first; then thread 16 arrives at another barrier.
    CHECK(launch_error(divergent_kernel, {3}, 32, 0, 1) ==
          "divergent barrier: thread 16 is in block_barrier" + kFile +
              std::to_string(kDivergentLine) +
              " while other threads of its group wait in block_barrier" + kFile +
              std::to_string(kDivergentLine + 2) + ", in block (1, 0, 0)");
  }

  TEST_CASE("the error for a stuck block counts the waiting threads per source line") {
    const std::string text = launch_error(stuck_kernel, {1}, 64, 0);
    CHECK(text.starts_with("divergent barrier: of 64 threads, "));
    CHECK(text.find("32 wait forever in block_barrier" + kFile + std::to_string(kStuckLine)) !=
          std::string::npos);
    CHECK(text.find("31 wait forever in warp_sum" + kFile + std::to_string(kStuckLine + 2)) !=
          std::string::npos);
    CHECK(text.find(", 1 have returned") != std::string::npos);
  }

  TEST_CASE("two different collectives in one warp are a divergent barrier") {
    Buffer<float> out(32);
    const std::string text = launch_error(ahead_kernel, {1}, 32, 0, out.data());
    CHECK(text.starts_with("divergent barrier: thread 16 is in warp_max" + kFile +
                           std::to_string(kAheadLine + 1)));
    CHECK(text.find("wait in shuffle" + kFile + std::to_string(kAheadLine)) != std::string::npos);
  }

  TEST_CASE("a collective with values is a divergent barrier if a thread has returned") {
    Buffer<float> out(64);
    const std::string text = launch_error(early_return_kernel, {1}, 64, kSharedBytes, out.data());
    CHECK(text.find("63 wait forever in block_sum" + kFile + std::to_string(kReturnedLine)) !=
          std::string::npos);
  }

  TEST_CASE("a barrier ignores threads that have returned") {
    check_that_kernels_run();
  }

  TEST_CASE("a kernel that takes more shared memory than its launch provides throws") {
    CHECK(launch_error(take_kernel, {2}, 32, 128, 32, 1) == "no error");
    CHECK(launch_error(take_kernel, {2}, 32, 128, 33, 1)
              .starts_with("the kernel takes 132 bytes of shared memory; its launch provides 128"));
    CHECK(launch_error(take_kernel, {2}, 32, 128, 16, 2)
              .starts_with("the kernel takes 192 bytes of shared memory; its launch provides 128"));
    CHECK(launch_error(take_kernel, {1}, 32, 0, 1, 1)
              .starts_with("the kernel takes 4 bytes of shared memory; its launch provides 0"));
    CHECK(launch_error(take_kernel, {1}, 32, 64 * 128, 1, 64) == "no error");
    CHECK(
        launch_error(take_kernel, {1}, 32, 130 * 128, 1, 130).starts_with("the kernel takes more"));
    CHECK(launch_error(take_kernel, {1}, 32, 0, 0, 3) == "no error");
  }

  TEST_CASE("an asynchronous copy to a misaligned address throws") {
    Buffer<float> in(4);
    CHECK(launch_error(misaligned_kernel, {1}, 32, kSharedBytes, in.data())
              .starts_with("copy_async_16" + kFile + std::to_string(kMisalignedLine) +
                           " needs addresses that are multiples of 16"));
  }

  TEST_CASE("the executor works after every kind of error") {
    Buffer<float> out(64), in(4);
    for (int round = 0; round < (tiny_shapes() ? 2 : 10); ++round) {
      CHECK(launch_error(divergent_kernel, {16}, 64, 0, 10).starts_with("divergent barrier"));
      check_that_kernels_run();
      CHECK(launch_error(stuck_kernel, {1}, 64, 0).starts_with("divergent barrier"));
      CHECK(launch_error(early_return_kernel, {2}, 64, kSharedBytes, out.data())
                .starts_with("divergent barrier"));
      CHECK(launch_error(misaligned_kernel, {1}, 32, kSharedBytes, in.data()).starts_with("copy_"));
      CHECK(launch_error(take_kernel, {5}, 32, 128, 33, 1).starts_with("the kernel takes"));
      check_that_kernels_run();
    }
  }

  TEST_CASE("a stream and its buffers work after a failed launch") {
    Stream stream;
    Buffer<float> out(64);
    CHECK_THROWS_AS(launch(early_return_kernel, {2}, 64, kSharedBytes, stream, out.data()), Error);
    launch(plain_kernel, {2}, 32, 0, stream, out.data(), 64);
    CHECK(download(out, stream)[63] == 1.0f);
  }

  TEST_CASE("warp collectives and block barriers alternate in blocks of every size") {
    Stream stream;
    for (int threads = 64; threads <= (tiny_shapes() ? 128 : 1024); threads += 64) {
      Buffer<float> out(2 * threads);
      launch(mixed_kernel, {2}, threads, kSharedBytes, stream, out.data());
      const auto actual = download(out, stream);
      int wrong = 0;
      for (int i = 0; i < 2 * threads; ++i) {
        // Each round swaps neighbouring lanes in warps of even index, then swaps neighbouring
        // warps. The value that ends in thread t starts in the neighbouring warp and visits even
        // warps in one or two of the three rounds.
        const int t = i % threads, moves = t / 32 % 2 == 0 ? 1 : 2;
        const int origin = (t ^ 32) ^ (moves % 2);
        wrong += actual[static_cast<std::size_t>(i)] != static_cast<float>(origin);
      }
      CAPTURE(threads);
      CHECK(wrong == 0);
    }
  }

  TEST_CASE("new global and shared memory contains NaN") {
    Stream stream;
    Buffer<float> global(7), out(64);
    Buffer<bf16> halves(3);
    for (const float x : download(global, stream)) CHECK(std::isnan(x));
    for (const bf16 x : download(halves, stream)) CHECK(std::isnan(to_float(x)));
    for (int round = 0; round < 2; ++round) {
      // The shared memory no longer holds the values of the previous launch.
      launch(live_thread_sum_kernel, {1}, 64, kSharedBytes, stream, out.data(), 64, 0);
      launch(uninitialised_shared_kernel, {2}, 32, kSharedBytes, stream, out.data());
      for (const float x : download(out, stream)) CHECK(std::isnan(x));
    }
  }

  TEST_CASE("the stack of a kernel's thread has space for large arrays") {
    Stream stream;
    Buffer<float> out(64);
    launch(deep_stack_kernel, {1}, 64, 0, stream, out.data());
    CHECK(download(out, stream)[63] == static_cast<float>(63 * 37));
  }

  TEST_CASE("thousands of small launches run") {
    Stream stream;
    Buffer<float> out(96);
    for (int i = 0; i < (tiny_shapes() ? 50 : 3000); ++i) {
      launch(plain_kernel, {1 + i % 3}, 32, 0, stream, out.data(), 96);
    }
    CHECK(download(out, stream)[95] == 2.0f);
  }
}

// ---- streams and OS threads --------------------------------------------------------------------

namespace {

// Sums over the first n threads in blocks of 64, for several n and on any number of OS threads.
// Returns the sums for n = 64.
std::vector<float> block_sums() {
  Stream stream;
  const std::int64_t blocks = tiny_shapes() ? 10 : 100;
  Buffer<float> out(blocks);
  for (std::int64_t n = 1; n <= 64; n += 7) {
    launch(live_thread_sum_kernel, {blocks}, 64, kSharedBytes, stream, out.data(), n, 0);
  }
  return download(out, stream);
}

constexpr const char* kThreadsVariable = "LLMC_TEST_HOST_THREADS";

}  // namespace

TEST_SUITE("host_executor") {
  TEST_CASE("nested work of a stream runs immediately") {
    Stream stream;
    std::vector<int> order;
    stream.run([&] {
      order.push_back(1);
      stream.run([&] {
        order.push_back(2);
        stream.run([&] { order.push_back(3); });
      });
      order.push_back(4);
    });
    stream.synchronize();
    CHECK(order == std::vector<int>{1, 2, 3, 4});
  }

  TEST_CASE("kernels can be launched inside the work of their stream") {
    Stream stream;
    Buffer<float> out(64);
    stream.run([&stream, data = out.data()] {
      fill_zero(data, 64, stream);
      launch(plain_kernel, {2}, 32, 0, stream, data, 64);
    });
    CHECK(download(out, stream)[63] == 1.0f);
  }

  TEST_CASE("an exception from the work of a stream reaches the caller") {
    Stream stream;
    CHECK_THROWS_WITH_AS(stream.run([] { throw std::runtime_error("within"); }), "within",
                         std::runtime_error);
    int runs = 0;
    stream.run([&] { ++runs; });
    stream.synchronize();
    CHECK(runs == 1);
  }

  TEST_CASE("host threads with one stream each can launch concurrently") {
    constexpr int kThreads = 3;
    std::vector<std::vector<float>> actual(kThreads);
    std::vector<std::thread> threads;
    for (int i = 0; i < (tiny_shapes() ? 1 : kThreads); ++i) {
      threads.emplace_back([&, i] { actual[static_cast<std::size_t>(i)] = block_sums(); });
    }
    for (std::thread& thread : threads) thread.join();
    for (const float x : actual[0]) CHECK(x == 64.0f * 65.0f / 2.0f);
    if (!tiny_shapes()) CHECK((actual[1] == actual[0] && actual[2] == actual[0]));
  }

  // The next test case also runs this one, in processes with other numbers of OS threads.
  TEST_CASE("the worker pool has the number of OS threads from the environment") {
    if (const char* value = std::getenv(kThreadsVariable); value != nullptr) {
      const int threads = host::kThreadSanitizer ? 1 : std::atoi(value);
      CHECK(workers().threads() == threads);
    }
    for (const float x : block_sums()) CHECK(x == 64.0f * 65.0f / 2.0f);
  }

  TEST_CASE("LLMC_HOST_THREADS sets the number of OS threads") {
    char self[4096];
    REQUIRE(realpath("/proc/self/exe", self) != nullptr);
    for (const std::string threads : {"1", "2", "5"}) {
      const std::string command =
          "LLMC_HOST_THREADS=" + threads + " " + kThreadsVariable + "=" + threads + " '" + self +
          "' --test-case='the worker pool has the number of OS threads*' >/dev/null";
      CAPTURE(command);
      CHECK(std::system(command.c_str()) == 0);
    }
  }
}
