// LayerNorm in addition to its cases in dev/ops/layernorm.h: rows with a large mean, no rows, and
// errors. Other ops on rows of the residual stream with no rows.
#include <doctest/doctest.h>

#include "dev/harness/arrays.h"
#include "llmc/device/launch_observer.h"
#include "llmc/ops/bias_gradient.h"
#include "llmc/ops/dropout.h"
#include "llmc/ops/embedding.h"
#include "llmc/ops/layernorm.h"
#include "llmc/ops/residual_add.h"
#include "test/oracle/ops.h"
#include "test/support.h"

namespace {

using namespace llmc;
using namespace llmc_test;
using llmc_dev::DeviceArray;

constexpr float kEps = 1e-5f;

class LaunchCounter final : public LaunchObserver {
 public:
  void on_launch(const void*, int, std::size_t) override { ++count; }
  int count = 0;
};

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

  // A rank may hold no rows of the residual stream.
  TEST_CASE_TEMPLATE("ops on the residual stream launch nothing for 0 rows", T, float, bf16, fp16) {
    Stream stream;
    LaunchCounter launches;
    const std::int64_t C = 40;
    const auto start = random_floats(C, 41);
    const DeviceArray<T> parameter(convert<T>(start), stream);
    const DeviceArray<float> gradient(start, stream);
    const Tensor<T, 2> none{nullptr, {0, C}};
    const Tensor<float, 1> no_statistics, no_scratch;
    const auto weight = make_tensor(parameter.data(), C);
    const auto d_weight = make_tensor(gradient.data(), C);
    stream.observe(&launches);
    layernorm_forward<T>(none, no_statistics, no_statistics, none, weight, weight, kEps, stream);
    residual_layernorm_forward<T>(none, none, no_statistics, no_statistics, none, none, weight,
                                  weight, kEps, stream);
    for (const Tensor<T, 2>& d_residual : {none, Tensor<T, 2>{}}) {
      layernorm_backward<T>(none, d_weight, d_weight, none, none, no_statistics, no_statistics,
                            weight, d_residual, no_scratch, stream);
    }
    residual_add<T>(none, none, none, stream);
    apply_dropout<T>(none, none, 5, make_dropout(0.5, 1, 1, 1, 1), stream);
    bias_gradient<T>(d_weight, none, no_scratch, stream);
    position_embedding_backward<T>(make_tensor(gradient.data(), 1, C), none, 3, 1, stream);
    stream.observe(nullptr);
    CHECK(launches.count == 0);
    CHECK(same_bits(gradient.stored(), start));
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
