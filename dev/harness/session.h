// The state of one benchmark program.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dev/harness/options.h"
#include "dev/harness/report.h"
#include "dev/harness/roofs.h"

namespace llmc_dev {

// Checks cases and, on a GPU, times them. Has the flags, roofs and report of a program.
class Bench final : public OpRunner {
 public:
  explicit Bench(const Options& options)
      : options_(options), properties_(llmc::device_properties()), report_(options.json) {
    if (options.list) return;
    if (timing()) {
      roofs_ = measure_roofs(stream());
      // Reading at least four times the size of the L2 cache evicts earlier data. It also keeps the
      // GPU busy while the host queues the timed runs.
      flush_ = std::make_unique<DeviceArray<float>>(
          std::max<std::int64_t>(properties_.l2_bytes, 1 << 26), 1, Role::input, normal(906),
          stream());
      flush_pieces_ = Buffer<Digest>(kFlushThreads);
    }
    report_.device(properties_, timing(), roofs_);
  }

  const Options& options() const { return options_; }
  const llmc::DeviceProperties& properties() const { return properties_; }
  const Roofs& roofs() const { return roofs_; }
  Report& report() { return report_; }
  bool timing() const { return llmc::kCudaTarget && !options_.verify_only; }

  bool includes(ShapeSet set) const override {
    if (options_.shapes == BenchShapes::all) return true;
    return (set == ShapeSet::gpt2) == (options_.shapes == BenchShapes::gpt2);
  }
  bool includes(llmc::Dtype) const override { return true; }
  // With --list, prints the names of the selected lines and runs none.
  bool includes(const std::string& name) override {
    if (!options_.keeps(name)) return false;
    if (options_.list) std::printf("%s\n", name.c_str());
    return !options_.list;
  }
  void skipped(const std::string& name, const std::string& reason) override {
    report_.skipped(name, reason);
  }
  void run(OpCase& op_case) override;

  // Number of input sets for runs that move `bytes` each. A round over all sets moves four times
  // the size of the L2 cache. kMost limits the number, because every round begins with a flush
  // anyway.
  int num_sets(double bytes) const override {
    constexpr double kMost = 256;
    if (!timing()) return 1;
    const double sets = 4.0 * static_cast<double>(properties_.l2_bytes) / std::max(1.0, bytes);
    return static_cast<int>(std::clamp(std::ceil(sets), 1.0, kMost));
  }

  void flush() {
    llmc::launch_elementwise<1>(digest_kernel<float>, kFlushThreads, stream(), flush_pieces_.data(),
                                static_cast<const float*>(flush_->at(0)), flush_->size(),
                                kFlushThreads);
  }

 private:
  // Times of one variant.
  struct Timed {
    const Variant* variant;
    Line line;
    std::vector<double> microseconds = {};
    bool broken = false;  // it threw an error, and is not run again
  };

  static Line line_of(const OpInfo& info, const Variant& variant);
  Timed verified(OpCase& op_case, const Variant& variant);
  void verify_forms(OpCase& op_case, Timed& first);
  void time(OpCase& op_case, std::vector<Timed>& variants);
  void time_round(OpCase& op_case, Timed& timed, std::deque<llmc::Event>& starts,
                  std::deque<llmc::Event>& ends);

  static constexpr std::int64_t kFlushThreads = 1 << 17;
  Options options_;
  llmc::DeviceProperties properties_;
  Report report_;
  Roofs roofs_;
  std::unique_ptr<DeviceArray<float>> flush_;
  Buffer<Digest> flush_pieces_;
};

inline void Bench::run(OpCase& op_case) {
  std::vector<Timed> variants;
  for (const Variant& variant : op_case.variants()) variants.push_back(verified(op_case, variant));
  if (!variants.empty() && !variants.front().broken) verify_forms(op_case, variants.front());
  const bool timed = timing() && op_case.info().timed;
  if (timed) time(op_case, variants);
  const bool guards = op_case.guards_intact();
  for (Timed& one : variants) {
    if (!guards && one.line.ok()) {
      one.line.faults.push_back("this or another variant wrote outside an array");
    }
    if (timed && !one.broken) {
      one.line.timed = true;
      one.line.time = summarize(one.microseconds);
    }
    report_.result(one.line, roofs_);
  }
}

inline Line Bench::line_of(const OpInfo& info, const Variant& variant) {
  Line line;
  line.op = info.op;
  line.variant = variant.name;
  line.shape = info.shape;
  line.dtype = info.dtype;
  line.bytes = info.bytes;
  line.flops = info.flops;
  line.kept_bytes = variant.extras.kept_bytes;
  line.note = variant.extras.note;
  return line;
}

// If a variant cannot run (a library's plan, for example), only its own line fails.
inline Bench::Timed Bench::verified(OpCase& op_case, const Variant& variant) {
  Timed timed{&variant, line_of(op_case.info(), variant)};
  try {
    const Verdict verdict = op_case.verify(variant, 3);
    timed.line.worst = verdict.worst;
    timed.line.repeatable = verdict.repeatable;
    timed.line.faults = verdict.faults;
  } catch (const llmc::Error& error) {
    timed.broken = true;
    timed.line.faults.push_back(error.what());
  }
  return timed;
}

// Faults of other forms of the op are those of its first variant.
inline void Bench::verify_forms(OpCase& op_case, Timed& first) {
  try {
    for (const std::string& fault : op_case.verify_forms()) first.line.faults.push_back(fault);
  } catch (const llmc::Error& error) {
    first.line.faults.push_back(error.what());
  }
}

// Runs rounds until every variant has enough samples. In a round each variant runs once on every
// set. Samples of the first round, the warm-up, are dropped.
inline void Bench::time(OpCase& op_case, std::vector<Timed>& variants) {
  constexpr double kEnoughMilliseconds = 100;
  constexpr std::size_t kMinSamples = 20, kMaxSamples = 2000;
  const auto sets = static_cast<std::size_t>(op_case.num_sets());
  std::deque<llmc::Event> starts(sets), ends(sets);  // an Event cannot be moved
  for (bool warm_up = true, enough = false; !enough; warm_up = false) {
    enough = !warm_up;
    for (Timed& timed : variants) {
      if (timed.broken) continue;
      time_round(op_case, timed, starts, ends);
      if (warm_up) timed.microseconds.clear();
      double total = 0;
      for (const double x : timed.microseconds) total += 1e-3 * x;
      const std::size_t samples = timed.microseconds.size();
      enough = enough &&
               (samples >= kMaxSamples || (samples >= kMinSamples && total > kEnoughMilliseconds));
    }
  }
}

inline void Bench::time_round(OpCase& op_case, Timed& timed, std::deque<llmc::Event>& starts,
                              std::deque<llmc::Event>& ends) {
  const int sets = op_case.num_sets();
  for (int set = 0; set < sets; ++set) op_case.prepare(*timed.variant, set, op_case.restores());
  flush();
  for (int set = 0; set < sets; ++set) {
    const auto i = static_cast<std::size_t>(set);
    starts[i].record(stream());
    timed.variant->run(set);
    ends[i].record(stream());
  }
  stream().synchronize();
  for (int set = 0; set < sets; ++set) {
    const auto i = static_cast<std::size_t>(set);
    timed.microseconds.push_back(1e3 * llmc::milliseconds_between(starts[i], ends[i]));
  }
}

}  // namespace llmc_dev
