// An OpRunner runs the cases of ops: tests check all of them, benchmarks also time them, and the
// launch report records their launches.
#pragma once

#include <string>
#include <type_traits>
#include <vector>

#include "llmc/device/device.h"

namespace llmc_dev {

// tiny: the smallest shapes that reach every branch, for sanitizers; small: more odd shapes that
// fill no tile; gpt2: GPT-2 124M and 1558M.
enum class ShapeSet { tiny, small, gpt2 };

// The shapes of an op's cases.
template <class Shape>
struct Shapes {
  std::vector<Shape> tiny, small, gpt2;
};

class OpCase;

class OpRunner {
 public:
  virtual ~OpRunner() = default;
  // Whether cases of these shapes, or of this dtype, run.
  virtual bool includes(ShapeSet set) const = 0;
  virtual bool includes(llmc::Dtype dtype) const = 0;
  // Whether a variant runs; `name` is OpInfo::name_of().
  virtual bool includes(const std::string& name) = 0;
  // Number of copies of the arrays of a case whose run moves `bytes`.
  virtual int num_sets(double bytes) const = 0;
  virtual void skipped(const std::string& name, const std::string& reason) = 0;
  virtual void run(OpCase& op_case) = 0;

  llmc::Stream& stream() { return stream_; }

  // The shapes that run.
  template <class Shape>
  std::vector<Shape> select(const Shapes<Shape>& shapes) const {
    std::vector<Shape> selected;
    const auto add = [&](ShapeSet set, const std::vector<Shape>& more) {
      if (includes(set)) selected.insert(selected.end(), more.begin(), more.end());
    };
    add(ShapeSet::tiny, shapes.tiny);
    add(ShapeSet::small, shapes.small);
    add(ShapeSet::gpt2, shapes.gpt2);
    return selected;
  }

 private:
  llmc::Stream stream_;
};

// Calls f.template operator()<T>() for each dtype that runs. The fp16 kernels are the bf16 kernels
// with other conversions and another mma, so one of GPT-2's widths is enough for them.
template <class F>
void for_each_dtype(const OpRunner& runner, bool with_fp16, F&& f) {
  if (runner.includes(llmc::Dtype::fp32)) f.template operator()<float>();
  if (runner.includes(llmc::Dtype::bf16)) f.template operator()<llmc::bf16>();
  if (with_fp16 && runner.includes(llmc::Dtype::fp16)) f.template operator()<llmc::fp16>();
}

}  // namespace llmc_dev
