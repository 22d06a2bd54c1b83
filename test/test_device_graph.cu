// Graphs: replays of recorded work match plain calls, and what is not allowed is an Error.
#include <doctest/doctest.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "llmc/device/device.h"
#include "llmc/ops/gemm/matmul.h"
#include "test/support.h"

using namespace llmc;
using llmc_test::complaint;
using llmc_test::contains;
using llmc_test::download;
using llmc_test::upload;

// Has a name because DEVICE=ptx finds kernels by theirs.
namespace device_graph_kernels {

constexpr std::int64_t kCount = 96;

template <class = void>
__global__ void add_kernel(float* out, const float* value, std::int64_t n) {
  const std::int64_t i = global_thread();
  if (i < n) out[i] += *value;
}

template <class = void>
__global__ void overlapped_add_kernel(float* out, const float* value, std::int64_t n) {
  allow_next_launch();
  wait_for_previous_launch();
  const std::int64_t i = global_thread();
  if (i < n) out[i] += *value;
}

void add(Buffer<float>& out, const Buffer<float>& value, Stream& stream) {
  launch(add_kernel<>, {ceil_div(kCount, 32)}, 32, 0, stream, out.data(), value.data(), kCount);
}

void overlapped_add(Buffer<float>& out, const Buffer<float>& value, Stream& stream) {
  launch_overlapped(overlapped_add_kernel<>, {ceil_div(kCount, 32)}, 32, 0, stream, out.data(),
                    value.data(), kCount);
}

class Counter final : public LaunchObserver {
 public:
  void on_launch(const void*, int, std::size_t) override { ++launches; }
  void on_library_call(const char* name) override { library_calls.emplace_back(name); }
  int launches = 0;
  std::vector<std::string> library_calls;
};

void check_all(const Buffer<float>& buffer, float expected, Stream& stream) {
  for (const float x : download(buffer, stream)) CHECK(x == expected);
}

}  // namespace device_graph_kernels

using namespace device_graph_kernels;

TEST_SUITE("device_graph") {
  TEST_CASE("a graph replays kernels, copies and fills as plain calls run them") {
    Stream stream;
    Buffer<float> sum(kCount), copy(kCount), replayed(kCount), replayed_copy(kCount);
    const auto value = upload(std::vector<float>{3.0f}, stream);
    const auto work = [&](Buffer<float>& out, Buffer<float>& out_copy) {
      fill_zero(out.data(), kCount, stream);
      add(out, value, stream);
      overlapped_add(out, value, stream);
      overlapped_add(out, value, stream);
      copy_on_device(out_copy.data(), out.data(), kCount, stream);
      add(out, value, stream);
    };
    work(sum, copy);
    Graph graph;
    graph.capture(stream, [&] { work(replayed, replayed_copy); });
    CHECK(graph.nodes() == 6);
    for (int round = 0; round < 3; ++round) {
      fill_zero(replayed_copy.data(), kCount, stream);
      graph.launch(stream);
      CHECK(download(replayed, stream) == download(sum, stream));
      CHECK(download(replayed_copy, stream) == download(copy, stream));
    }
    check_all(copy, 9.0f, stream);
    check_all(sum, 12.0f, stream);
  }

  TEST_CASE("capturing runs nothing") {
    Stream stream;
    const auto value = upload(std::vector<float>{1.0f}, stream);
    Buffer<float> sum(kCount);
    fill_zero(sum.data(), kCount, stream);
    Graph graph;
    CHECK(graph.empty());
    CHECK(graph.nodes() == 0);
    graph.capture(stream, [&] { add(sum, value, stream); });
    CHECK(!graph.empty());
    check_all(sum, 0.0f, stream);
  }

  TEST_CASE("a replay reads device memory as it is at the replay") {
    Stream stream;
    const auto one = upload(std::vector<float>{1.0f}, stream);
    Buffer<float> sum(kCount), value(1);
    PinnedBuffer<float> source(1);
    fill_zero(sum.data(), kCount, stream);
    Graph graph;
    graph.capture(stream, [&] {
      copy_to_device(value.data(), source.data(), 1, stream);
      overlapped_add(sum, value, stream);
      overlapped_add(sum, one, stream);
    });
    for (const float x : {10.0f, 100.0f, 1000.0f}) {
      source.data()[0] = x;
      graph.launch(stream);
      stream.synchronize();
    }
    check_all(sum, 1113.0f, stream);
  }

  TEST_CASE("a graph can be launched on another stream") {
    Stream first, second;
    const auto value = upload(std::vector<float>{2.0f}, first);
    Buffer<float> sum(kCount);
    Graph graph;
    graph.capture(first, [&] {
      fill_zero(sum.data(), kCount, first);
      overlapped_add(sum, value, first);
    });
    graph.launch(second);
    check_all(sum, 2.0f, second);
  }

  TEST_CASE("a second capture replaces the first") {
    Stream stream;
    const auto value = upload(std::vector<float>{1.0f}, stream);
    Buffer<float> sum(kCount), other(kCount);
    fill_zero(sum.data(), kCount, stream);
    fill_zero(other.data(), kCount, stream);
    Graph graph;
    graph.capture(stream, [&] {
      add(sum, value, stream);
      add(sum, value, stream);
    });
    graph.launch(stream);
    graph.capture(stream, [&] { add(other, value, stream); });
    CHECK(graph.nodes() == 1);
    graph.launch(stream);
    check_all(sum, 2.0f, stream);
    check_all(other, 1.0f, stream);
    graph.capture(stream, [] {});
    CHECK(graph.empty());
  }

  TEST_CASE("an exception ends the capture and leaves the graph empty") {
    Stream stream;
    const auto value = upload(std::vector<float>{1.0f}, stream);
    Buffer<float> sum(kCount);
    fill_zero(sum.data(), kCount, stream);
    Graph graph;
    graph.capture(stream, [&] { add(sum, value, stream); });
    const auto failing = [&] {
      add(sum, value, stream);
      throw std::runtime_error("within");
    };
    CHECK_THROWS_WITH_AS(graph.capture(stream, failing), "within", std::runtime_error);
    CHECK(graph.empty());
    add(sum, value, stream);  // the stream runs work again
    check_all(sum, 1.0f, stream);
    graph.capture(stream, [&] { add(sum, value, stream); });
    graph.launch(stream);
    check_all(sum, 2.0f, stream);
  }

  TEST_CASE("an empty graph cannot be launched") {
    Stream stream;
    Graph graph;
    CHECK(contains(complaint([&] { graph.launch(stream); }), "nothing is recorded"));
  }

  TEST_CASE("what waits for a recorded stream is an error") {
    Stream stream;
    Event event;
    event.record(stream);
    Graph graph, inner;
    const auto message = [&](auto&& call) {
      return complaint([&] { graph.capture(stream, call); });
    };
    const std::string suffix = "while a graph records it";
    CHECK(contains(message([&] { stream.synchronize(); }), "wait for a stream " + suffix));
    CHECK(contains(message([&] { stream.idle(); }), suffix));
    CHECK(contains(message([&] { event.record(stream); }), suffix));
    CHECK(contains(message([&] { stream.wait(event); }), suffix));
    CHECK(contains(message([&] { run_on_host(stream, [] {}); }), suffix));
    CHECK(contains(message([&] { inner.capture(stream, [] {}); }), suffix));
    stream.synchronize();
    CHECK(stream.idle());
  }

  TEST_CASE("observers see launches at the capture, not at replays") {
    Stream stream;
    Counter counter;
    const auto value = upload(std::vector<float>{1.0f}, stream);
    Buffer<float> sum(kCount);
    fill_zero(sum.data(), kCount, stream);
    Graph graph;
    stream.observe(&counter);
    graph.capture(stream, [&] { add(sum, value, stream); });
    CHECK(counter.launches == 1);
    graph.launch(stream);
    graph.launch(stream);
    stream.observe(nullptr);
    CHECK(counter.launches == 1);
    check_all(sum, 2.0f, stream);
  }

  TEST_CASE("a matrix product is recorded, and observers see it as a library call") {
    Stream stream;
    Counter counter;
    Gemm gemm;
    const auto a = upload(std::vector<float>(64, 2.0f), stream);
    Buffer<float> c(64);
    GemmCall<float, float> call;
    call.m = call.n = call.k = 8;
    call.a = call.b = a.data();
    call.c = c.data();
    call.beta = 0;
    const auto multiply = [&] { gemm.run(call, stream); };
    multiply();
    fill_zero(c.data(), 64, stream);
    stream.observe(&counter);
    Graph graph;
    graph.capture(stream, multiply);
    CHECK(counter.library_calls == std::vector<std::string>{"matrix product"});
    graph.launch(stream);
    stream.observe(nullptr);
    CHECK(counter.library_calls.size() == 1);
    check_all(c, 32.0f, stream);
  }

  TEST_CASE("a profiled step may contain a capture, which is not timed") {
    Stream stream;
    Profiler profiler;
    const auto value = upload(std::vector<float>{1.0f}, stream);
    Buffer<float> sum(kCount);
    fill_zero(sum.data(), kCount, stream);
    Graph graph;
    profiler.begin_step(stream);
    {
      const ProfileScope outer("replay", stream);
      graph.capture(stream, [&] {
        const ProfileScope scope("inside", stream);
        add(sum, value, stream);
      });
      graph.launch(stream);
    }
    profiler.end_step(stream);
    CHECK(profiler.entries().size() == 2);  // the step and "replay"
    check_all(sum, 1.0f, stream);
  }
}
