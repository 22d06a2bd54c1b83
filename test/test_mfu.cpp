// The MFU of steps that are faster than the peak, with speeds that the tests choose.
#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "llmc/train/watch/mfu.h"
#include "test/support.h"

using namespace llmc;
using llmc_test::contains;

namespace {

const Peak kMeasured{1e12, "measured", true};

}  // namespace

TEST_SUITE("mfu") {
  TEST_CASE("MFU is the fraction of the peak, and never more than 1") {
    for (const bool is_measured : {false, true}) {
      MfuMeter meter({4e12, "peak", is_measured}, {});
      CHECK(meter.add_step(1e12).empty());
      CHECK(meter.fraction(1e12) == 0.25);
      CHECK(meter.fraction(4e12) == 1);
      CHECK(std::isnan(meter.fraction(4.1e12)));
      CHECK(std::isnan(meter.fraction(INFINITY)));
      CHECK(std::isnan(meter.fraction(NAN)));
    }
  }

  TEST_CASE("a step above a measured peak measures it again") {
    int measurements = 0;
    MfuMeter meter(kMeasured, [&] {
      ++measurements;
      return 1.6e12;
    });
    CHECK(meter.add_step(1e12).empty());
    CHECK(measurements == 0);
    CHECK(contains(meter.add_step(1.2e12), "is now 1.60 TFLOP/s"));
    CHECK(measurements == 1);
    CHECK(meter.fraction(1.2e12) == 0.75);
    CHECK(meter.add_step(1.5e12).empty());
    CHECK(measurements == 1);
  }

  TEST_CASE("a peak is at least the speed of a step, and is measured only a few times") {
    int measurements = 0;
    MfuMeter meter(kMeasured, [&] {
      ++measurements;
      return 5e11;
    });
    for (double flops = 1.1e12; flops < 2e12; flops += 1e11) {
      meter.add_step(flops);
      CHECK(meter.fraction(flops) == 1);
    }
    CHECK(measurements == 3);
    CHECK(meter.add_step(INFINITY).empty());
    CHECK(meter.peak().flops < 3e12);
  }

  TEST_CASE("a peak that cannot be measured again becomes the speed of the step") {
    MfuMeter meter(kMeasured, {});
    CHECK(meter.add_step(3e12).empty());
    CHECK(meter.fraction(3e12) == 1);
    CHECK(meter.fraction(1.5e12) == 0.5);
  }

  TEST_CASE("a typed peak stays, and one warning names the flag") {
    MfuMeter meter({1e12, "--peak-tflops"}, [] { return 9e12; });
    const std::string warning = meter.add_step(2e12);
    CHECK(contains(warning, "2.00 TFLOP/s, more than the peak of 1.00 TFLOP/s (--peak-tflops)"));
    CHECK(meter.add_step(3e12).empty());
    CHECK(meter.peak().flops == 1e12);
    CHECK(std::isnan(meter.fraction(2e12)));
    CHECK(meter.fraction(5e11) == 0.5);
  }
}
