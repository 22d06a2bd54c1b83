// An op described once. A case is an op at one shape in one dtype: its arrays, its variants, the
// oracle's result, tolerances, bytes and FLOP. dev/ops/NAME.h has the cases of an op, and an
// OpRunner runs them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "dev/harness/arrays.h"
#include "dev/harness/op_runner.h"
#include "llmc/device/device.h"
#include "test/oracle/errors.h"

namespace llmc_dev {

using llmc::bf16;
using llmc::fp16;
using llmc::kDtypeOf;
using llmc::make_tensor;
using llmc::oracle::kRounding;
using llmc::oracle::tolerance;

struct OpInfo {
  std::string op, shape;
  llmc::Dtype dtype = llmc::Dtype::fp32;
  std::vector<std::string> variants = {"used"};
  double bytes = 0, flops = 0;  // minimum per run, whatever the variant really does
  bool timed = true;            // false: check results only

  std::string name_of(const std::string& variant) const {
    return op + "/" + variant + " " + shape + " " + llmc::dtype_name(dtype);
  }
};

// Properties that only a few variants have.
struct Extras {
  double kept_bytes = 0;                      // bytes held until the backward pass, plus scratch
  std::function<void(int set)> prepare = {};  // called before each run, not timed
  std::string note = {};                      // printed at the end of the line
};

struct Variant {
  std::string name;
  std::function<void(int set)> run;
  Extras extras;
};

// Another way to call the op, whose results must have the bits of the first variant's.
struct Form {
  std::string name;
  std::function<void()> run;        // on the first set
  const AnyArray* input = nullptr;  // overwritten by what the first variant writes to `output`
  const AnyArray* output = nullptr;
  std::vector<const AnyArray*> frozen;  // outputs that must stay unchanged
};

// One output compared with the oracle.
struct Comparison {
  std::string name;
  double rel_l2 = 0, max_abs = 0;
  double allowed = 0;                            // limit of rel_l2
  bool ok() const { return rel_l2 <= allowed; }  // false for NaN
};

inline Comparison compare(std::string name, const std::vector<double>& actual,
                          const std::vector<double>& expected, double allowed) {
  llmc::require(actual.size() == expected.size(),
                name + ": the oracle's result has another length");
  return {std::move(name), llmc::oracle::relative_l2(actual, expected),
          llmc::oracle::max_abs_error(actual, expected), allowed};
}

// The result of checking one variant.
struct Verdict {
  Comparison worst;  // the output with the largest rel_l2 / allowed
  bool repeatable = false;
  std::vector<std::string> faults;  // empty: everything is right
};

class OpCase {
 public:
  OpCase(OpRunner& runner, OpInfo info)
      : runner_(runner), info_(std::move(info)), num_sets_(runner.num_sets(info_.bytes)) {
    if (!runner.includes(info_.dtype)) return;
    for (const std::string& variant : info_.variants) {
      // The bytes that one run moves approximate the memory that one set needs.
      if (runner.includes(info_.name_of(variant)) && has_memory(variant, info_.bytes * num_sets_)) {
        selected_.push_back(variant);
      }
    }
  }

  // Whether any variant, or this one, is selected. If none is, return before allocating memory and
  // running the oracle.
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

  // For an op that changes its outputs in place: resets them before every timed round.
  void restore_each_round() { restores_ = true; }

  // `run(set)` launches the op on set number `set`.
  void variant(const std::string& name, std::function<void(int set)> run, Extras extras = {}) {
    if (is_selected(name)) variants_.push_back({name, std::move(run), std::move(extras)});
  }

  // `run()` launches the op on the first set so that it overwrites `input`, which is called `name`,
  // with what the first variant writes to `output`.
  void in_place(const std::string& name, const AnyArray& input, const AnyArray& output,
                std::function<void()> run) {
    forms_.push_back({"in place of " + name, std::move(run), &input, &output, {}});
  }

  // `run()` launches the op on the first set without the outputs `frozen`, which `name` lists.
  void without(const std::string& name, std::vector<const AnyArray*> frozen,
               std::function<void()> run) {
    forms_.push_back({"without " + name, std::move(run), nullptr, nullptr, std::move(frozen)});
  }

  // Returns whether `variant` is selected and `bytes` more of device memory are free. If memory is
  // short, reports it and drops the variant.
  bool fits(const std::string& variant, double bytes) {
    if (is_selected(variant) && !has_memory(variant, bytes)) std::erase(selected_, variant);
    return is_selected(variant);
  }

  // Drops the selected ones of `variants`; one line of the report gives the reason.
  void leave_out(const std::vector<std::string>& variants, const std::string& reason) {
    std::vector<std::string> dropped;
    for (const std::string& variant : variants) {
      if (std::erase(selected_, variant) > 0) dropped.push_back(variant);
    }
    if (dropped.empty()) return;
    const bool one = dropped.size() == 1;
    runner_.skipped(info_.name_of(one ? dropped[0] : dropped.front() + "..." + dropped.back()),
                    reason);
  }

  // Runs the case. `check()` compares the outputs of the first set with the oracle. If tolerances
  // depend on the variant, it is `check(variant_name)`.
  template <class Check>
  void finish(const Check& check) {
    check_ = [&check]([[maybe_unused]] const std::string& variant) {
      if constexpr (std::is_invocable_v<Check>) {
        return check();
      } else {
        return check(variant);
      }
    };
    runner_.run(*this);
  }

  // ---- for runners ----

  const OpInfo& info() const { return info_; }
  int num_sets() const { return num_sets_; }
  bool restores() const { return restores_; }
  const std::vector<Variant>& variants() const { return variants_; }

  // Resets the outputs of a set, and whatever a variant prepares.
  void prepare(const Variant& variant, int set, bool reset) {
    if (reset) reset_outputs(set);
    if (variant.extras.prepare) variant.extras.prepare(set);
  }

  // Runs a variant, compares it with the oracle, runs it `repeats` times more and compares the
  // bits.
  Verdict verify(const Variant& variant, int repeats);

  // Runs the first variant and all other forms of the op, if the first variant is selected. Returns
  // what is wrong.
  std::vector<std::string> verify_forms();

  // Checks the guards of all sets.
  bool guards_intact() const {
    for (int set = 0; set < num_sets_; ++set) {
      if (!guards_intact(set)) return false;
    }
    return true;
  }

 private:
  template <class T>
  DeviceArray<T>& add(std::int64_t n, Role role, Fill fill) {
    auto array = std::make_unique<DeviceArray<T>>(n, num_sets_, role, fill, runner_.stream());
    DeviceArray<T>& reference = *array;
    arrays_.push_back(std::move(array));
    return reference;
  }

  bool has_memory(const std::string& variant, double bytes);

  void reset_outputs(int set) {
    for (const auto& array : arrays_) {
      if (array->role() == Role::output) array->reset(set);
    }
  }

  bool guards_intact(int set) const {
    return std::ranges::all_of(arrays_,
                               [&](const auto& array) { return array->guards_intact(set); });
  }

  std::vector<Digest> output_digests() const {
    std::vector<Digest> all;
    for (const auto& array : arrays_) {
      if (array->role() == Role::output) all.push_back(array->digest(0));
    }
    return all;
  }

  void reset_and_run(const Variant& variant) {
    prepare(variant, 0, true);
    variant.run(0);
    runner_.stream().synchronize();
  }

  OpRunner& runner_;
  OpInfo info_;
  int num_sets_;
  bool restores_ = false;
  std::vector<std::string> selected_;
  std::vector<std::unique_ptr<AnyArray>> arrays_;
  std::vector<Variant> variants_;
  std::vector<Form> forms_;
  std::function<std::vector<Comparison>(const std::string& variant)> check_;
};

inline bool OpCase::has_memory(const std::string& variant, double bytes) {
  const auto free = static_cast<double>(llmc::device_properties().free_memory);
  if (bytes < 0.9 * free) return true;
  char reason[96];
  std::snprintf(reason, sizeof reason, "needs %.1f GB of device memory, %.1f are free",
                bytes * 1e-9, free * 1e-9);
  runner_.skipped(info_.name_of(variant), reason);
  return false;
}

// Adds a fault for each output beyond its tolerance, and sets the worst one.
inline void judge(Verdict& verdict, const std::vector<Comparison>& outputs) {
  double worst = -1;
  for (const Comparison& output : outputs) {
    const double ratio = output.rel_l2 == 0 ? 0 : output.rel_l2 / output.allowed;
    if (!(ratio <= worst) && !std::isnan(worst)) {
      worst = ratio;
      verdict.worst = output;
    }
    if (output.ok()) continue;
    char text[160];
    std::snprintf(text, sizeof text, "%s: relative L2 error %.2e, allowed %.2e",
                  output.name.c_str(), output.rel_l2, output.allowed);
    verdict.faults.push_back(text);
  }
}

inline Verdict OpCase::verify(const Variant& variant, int repeats) {
  Verdict verdict;
  // Restores the guards, so that a fault of one variant is not reported for the next one.
  for (const auto& array : arrays_) array->restore_guards(0);
  reset_and_run(variant);
  judge(verdict, check_(variant.name));
  const std::vector<Digest> first = output_digests();
  for (const Digest& digest : first) {
    if (digest.not_finite == 0) continue;
    verdict.faults.push_back(std::to_string(digest.not_finite) +
                             " numbers of an output are not finite, or were not written");
  }
  verdict.repeatable = true;
  for (int i = 0; i < repeats; ++i) {
    reset_and_run(variant);
    verdict.repeatable = verdict.repeatable && output_digests() == first;
  }
  if (!verdict.repeatable) verdict.faults.push_back("runs differ in their bits");
  if (!guards_intact(0)) verdict.faults.push_back("wrote outside an array");
  return verdict;
}

inline std::vector<std::string> OpCase::verify_forms() {
  std::vector<std::string> faults;
  if (forms_.empty() || variants_.empty() || variants_[0].name != info_.variants[0]) return faults;
  const auto digests_after = [&](const std::function<void()>& run) {
    std::map<const AnyArray*, Digest> digests;
    for (const auto& array : arrays_) {
      array->reset(0);
      array->restore_guards(0);
    }
    run();
    for (const auto& array : arrays_) digests[array.get()] = array->digest(0);
    return digests;
  };
  auto before = digests_after([] {});
  auto expected = digests_after([&] {
    prepare(variants_[0], 0, false);
    variants_[0].run(0);
  });
  for (const Form& form : forms_) {
    auto actual = digests_after(form.run);
    for (const auto& array : arrays_) {
      const AnyArray* const a = array.get();
      if (a->role() == Role::input && a != form.input) continue;
      if (a == form.output) continue;
      const bool is_frozen = std::ranges::count(form.frozen, a) > 0;
      const Digest& right = is_frozen ? before[a] : expected[a == form.input ? form.output : a];
      if (actual[a] != right) faults.push_back(form.name + ": an output has other bits");
    }
    if (!guards_intact(0)) faults.push_back(form.name + ": wrote outside an array");
  }
  for (const auto& array : arrays_) array->reset(0);
  return faults;
}

// by(4096, 768) returns "4096x768".
inline std::string by(std::int64_t a, std::int64_t b) {
  return std::to_string(a) + "x" + std::to_string(b);
}

}  // namespace llmc_dev
