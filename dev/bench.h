// Harness for benchmarks of ops. dev/bench_NAME.cu describes cases (an op, a shape, a dtype), each
// with variants that compute the same result. This header checks, repeats and times them. README.md
// in this directory explains the output and how to write a benchmark.
#pragma once

#include <cstdio>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "dev/harness/session.h"
#include "llmc/device/select.h"

namespace llmc_bench {

using llmc::kDtypeOf;
using llmc::make_tensor;

struct CaseInfo {
  std::string op, shape;
  llmc::Dtype dtype = llmc::Dtype::fp32;
  std::vector<std::string> variants = {"used"};
  double bytes = 0, flops = 0;  // minimum per run, whatever the variant really does
  bool timed = true;            // false: check results only
};

// Properties that only a few variants have.
struct Extras {
  double kept_bytes = 0;                      // bytes held until the backward pass, plus scratch
  std::function<void(int set)> prepare = {};  // called before each run, not timed
  std::string note = {};                      // printed at the end of the line
};

// One op at one shape in one dtype.
class Case {
 public:
  Case(Bench& bench, CaseInfo info)
      : bench_(bench), info_(std::move(info)), sets_(bench.sets_for(info_.bytes)) {
    for (const std::string& variant : info_.variants) {
      const std::string name = name_of(variant);
      if (!bench.options().keeps(name)) continue;
      selected_.push_back(variant);
      if (bench.options().list) std::printf("%s\n", name.c_str());
    }
    if (bench.options().list) selected_.clear();
    // The bytes that one run moves approximate the memory that one set needs.
    const auto all = std::exchange(selected_, {});
    for (const std::string& variant : all) {
      if (has_memory(variant, info_.bytes * sets_)) selected_.push_back(variant);
    }
  }

  // Whether any variant is selected. If not, return before allocating memory and running the
  // oracle.
  bool is_selected() const { return !selected_.empty(); }
  bool is_selected(const std::string& variant) const {
    return std::find(selected_.begin(), selected_.end(), variant) != selected_.end();
  }

  // n elements per set. Inputs and outputs both lie between guards.
  template <class T>
  DeviceArray<T>& input(std::int64_t n, Fill fill) {
    return add<T>(n, Role::input, fill);
  }
  template <class T>
  DeviceArray<T>& output(std::int64_t n, Fill fill = kUnwritten) {
    return add<T>(n, Role::output, fill);
  }

  // For an op that works in place: resets the outputs before every timed round.
  void restore_each_round() { restore_ = true; }

  // `run(set)` launches the op on set number `set`.
  void variant(const std::string& name, std::function<void(int set)> run, Extras extras = {}) {
    if (is_selected(name)) variants_.push_back({name, std::move(run), std::move(extras), {}});
  }

  // Returns whether `variant` is selected and `bytes` more of device memory are free. If memory is
  // short, reports it and drops the variant.
  bool fits(const std::string& variant, double bytes) {
    if (is_selected(variant) && !has_memory(variant, bytes)) std::erase(selected_, variant);
    return is_selected(variant);
  }

  // Drops the selected ones of `variants`; one line of the report gives the reason.
  void leave_out(const std::vector<std::string>& variants, const std::string& why) {
    std::vector<std::string> dropped;
    for (const std::string& variant : variants) {
      if (std::erase(selected_, variant) > 0) dropped.push_back(variant);
    }
    if (dropped.empty()) return;
    const bool one = dropped.size() == 1;
    bench_.report().skipped(name_of(one ? dropped[0] : dropped.front() + "..." + dropped.back()),
                            why);
  }

  // Checks all variants, then times them in turns. `check()` compares the outputs of the first set
  // with the oracle. If tolerances depend on the variant, it is `check(variant_name)`.
  template <class Check>
  void finish(const Check& check) {
    finish_by_name([&]([[maybe_unused]] const std::string& variant) {
      if constexpr (std::is_invocable_v<Check>) {
        return check();
      } else {
        return check(variant);
      }
    });
  }

 private:
  using NamedCheck = std::function<std::vector<Comparison>(const std::string& variant)>;

  void finish_by_name(const NamedCheck& check) {
    std::vector<Line> lines;
    for (Variant& variant : variants_) lines.push_back(verified_or_fault(variant, check));
    const bool timed = bench_.timing() && info_.timed;
    if (timed) time();
    const bool guards = guards_intact();
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (!guards && lines[i].ok())
        lines[i].faults.push_back("this or another variant wrote outside an array");
      if (timed && !variants_[i].broken) {
        lines[i].timed = true;
        lines[i].time = summarize(variants_[i].microseconds);
      }
      bench_.report().result(lines[i], bench_.roofs());
    }
  }

  struct Variant {
    std::string name;
    std::function<void(int)> run;
    Extras extras;
    std::vector<double> microseconds;
    bool broken = false;  // it threw an error, and is not run again
  };

  template <class T>
  DeviceArray<T>& add(std::int64_t n, Role role, Fill fill) {
    auto array = std::make_unique<DeviceArray<T>>(n, sets_, role, fill, bench_.stream());
    DeviceArray<T>& added = *array;
    arrays_.push_back(std::move(array));
    return added;
  }

  bool has_memory(const std::string& variant, double bytes) {
    const auto free = static_cast<double>(llmc::device_properties().free_memory);
    if (bytes < 0.9 * free) return true;
    char why[96];
    std::snprintf(why, sizeof why, "needs %.1f GB of device memory, %.1f are free", bytes * 1e-9,
                  free * 1e-9);
    bench_.report().skipped(name_of(variant), why);
    return false;
  }

  std::string name_of(const std::string& variant) const {
    return info_.op + "/" + variant + " " + info_.shape + " " + llmc::dtype_name(info_.dtype);
  }

  void reset_outputs(int set) {
    for (const auto& array : arrays_) {
      if (array->role() == Role::output) array->reset(set);
    }
  }

  // Checks the guards of all sets.
  bool guards_intact() const {
    for (const auto& array : arrays_) {
      for (int set = 0; set < sets_; ++set) {
        if (!array->guards_intact(set)) return false;
      }
    }
    return true;
  }

  std::vector<Digest> output_digests() const {
    std::vector<Digest> all;
    for (const auto& array : arrays_) {
      if (array->role() == Role::output) all.push_back(array->digest(0));
    }
    return all;
  }

  void run_afresh(const Variant& variant) {
    reset_outputs(0);
    if (variant.extras.prepare) variant.extras.prepare(0);
    variant.run(0);
    bench_.stream().synchronize();
  }

  // If a variant cannot run (a library's plan, for example), only its own line fails.
  Line verified_or_fault(Variant& variant, const NamedCheck& check) {
    Line line = described(variant);
    try {
      verify(line, variant, check);
    } catch (const llmc::Error& error) {
      variant.broken = true;
      line.faults.push_back(error.what());
    }
    return line;
  }

  Line described(const Variant& variant) const {
    Line line;
    line.op = info_.op;
    line.variant = variant.name;
    line.shape = info_.shape;
    line.dtype = info_.dtype;
    line.bytes = info_.bytes;
    line.flops = info_.flops;
    line.kept_bytes = variant.extras.kept_bytes;
    line.note = variant.extras.note;
    return line;
  }

  void verify(Line& line, const Variant& variant, const NamedCheck& check) {
    // Restores the guards, so that a fault of one variant is not reported for the next one.
    for (const auto& array : arrays_) array->restore_guards(0);
    run_afresh(variant);
    compare_with_oracle(line, check(variant.name));
    const std::vector<Digest> first = output_digests();
    for (const Digest& digest : first) {
      if (digest.not_finite == 0) continue;
      line.faults.push_back(std::to_string(digest.not_finite) +
                            " numbers of an output are not finite, or were not written");
    }
    line.repeatable = true;
    constexpr int kRepeats = 3;
    for (int i = 0; i < kRepeats; ++i) {
      run_afresh(variant);
      line.repeatable = line.repeatable && output_digests() == first;
    }
    if (!line.repeatable) line.faults.push_back("runs differ in their bits");
    for (const auto& array : arrays_) {
      if (!array->guards_intact(0)) line.faults.push_back("wrote outside an array");
    }
  }

  static void compare_with_oracle(Line& line, const std::vector<Comparison>& outputs) {
    double worst = -1;
    for (const Comparison& output : outputs) {
      const double ratio = output.rel_l2 == 0 ? 0 : output.rel_l2 / output.allowed;
      if (!(ratio <= worst) && !std::isnan(worst)) {
        worst = ratio;
        line.worst = output;
      }
      if (!output.ok()) {
        char text[128];
        std::snprintf(text, sizeof text, "%s: relative L2 error %.2e, allowed %.2e",
                      output.name.c_str(), output.rel_l2, output.allowed);
        line.faults.push_back(text);
      }
    }
  }

  // Runs rounds until every variant has enough samples. In a round each variant runs once on every
  // set. Samples of the first round, the warm-up, are dropped.
  void time() {
    constexpr double kEnoughMilliseconds = 100;
    constexpr std::size_t kFewest = 20, kMost = 2000;
    std::deque<llmc::Event> starts(sets_), ends(sets_);  // an Event cannot be moved
    for (bool warm_up = true, enough = false; !enough; warm_up = false) {
      enough = !warm_up;
      for (Variant& variant : variants_) {
        if (variant.broken) continue;
        time_round(variant, starts, ends);
        if (warm_up) variant.microseconds.clear();
        double total = 0;
        for (const double x : variant.microseconds) total += 1e-3 * x;
        const std::size_t samples = variant.microseconds.size();
        enough =
            enough && (samples >= kMost || (samples >= kFewest && total > kEnoughMilliseconds));
      }
    }
  }

  void time_round(Variant& variant, std::deque<llmc::Event>& starts,
                  std::deque<llmc::Event>& ends) {
    Stream& stream = bench_.stream();
    for (int set = 0; set < sets_; ++set) {
      if (restore_) reset_outputs(set);
      if (variant.extras.prepare) variant.extras.prepare(set);
    }
    bench_.flush();
    for (int set = 0; set < sets_; ++set) {
      starts[set].record(stream);
      variant.run(set);
      ends[set].record(stream);
    }
    stream.synchronize();
    for (int set = 0; set < sets_; ++set) {
      variant.microseconds.push_back(1e3 * llmc::milliseconds_between(starts[set], ends[set]));
    }
  }

  Bench& bench_;
  CaseInfo info_;
  int sets_;
  bool restore_ = false;
  std::vector<std::string> selected_;
  std::vector<std::unique_ptr<AnyArray>> arrays_;
  std::vector<Variant> variants_;
};

// Calls f.template operator()<T>() for each dtype. The fp16 kernels are the bf16 kernels with other
// conversions and another mma, so one of GPT-2's widths is enough for them.
template <class F>
void for_each_dtype(bool with_fp16, F&& f) {
  f.template operator()<float>();
  f.template operator()<bf16>();
  if (with_fp16) f.template operator()<fp16>();
}

// by(4096, 768) returns "4096x768".
inline std::string by(std::int64_t a, std::int64_t b) {
  return std::to_string(a) + "x" + std::to_string(b);
}

// main() of a benchmark. A CUDA build without a GPU exec()s the host build next to it.
template <class Body>
int bench_main(int argc, char** argv, const char* about, const Body& body) {
  const std::string program = argc > 0 ? argv[0] : "bench";
  try {
    const Options options =
        parse_options(argc, argv, llmc::kCudaTarget ? ShapeSet::gpt2 : ShapeSet::small);
    if (options.help) {
      std::printf("%s: %s\n%s", program.c_str(), about, kOptionsHelp);
      return 0;
    }
    llmc::select_device("auto", argv);
    Bench bench(options);
    body(bench);
    if (options.list) return 0;
    if (bench.report().empty()) {
      throw UsageError("--filter matches no line; --list prints all lines");
    }
    bench.report().finish();
    return bench.report().failed() == 0 ? 0 : 1;
  } catch (const UsageError& error) {
    std::fprintf(stderr, "%s: %s\n", program.c_str(), error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", program.c_str(), error.what());
    return 1;
  }
}

}  // namespace llmc_bench
