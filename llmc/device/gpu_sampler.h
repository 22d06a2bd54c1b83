// Reads the GPU's sensors every 100 ms in its own thread. A training step never waits for NVML,
// whose answers may take longer than a kernel.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "llmc/device/nvml.h"

namespace llmc {

class GpuSampler {
 public:
  explicit GpuSampler(std::unique_ptr<const Nvml> nvml)
      : nvml_(std::move(nvml)), thread_([this] { sample_until_stopped(); }) {}
  ~GpuSampler() {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }
  GpuSampler(const GpuSampler&) = delete;
  GpuSampler& operator=(const GpuSampler&) = delete;

  // Returns the means over the samples since the last call, or the latest sample's values if there
  // are no new ones.
  GpuUsage take() {
    const std::lock_guard lock(mutex_);
    GpuUsage usage{utilisation_.take(), power_.take(), memory_.take(), temperature_.take()};
    return usage;
  }

 private:
  static constexpr auto kInterval = std::chrono::milliseconds(100);

  class Mean {
   public:
    void add(std::optional<double> value) {
      last_ = value;
      if (!value) return;
      sum_ += *value;
      ++count_;
    }
    std::optional<double> take() {
      const auto mean = count_ > 0 ? std::optional(sum_ / count_) : last_;
      sum_ = 0;
      count_ = 0;
      return mean;
    }

   private:
    double sum_ = 0;
    int count_ = 0;
    std::optional<double> last_;
  };

  void sample_until_stopped() {
    std::unique_lock lock(mutex_);
    while (!stopped_) {
      lock.unlock();
      const GpuUsage usage = nvml_->read();
      lock.lock();
      utilisation_.add(usage.utilisation);
      power_.add(usage.power);
      memory_.add(usage.memory);
      temperature_.add(usage.temperature);
      wake_.wait_for(lock, kInterval, [this] { return stopped_; });
    }
  }

  std::unique_ptr<const Nvml> nvml_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopped_ = false;
  Mean utilisation_, power_, memory_, temperature_;
  std::thread thread_;  // declared last: it uses all other members
};

}  // namespace llmc
