// The vocabulary of kernels, part 2: operations of all threads of a warp or a block. Collectives,
// barriers, shared memory, asynchronous copies.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "llmc/device/device.h"
#include "test/support.h"

using namespace llmc;
using llmc_test::download;
using llmc_test::random_floats;
using llmc_test::upload;

// ---- collectives ---------------------------------------------------------------------------

// Has a name because DEVICE=ptx finds kernels by theirs.
namespace device_block_kernels {

struct LaneResults {
  float sum, max, quad_sum, quad_max, from_lane, across[6];
  int from_int;
  std::int64_t from_wide;
  bool none, one, all;
};

template <class = void>
__global__ void warp_kernel(LaneResults* out, const float* in) {
  const float x = in[global_thread()];
  LaneResults r;
  r.sum = warp_sum(x);
  r.max = warp_max(x);
  r.quad_sum = quad_sum(x);
  r.quad_max = quad_max(x);
  r.from_lane = shuffle(x, (lane() * 7 + 3) % 32);
  for (int bit = 0; bit < 5; ++bit) r.across[bit] = shuffle_xor(x, 1 << bit);
  r.across[5] = shuffle_xor(x, 31);
  r.from_int = shuffle(thread_index(), 5);
  r.from_wide = shuffle_xor(global_thread() << 33, 2);
  r.none = warp_any(false);
  r.one = warp_any(thread_index() == 37);
  r.all = warp_any(true);
  out[global_thread()] = r;
}

// The sum of 2, 4, 8, ... values in butterfly order: the step with mask m adds the value at i ^ m.
float butterfly_sum(std::vector<float> values) {
  for (std::size_t mask = values.size() / 2; mask > 0; mask /= 2) {
    const std::vector<float> old = values;
    for (std::size_t i = 0; i < old.size(); ++i) values[i] = old[i] + old[i ^ mask];
  }
  return values[0];
}

struct BlockResults {
  float sum, max, second_sum;
  bool none, one;
};

template <class = void>
__global__ void block_kernel(BlockResults* out, const float* in) {
  SharedMemory shared;
  float* scratch = shared.take<float>(kBlockScratch);
  const float x = in[global_thread()];
  BlockResults r;
  r.sum = block_sum(x, scratch);
  r.max = block_max(x, scratch);  // the scratch can be reused at once
  r.second_sum = block_sum(thread_index() == 0 ? 1.0f : 0.0f, scratch);
  r.none = block_any(false);
  r.one = block_any(thread_index() == block_size() - 1);
  out[global_thread()] = r;
}

void check_block_collectives(int threads) {
  Stream stream;
  const std::int64_t blocks = 2;
  auto values = random_floats(blocks * threads, 11);
  for (float& x : values) x -= 100.0f;  // a maximum below zero: no reduction may start from 0
  const auto in = upload(values, stream);
  Buffer<BlockResults> out(blocks * threads);
  launch(block_kernel<>, {blocks}, threads, SharedLayout().add<float>(kBlockScratch).bytes(),
         stream, out.data(), in.data());
  const auto actual = download(out, stream);
  int wrong = 0;
  for (std::int64_t block = 0; block < blocks; ++block) {
    const auto begin = values.begin() + block * threads, end = begin + threads;
    std::vector<float> warps(32, 0.0f);
    for (int w = 0; w < threads / 32; ++w) {
      warps[static_cast<std::size_t>(w)] =
          butterfly_sum(std::vector<float>(begin + w * 32, begin + (w + 1) * 32));
    }
    const float sum = butterfly_sum(warps), max = *std::max_element(begin, end);
    for (int t = 0; t < threads; ++t) {
      const BlockResults& r = actual[static_cast<std::size_t>(block * threads + t)];
      wrong += r.sum != sum || r.max != max || r.second_sum != 1.0f || r.none || !r.one;
    }
  }
  CAPTURE(threads);
  CHECK(wrong == 0);
}

// Moves values around the warp and around the block through shared memory.
template <class = void>
__global__ void barrier_kernel(float* out, std::int64_t rounds) {
  SharedMemory shared;
  float* values = shared.take<float>(block_size());
  float x = static_cast<float>(thread_index());
  for (std::int64_t round = 0; round < rounds; ++round) {
    values[thread_index()] = x;
    warp_barrier();
    x = values[warp_index() * kWarp + (lane() + 1) % kWarp];
    block_barrier();
    values[thread_index()] = x;
    block_barrier();
    x = values[(thread_index() + kWarp) % block_size()];
    block_barrier();
  }
  out[thread_index()] = x;
}

}  // namespace device_block_kernels

using namespace device_block_kernels;

TEST_SUITE("device_block") {
  TEST_CASE("warp collectives return the exact bits of a butterfly reduction") {
    Stream stream;
    const std::int64_t n = 3 * 64;
    const auto values = random_floats(n, 5);
    const auto in = upload(values, stream);
    Buffer<LaneResults> out(n);
    launch(warp_kernel<>, {3}, 64, 0, stream, out.data(), in.data());
    const auto actual = download(out, stream);
    for (std::int64_t i = 0; i < n; ++i) {
      CAPTURE(i);
      const auto warp = values.begin() + i / 32 * 32, quad = values.begin() + i / 4 * 4;
      const auto l = i % 32;
      const LaneResults& r = actual[static_cast<std::size_t>(i)];
      bool exact = r.sum == butterfly_sum({warp, warp + 32});
      exact = exact && r.max == *std::max_element(warp, warp + 32);
      exact = exact && r.quad_sum == butterfly_sum({quad, quad + 4});
      exact = exact && r.quad_max == *std::max_element(quad, quad + 4);
      exact = exact && r.from_lane == warp[(l * 7 + 3) % 32];
      for (int bit = 0; bit < 5; ++bit) exact = exact && r.across[bit] == warp[l ^ (1 << bit)];
      exact = exact && r.across[5] == warp[l ^ 31];
      exact = exact && r.from_int == i % 64 / 32 * 32 + 5;
      exact = exact && r.from_wide == (i ^ 2) << 33;
      exact = exact && !r.none && r.one == (i % 64 >= 32) && r.all;
      CHECK(exact);
    }
  }

  TEST_CASE("block collectives are exact for blocks of 1 to 32 warps") {
    for (const int threads : {32, 64, 96, 256}) check_block_collectives(threads);
    if (!llmc_test::tiny_shapes()) {
      for (const int threads : {512, 992, 1024}) check_block_collectives(threads);
    }
  }

  TEST_CASE("barriers order shared memory") {
    Stream stream;
    const int threads = 96, rounds = 7;
    Buffer<float> out(threads);
    launch(barrier_kernel<>, {1}, threads, SharedLayout().add<float>(threads).bytes(), stream,
           out.data(), rounds);
    const auto actual = download(out, stream);
    for (int t = 0; t < threads; ++t) {
      // Each round moves the values by one lane and by one warp.
      const int warp = (t / 32 + rounds) % 3, l = (t + rounds) % 32;
      CHECK(actual[static_cast<std::size_t>(t)] == static_cast<float>(warp * 32 + l));
    }
  }
}

// ---- shared memory and asynchronous copies --------------------------------------------------

namespace device_block_kernels {

template <class = void>
__global__ void pieces_kernel(float* out, std::int64_t floats, std::int64_t halves) {
  SharedMemory shared;
  float* a = shared.take<float>(floats);
  bf16* b = shared.take<bf16>(halves);
  double* c = shared.take<double>(block_size());
  for (std::int64_t i = thread_index(); i < floats; i += block_size()) a[i] = 1.0f;
  for (std::int64_t i = thread_index(); i < halves; i += block_size())
    b[i] = from_float<bf16>(2.0f);
  c[thread_index()] = 3.0;
  block_barrier();
  float sum = 0;
  for (std::int64_t i = thread_index(); i < floats; i += block_size()) sum += a[i];
  for (std::int64_t i = thread_index(); i < halves; i += block_size()) sum += to_float(b[i]);
  sum += static_cast<float>(c[block_size() - 1 - thread_index()]);
  const auto address = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p); };
  const bool aligned = address(a) % 128 == 0 && address(b) % 128 == 0 && address(c) % 128 == 0;
  out[thread_index()] = aligned ? sum : -1.0f;
}

// Tiles of 4 floats per thread pass through two buffers. The last tile may end early: its groups of
// 4 floats past n are zero-filled.
template <class = void>
__global__ void pipeline_kernel(float* out, const float* in, std::int64_t n) {
  SharedMemory shared;
  const int tile = 4 * block_size();
  float* buffers[2] = {shared.take<float>(tile), shared.take<float>(tile)};
  const std::int64_t tiles = ceil_div(n, tile);
  const auto fetch = [&](std::int64_t index) {
    if (index < tiles) {
      const std::int64_t i = index * tile + 4 * thread_index();
      copy_async_16(buffers[index % 2] + 4 * thread_index(), i < n ? in + i : nullptr, i < n);
    }
    copy_async_commit();
  };
  fetch(0);
  float sum = 0;
  for (std::int64_t index = 0; index < tiles; ++index) {
    fetch(index + 1);
    copy_async_wait<1>();
    block_barrier();
    // The elements that another thread copied.
    const float* other = buffers[index % 2] + (thread_index() + 5) % block_size() * 4;
    for (int i = 0; i < 4; ++i) sum += static_cast<float>(i + 1) * other[i];
    block_barrier();
  }
  copy_async_wait<0>();
  out[thread_index()] = sum;
}

// Three groups in flight; each wait leaves at most the given number of groups pending.
template <class = void>
__global__ void groups_kernel(float* out, const float* in) {
  SharedMemory shared;
  float* tile = shared.take<float>(3 * 4 * block_size());
  float* own[3];
  for (int group = 0; group < 3; ++group) {
    own[group] = tile + 4 * (group * block_size() + thread_index());
    copy_async_16(own[group], in + 4 * (group * block_size() + thread_index()));
    copy_async_commit();
  }
  copy_async_wait<2>();
  float sum = own[0][3];
  copy_async_wait<1>();
  sum += 10.0f * own[1][3];
  copy_async_wait<0>();
  out[thread_index()] = sum + 100.0f * own[2][3];
}

}  // namespace device_block_kernels

TEST_SUITE("device_block") {
  TEST_CASE("pieces of shared memory are aligned and do not overlap") {
    Stream stream;
    const int threads = 64;
    // The last size comes close to the limit of 99 KiB.
    for (const std::int64_t floats :
         {std::int64_t{1}, std::int64_t{100}, std::int64_t{24 * 1024}}) {
      const std::int64_t halves = 77;
      const std::size_t bytes =
          SharedLayout().add<float>(floats).add<bf16>(halves).add<double>(threads).bytes();
      REQUIRE(bytes <= kMaxSharedBytes);
      Buffer<float> out(threads);
      launch(pieces_kernel<>, {1}, threads, bytes, stream, out.data(), floats, halves);
      const auto actual = download(out, stream);
      float sum = 0;
      for (const float x : actual) sum += x;
      CHECK(sum == static_cast<float>(floats + 2 * halves + 3 * threads));
      CHECK(*std::min_element(actual.begin(), actual.end()) > 0.0f);
    }
    CHECK(SharedLayout().bytes() == 0);
    CHECK(SharedLayout().add<float>(1).add<bf16>(65).bytes() == 128 + 256);
  }

  TEST_CASE("a pipeline of asynchronous copies delivers every tile") {
    Stream stream;
    const int threads = 64, tile = 4 * threads;
    for (const std::int64_t n : {tile * 4, tile * 3 + 100, 4}) {
      const auto values = random_floats(n, 9);
      const auto in = upload(values, stream);
      Buffer<float> out(threads);
      launch(pipeline_kernel<>, {1}, threads,
             SharedLayout().add<float>(tile).add<float>(tile).bytes(), stream, out.data(),
             in.data(), n);
      const auto actual = download(out, stream);
      for (int t = 0; t < threads; ++t) {
        float expected = 0;
        for (std::int64_t base = 0; base < n; base += tile) {
          for (int i = 0; i < 4; ++i) {
            const std::int64_t index = base + (t + 5) % threads * 4 + i;
            expected += static_cast<float>(i + 1) *
                        (index < n ? values[static_cast<std::size_t>(index)] : 0);
          }
        }
        CHECK(actual[static_cast<std::size_t>(t)] == doctest::Approx(expected).epsilon(1e-5));
      }
    }
  }

  TEST_CASE("a wait leaves at most the given number of newest copy groups pending") {
    Stream stream;
    const int threads = 32;
    const auto values = random_floats(3 * 4 * threads, 13);
    const auto in = upload(values, stream);
    Buffer<float> out(threads);
    launch(groups_kernel<>, {1}, threads, SharedLayout().add<float>(3 * 4 * threads).bytes(),
           stream, out.data(), in.data());
    const auto actual = download(out, stream);
    for (int t = 0; t < threads; ++t) {
      const auto last = [&](int group) {
        return values[static_cast<std::size_t>(4 * (group * threads + t) + 3)];
      };
      CHECK(actual[static_cast<std::size_t>(t)] ==
            doctest::Approx(last(0) + 10 * last(1) + 100 * last(2)).epsilon(1e-5));
    }
  }
}
