// The peak FLOP/s that MFU is measured against, for simulated devices.
#include <doctest/doctest.h>

#include <string>

#include "llmc/device/peak.h"

using namespace llmc;

namespace {

struct SimulatedDevice {
  std::string name;  // for messages: the peak must not depend on it
  int major, minor, processors;
  double highest_clock_mhz;
  double half, tf32, fp32;  // TFLOP/s; 0: not in the table
};

// Half precision and TF32 are those of NVIDIA's data sheets (dense, fp32 sums), which round to
// three digits. fp32 is at the highest clock.
const SimulatedDevice kDevices[] = {
    {"A100 SXM", 8, 0, 108, 1410, 312, 156, 19.5},
    {"A100, slice of 14 multiprocessors", 8, 0, 14, 1410, 40.4, 20.2, 2.53},
    {"A30", 8, 0, 56, 1440, 165, 82.6, 10.3},
    {"H100 SXM", 9, 0, 132, 1980, 989.4, 494.7, 66.9},
    {"H100 PCIe", 9, 0, 114, 1755, 756, 378, 51.2},
    {"H200", 9, 0, 132, 1980, 989.4, 494.7, 66.9},
    {"GH200 with a lower highest clock", 9, 0, 132, 1500, 811, 405.5, 50.7},
    {"B200", 10, 0, 148, 1965, 2250, 1125, 74.4},
    {"RTX 3090", 8, 6, 82, 1695, 0, 0, 0},
    {"L40S", 8, 9, 142, 2520, 0, 0, 0},
    {"RTX 5090", 12, 0, 170, 2407, 0, 0, 0},
    {"host CPU", 0, 0, 2, 0, 0, 0, 0},
};

}  // namespace

TEST_SUITE("peak") {
  TEST_CASE("the peak of each of 12 devices matches its data sheet") {
    for (const SimulatedDevice& simulated : kDevices) {
      CAPTURE(simulated.name);
      DeviceProperties device;
      device.name = simulated.name;
      device.compute_major = simulated.major;
      device.compute_minor = simulated.minor;
      device.processors = simulated.processors;
      device.clock_hz = 1e6 * simulated.highest_clock_mhz;
      const auto teraflops = [&](Dtype dtype, bool tf32) {
        return 1e-12 * data_sheet_peak(device, dtype, tf32).flops();
      };
      constexpr double kThreeDigits = 5e-3;
      CHECK(teraflops(Dtype::bf16, false) == doctest::Approx(simulated.half).epsilon(kThreeDigits));
      CHECK(teraflops(Dtype::fp16, true) == doctest::Approx(simulated.half).epsilon(kThreeDigits));
      CHECK(teraflops(Dtype::fp32, true) == doctest::Approx(simulated.tf32).epsilon(kThreeDigits));
      CHECK(teraflops(Dtype::fp32, false) == doctest::Approx(simulated.fp32).epsilon(kThreeDigits));
    }
  }

  TEST_CASE("the peak of an H200 is 989 TFLOP/s and its text shows the factors") {
    DeviceProperties h200;
    h200.compute_major = 9;
    h200.processors = 132;
    h200.clock_hz = 1.98e9;
    const DataSheetPeak peak = data_sheet_peak(h200, Dtype::bf16, false);
    CHECK(peak.flops() == doctest::Approx(989.4e12).epsilon(1e-4));
    CHECK(peak.text() == "132 SMs x 4096 FLOP per clock x 1.83 GHz");
  }
}
