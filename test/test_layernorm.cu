// LayerNorm in addition to its cases in dev/ops/layernorm.h: rows with a large mean, and errors.
#include <doctest/doctest.h>

#include "dev/harness/arrays.h"
#include "llmc/ops/layernorm.h"
#include "test/oracle/ops.h"
#include "test/support.h"

namespace {

using namespace llmc;
using namespace llmc_test;
using llmc_dev::DeviceArray;

constexpr float kEps = 1e-5f;

TEST_SUITE("layernorm") {
  TEST_CASE("a large mean does not cancel the variance") {
    Stream stream;
    const std::int64_t rows = 3, C = 768;
    std::vector<float> x = random_floats(rows * C, 44, 1.5);
    for (float& value : x) value += 1000.0f;
    const DeviceArray<float> inp(x, stream), weight(random_floats(C, 41), stream);
    const DeviceArray<float> bias(random_floats(C, 42), stream);
    const DeviceArray<float> mean(std::vector<float>(rows), stream), rstd(mean.stored(), stream);
    layernorm_forward<float>(make_tensor(inp.data(), rows, C), make_tensor(mean.data(), rows),
                             make_tensor(rstd.data(), rows), make_tensor(inp.data(), rows, C),
                             make_tensor(weight.data(), C), make_tensor(bias.data(), C), kEps,
                             stream);
    const auto expected = oracle::layernorm_forward(oracle::to_double(x), weight.values(),
                                                    bias.values(), rows, C, kEps);
    // The mean is exact to one fp32 step at 1000, which is 6e-5; the deviation is 1.5.
    CHECK(relative_l2(inp.values(), expected.out) < 1e-4);
    CHECK(relative_l2(rstd.values(), expected.rstd) < 1e-6);
  }

  TEST_CASE("unsupported row lengths are rejected") {
    Stream stream;
    const DeviceArray<float> x(std::vector<float>(64), stream);
    const auto with_channels = [&](std::int64_t C) {
      layernorm_forward<float>(make_tensor(x.data(), 1, C), make_tensor(x.data(), 1),
                               make_tensor(x.data(), 1), make_tensor(x.data(), 1, C),
                               make_tensor(x.data(), C), make_tensor(x.data(), C), kEps, stream);
    };
    CHECK_THROWS_WITH_AS(with_channels(12), doctest::Contains("rows of 12 elements"), Error);
    CHECK_THROWS_WITH_AS(with_channels(8200), doctest::Contains("8200 channels"), Error);
  }
}

}  // namespace
