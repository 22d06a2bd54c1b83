// The state of one benchmark program.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>

#include "dev/harness/arrays.h"
#include "dev/harness/options.h"
#include "dev/harness/report.h"
#include "dev/harness/roofs.h"

namespace llmc_bench {

// Flags, stream, roofs and report of a program.
class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options), properties_(llmc::device_properties()), report_(options.json) {
    if (options.list) return;
    if (timing()) {
      roofs_ = measure_roofs(stream_);
      // Reading at least four times the size of the L2 cache evicts earlier data. It also keeps the
      // GPU busy while the host queues the timed runs.
      flush_ = std::make_unique<DeviceArray<float>>(
          std::max<std::int64_t>(properties_.l2_bytes, 1 << 26), 1, Role::input, normal(906),
          stream_);
      flush_pieces_ = Buffer<Digest>(kFlushThreads);
    }
    report_.device(properties_, timing(), roofs_);
  }

  const Options& options() const { return options_; }
  const llmc::DeviceProperties& properties() const { return properties_; }
  const Roofs& roofs() const { return roofs_; }
  Report& report() { return report_; }
  Stream& stream() { return stream_; }
  bool timing() const { return llmc::kCudaTarget && !options_.verify_only; }

  // Whether --shapes selects the shapes of `set`.
  bool includes(ShapeSet set) const {
    return options_.shapes == ShapeSet::all || options_.shapes == set;
  }

  // Number of input sets for runs that move `bytes` each. A round over all sets moves four times
  // the size of the L2 cache. kMost limits the number, because every round begins with a flush
  // anyway.
  int sets_for(double bytes) const {
    constexpr double kMost = 256;
    if (!timing()) return 1;
    const double sets = 4.0 * static_cast<double>(properties_.l2_bytes) / std::max(1.0, bytes);
    return static_cast<int>(std::clamp(std::ceil(sets), 1.0, kMost));
  }

  void flush() {
    llmc::launch_elementwise<1>(digest_kernel<float>, kFlushThreads, stream_, flush_pieces_.data(),
                                static_cast<const float*>(flush_->at(0)), flush_->size(),
                                kFlushThreads);
  }

 private:
  static constexpr std::int64_t kFlushThreads = 1 << 17;
  Options options_;
  llmc::DeviceProperties properties_;
  Report report_;
  Stream stream_;
  Roofs roofs_;
  std::unique_ptr<DeviceArray<float>> flush_;
  Buffer<Digest> flush_pieces_;
};

}  // namespace llmc_bench
