// Mean power of a GPU during some work, for its energy: watts times seconds.
//
// The driver updates its energy counter only every 20 to 100 ms, so the counter's difference over a
// stretch of work is wrong by up to one interval at each end. The power between the first and the
// last update in the stretch has no such error.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <stop_token>
#include <thread>

#include "llmc/device/nvml.h"

namespace llmc {

// Power from a counter of energy that is read more often than it is updated.
class CounterPower {
 public:
  // `joules` is the counter at `seconds`, a time that never decreases.
  void add(double seconds, double joules) {
    const bool is_update = latest_ && joules != *latest_;
    latest_ = joules;
    if (!is_update) return;
    last_ = {seconds, joules};
    if (!first_) first_ = last_;
  }

  // Mean watts between the first and the last update; no value before the second update.
  std::optional<double> watts() const {
    if (!first_ || last_->seconds <= first_->seconds) return {};
    return (last_->joules - first_->joules) / (last_->seconds - first_->seconds);
  }

 private:
  struct Update {
    double seconds, joules;
  };
  std::optional<double> latest_;
  std::optional<Update> first_, last_;
};

// The sensor that a mean power is from.
enum class PowerSource { energy_counter, power_readings };

inline const char* power_source_name(PowerSource source) {
  return source == PowerSource::energy_counter ? "energy counter" : "power readings";
}

struct MeanPower {
  double watts = 0;
  PowerSource source = PowerSource::energy_counter;
};

// Calls work() once, which should take at least half a second, while another thread reads the
// energy counter or, if the GPU has none, its power. No value if neither sensor works, or if the
// counter is not updated twice during work().
inline std::optional<MeanPower> mean_power_during(const Nvml& nvml,
                                                  const std::function<void()>& work) {
  using Clock = std::chrono::steady_clock;
  constexpr auto kInterval = std::chrono::milliseconds(5);
  const bool has_counter = nvml.energy().has_value();
  CounterPower counter;
  double sum = 0;
  int count = 0;
  {
    const auto begin = Clock::now();
    const std::jthread reader([&](const std::stop_token& stop) {
      for (; !stop.stop_requested(); std::this_thread::sleep_for(kInterval)) {
        const auto joules = has_counter ? nvml.energy() : std::nullopt;
        const auto watts = has_counter ? std::nullopt : nvml.power();
        const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
        if (joules) counter.add(seconds, *joules);
        if (watts) sum += *watts, ++count;
      }
    });
    work();
  }  // the reader has stopped
  if (const auto watts = counter.watts()) return MeanPower{*watts, PowerSource::energy_counter};
  if (count > 0) return MeanPower{sum / count, PowerSource::power_readings};
  return {};
}

}  // namespace llmc
