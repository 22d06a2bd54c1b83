// The vocabulary of launchers: launches and their limits, streams, events, buffers, copies,
// tensors, properties; and counter-based random numbers.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "llmc/device/device.h"
#include "test/support.h"

using namespace llmc;
using llmc_test::download;
using llmc_test::random_floats;
using llmc_test::upload;

// Has a name because DEVICE=ptx finds kernels by theirs.
namespace device_launcher_kernels {

template <class = void>
__global__ void add_kernel(float* out, float value, std::int64_t n) {
  const std::int64_t i = global_thread();
  if (i < n) out[i] += value;
}

template <class = void>
__global__ void double_kernel(float* out, const float* in, std::int64_t n) {
  const std::int64_t i = global_thread();
  if (i < n) out[i] = 2.0f * in[i];
}

template <class F>
std::string error_message(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string launch_message(Grid grid, int threads, std::size_t shared_bytes) {
  return error_message([&] {
    Stream stream;
    launch(add_kernel<>, grid, threads, shared_bytes, stream, nullptr, 1.0f, 0);
    stream.synchronize();
  });
}

}  // namespace device_launcher_kernels

using namespace device_launcher_kernels;

TEST_SUITE("device_launcher") {
  TEST_CASE("launches on one stream run in order") {
    Stream stream;
    const std::int64_t n = 100;
    Buffer<float> sum(n);
    fill_zero(sum.data(), n, stream);
    const int launches = llmc_test::tiny_shapes() ? 20 : 300;
    // The value and the size are converted to the kernel's parameter types.
    for (int i = 0; i < launches; ++i) {
      launch(add_kernel<>, {ceil_div(n, 32)}, 32, 0, stream, sum.data(), i, static_cast<int>(n));
    }
    const float expected = static_cast<float>(launches * (launches - 1) / 2);
    for (const float x : download(sum, stream)) CHECK(x == expected);
  }

  TEST_CASE("an empty grid launches nothing") {
    Stream stream;
    const auto one = upload(std::vector<float>{1.0f}, stream);
    for (const Grid grid : {Grid{0, 1, 1}, Grid{1, 0, 1}, Grid{1, 1, 0}}) {
      launch(add_kernel<>, grid, 32, 0, stream, one.data(), 5.0f, 1);
    }
    CHECK(download(one, stream)[0] == 1.0f);
  }

  TEST_CASE("a launch beyond the limits of a GPU throws") {
    CHECK(launch_message({1}, 32, 0) == "no error");
    for (const int threads : {0, -32, 33, 48, 1056}) {
      CHECK(launch_message({1}, threads, 0) ==
            "a block of " + std::to_string(threads) +
                " threads: a multiple of 32 up to 1024 is allowed");
    }
    CHECK(launch_message({1, 65536, 1}, 32, 0) ==
          "a grid of 1 x 65536 x 1 blocks: at most 2147483647 x 65535 x 65535 are allowed");
    CHECK(launch_message({std::int64_t{1} << 31, 1, 1}, 32, 0).starts_with("a grid of 2147483648"));
    CHECK(launch_message({1, 1, -1}, 32, 0).starts_with("a grid of 1 x 1 x -1"));
    CHECK(launch_message({1}, 32, kMaxSharedBytes) == "no error");
    CHECK(
        launch_message({1}, 32, kMaxSharedBytes + 1)
            .starts_with("a block with 101377 bytes of shared memory: at most 101376 are allowed"));
  }

  TEST_CASE("copies to, on and from the device keep the data") {
    Stream stream;
    const auto values = random_floats(1001, 1);
    const auto n = static_cast<std::int64_t>(values.size());
    PinnedBuffer<float> pinned(n), back(n);
    std::memcpy(pinned.data(), values.data(), pinned.bytes());
    Buffer<float> first(n), second(n);
    copy_to_device(first.data(), pinned.data(), n, stream);
    fill_zero(second.data(), n, stream);
    // Copies all elements except the last, which stays zero.
    copy_on_device(second.data(), first.data(), n - 1, stream);
    copy_to_host(back.data(), second.data(), n, stream);
    stream.synchronize();
    CHECK(std::memcmp(back.data(), values.data(), back.bytes() - sizeof(float)) == 0);
    CHECK(back.data()[n - 1] == 0.0f);
    copy_to_host(back.data(), first.data(), 0, stream);  // copies nothing
    fill_zero(second.data(), 0, stream);
  }

  TEST_CASE("a buffer owns its memory") {
    Stream stream;
    Buffer<float> a(10), b(20), zero_size(0), empty;
    CHECK(zero_size.data() == nullptr);
    CHECK(empty.size() == 0);
    float* const first = a.data();
    CHECK(a.bytes() == 40);
    Buffer<float> c(std::move(a));
    CHECK(c.data() == first);
    CHECK(a.data() == nullptr);  // NOLINT: a moved-from buffer is empty
    CHECK(a.size() == 0);
    b = std::move(c);
    CHECK(b.data() == first);
    CHECK(b.size() == 10);
    CHECK(error_message([] { Buffer<float> negative(-1); }) == "the size of a buffer is negative");
  }

  TEST_CASE("a failed allocation throws an error with the number of bytes") {
    // A sanitizer's allocator stops the program instead of returning an error.
    if (llmc_test::tiny_shapes() && !kGpuKernels)
      return llmc_test::skip("sanitizers abort instead of returning an error");
    CHECK(error_message([] {
            Buffer<float> too_large(std::int64_t{1} << 50);
          }).starts_with("no memory for 4503599627370496 bytes"));
  }

  TEST_CASE("buffers can be freed and reallocated while their stream is in use") {
    Stream stream;
    for (int i = 0; i < 5; ++i) {
      const auto in = upload(std::vector<float>(200, static_cast<float>(i)), stream);
      Buffer<float> out(200);
      launch(double_kernel<>, {4}, 64, 0, stream, out.data(), in.data(), 200);
      CHECK(download(out, stream)[199] == static_cast<float>(2 * i));
    }
  }

  TEST_CASE("events order two streams in both directions") {
    const std::int64_t n = 500;
    Stream a, b;
    Event written, read;
    Buffer<float> shared(n), copy(n);
    fill_zero(shared.data(), n, a);
    for (int round = 0; round < 3; ++round) {
      launch(add_kernel<>, {ceil_div(n, 64)}, 64, 0, a, shared.data(), 1.0f, n);
      written.record(a);
      b.wait(written);
      launch(double_kernel<>, {ceil_div(n, 64)}, 64, 0, b, copy.data(), shared.data(), n);
      read.record(b);
      a.wait(read);
    }
    read.synchronize();
    CHECK(milliseconds_between(written, read) >= 0.0);
    CHECK(download(copy, b)[n - 1] == 6.0f);
    a.synchronize();
  }

  TEST_CASE("a tensor is a view with a shape") {
    std::vector<float> memory(24);
    const auto t = make_tensor(memory.data(), 2, std::int64_t{3}, 4);
    static_assert(std::is_same_v<decltype(t), const Tensor<float, 3>>);
    CHECK(t.size() == 24);
    const In<float, 3> view = t;
    CHECK(view.data == memory.data());
    CHECK(view.shape[2] == 4);
    check_shape("t", t, {2, 3, 4});
    CHECK(error_message([&] {
            check_shape("weight", t, {2, 3, 5});
          }) == "tensor 'weight' has shape (2, 3, 4), expected (2, 3, 5)");
    CHECK(error_message([&] {
            check_shape("weight", view, {2, 12});
          }) == "tensor 'weight' has shape (2, 3, 4), expected (2, 12)");
    CHECK(error_message([] { check_shape("out", make_tensor<float>(nullptr, 7), {7}); }) ==
          "tensor 'out' has no memory");
    check_shape("empty", make_tensor<float>(nullptr, 0), {0});
  }

  TEST_CASE("device properties are present and consistent") {
    std::string reason;
    REQUIRE(device_available(&reason));
    const DeviceProperties machine = device_properties();
    CHECK(!machine.name.empty());
    CHECK(machine.processors > 0);
    CHECK(machine.total_memory > 0);
    CHECK(machine.free_memory > 0);
    CHECK(machine.free_memory <= machine.total_memory);
  }
}

// ---- random numbers ------------------------------------------------------------------------

namespace device_launcher_kernels {

struct KnownAnswer {
  PhiloxBits counter;
  PhiloxKey key;
  PhiloxBits expected;
};

// Random123's test vectors for philox4x32-10 (its file kat_vectors).
const std::vector<KnownAnswer> kKnownAnswers = {
    {{{0, 0, 0, 0}}, {{0, 0}}, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}},
    {{{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}},
     {{0xffffffff, 0xffffffff}},
     {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}},
    {{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
     {{0xa4093822, 0x299f31d0}},
     {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}}};

template <class = void>
__global__ void philox_kernel(KnownAnswer* cases) {
  cases[thread_index()].expected = philox(cases[thread_index()].key, cases[thread_index()].counter);
}

bool same(const PhiloxBits& a, const PhiloxBits& b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

}  // namespace device_launcher_kernels

TEST_SUITE("device_launcher") {
  TEST_CASE("philox matches its published test vectors on the host and on the device") {
    Stream stream;
    std::vector<KnownAnswer> cases = kKnownAnswers;
    cases.resize(32);
    for (KnownAnswer& c : cases) c.expected = {};
    const auto on_device = upload(cases, stream);
    launch(philox_kernel<>, {1}, 32, 0, stream, on_device.data());
    const auto actual = download(on_device, stream);
    for (std::size_t i = 0; i < kKnownAnswers.size(); ++i) {
      const KnownAnswer& known = kKnownAnswers[i];
      CHECK(same(philox(known.key, known.counter), known.expected));
      CHECK(same(actual[i].expected, known.expected));
    }
  }

  TEST_CASE("random bits depend on seed, purpose, step, tensor and index") {
    const auto word = [](std::uint64_t seed, RandomPurpose purpose, std::uint32_t step,
                         std::uint32_t tensor, std::uint64_t index) {
      const PhiloxBits bits = random_bits(seed, purpose, step, tensor, index);
      return std::uint64_t{bits.words[0]} << 32 | bits.words[1];
    };
    using enum RandomPurpose;
    const std::uint64_t wide = std::uint64_t{1} << 32;
    const std::set<std::uint64_t> all = {
        word(1, dropout, 1, 1, 1),        word(2, dropout, 1, 1, 1),
        word(1 + wide, dropout, 1, 1, 1), word(1, sampling, 1, 1, 1),
        word(1, dropout, 2, 1, 1),        word(1, dropout, 1, 2, 1),
        word(1, dropout, 1, 1 << 10, 1),  word(1, dropout, 1, 1, 2),
        word(1, dropout, 1, 1, 1 + wide), word(1, dropout, 1, 1, 1 + (wide << 7))};
    CHECK(all.size() == 10);
    CHECK(word(1, dropout, 1, 1, 1) == word(1, dropout, 1, 1, 1));
  }

  TEST_CASE("uniform numbers stay within their bounds") {
    CHECK(uniform_from_bits(0) == 0x1p-24f);
    CHECK(uniform_from_bits(0xffffffff) == 1.0f - 0x1p-24f);
    CHECK(uniform_from_bits(0x80000000) == 0.5f + 0x1p-24f);
    float first, second;
    normals_from_bits(0, 0x40000000, first, second);  // the largest possible radius
    CHECK(std::isfinite(first));
    CHECK(std::abs(second) == doctest::Approx(std::sqrt(48 * std::log(2.0))).epsilon(1e-5));
  }

  TEST_CASE("normal numbers have the moments of a normal distribution") {
    const int n = 50000;
    double moments[5] = {}, product = 0;
    for (int i = 0; i < n; ++i) {
      const PhiloxBits bits =
          random_bits(42, RandomPurpose::initialisation, 0, 0, static_cast<std::uint64_t>(i));
      float x, y;
      normals_from_bits(bits.words[0], bits.words[1], x, y);
      product += double{x} * y / n;
      for (const double z : {double{x}, double{y}}) {
        for (int k = 1; k <= 4; ++k) moments[k] += std::pow(z, k) / (2 * n);
      }
    }
    // The standard error of the mean of x^k is sqrt((E x^2k - (E x^k)^2) / 2n); the bounds are five
    // standard errors.
    CHECK(std::abs(moments[1]) < 5 * std::sqrt(1.0 / (2 * n)));
    CHECK(std::abs(moments[2] - 1) < 5 * std::sqrt(2.0 / (2 * n)));
    CHECK(std::abs(moments[3]) < 5 * std::sqrt(15.0 / (2 * n)));
    CHECK(std::abs(moments[4] - 3) < 5 * std::sqrt(96.0 / (2 * n)));
    CHECK(std::abs(product) < 5 * std::sqrt(1.0 / n));
  }
}
