// Reports of what layers compute, for a check of every operation (train/watch/finite_check.h).
// Without an observer, a report only tests a pointer.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>

#include "llmc/device/device.h"

namespace llmc {

// The layer of an operation: its parameter, or the number of its block.
struct LayerName {
  LayerName(const std::string& parameter) : parameter(&parameter) {}
  LayerName(std::int64_t block) : block(block) {}

  // "h.3.mlp.c_fc" for the parameter h.3.mlp.c_fc.weight; "h.3" for a block.
  std::string text() const {
    if (parameter == nullptr) return "h." + std::to_string(block);
    return parameter->substr(0, parameter->rfind('.'));
  }

  const std::string* parameter = nullptr;
  std::int64_t block = 0;
};

// The values that an operation has written.
struct OperationOutput {
  const char* operation;
  LayerName layer;
  const void* values;  // in device memory
  Dtype dtype;
  std::int64_t size;
  // Rows of the batch, of size / rows values each; 0: not by rows. `first_row`: the first of them;
  // -1: they are the rank's own rows, or all rows.
  std::int64_t rows = 0, first_row = -1;
};

class OutputObserver {
 public:
  virtual ~OutputObserver() = default;

  // A forward or a backward pass begins.
  virtual void begin_pass(bool is_backward) = 0;
  // The work of the operation is in the stream. Outputs come in the order of the computation.
  virtual void output(const OperationOutput& output, Stream& stream) = 0;
};

class OutputReports {
 public:
  // Null disables the reports. The observer must outlive the reports to it.
  void observe(OutputObserver* observer) { observer_ = observer; }

  void begin_pass(bool is_backward) const {
    if (observer_ != nullptr) observer_->begin_pass(is_backward);
  }

  // `out` has rows of the batch (OperationOutput::first_row).
  template <class X, int R>
  void rows(const char* operation, const LayerName& layer, const Tensor<X, R>& out, Stream& stream,
            std::int64_t first_row = -1) const {
    if (observer_ == nullptr) return;
    const std::int64_t columns = R == 1 ? 1 : std::max<std::int64_t>(1, out.shape[R - 1]);
    report(operation, layer, out, out.size() / columns, first_row, stream);
  }

  // `sum` is over rows: a gradient of a parameter, or a loss.
  template <class X, int R>
  void sum(const char* operation, const LayerName& layer, const Tensor<X, R>& sum,
           Stream& stream) const {
    if (observer_ != nullptr) report(operation, layer, sum, 0, -1, stream);
  }

 private:
  template <class X, int R>
  void report(const char* operation, const LayerName& layer, const Tensor<X, R>& out,
              std::int64_t rows, std::int64_t first_row, Stream& stream) const {
    if (out.data == nullptr) return;
    // nvcc reads no designated initializers here.
    const OperationOutput output{operation,  layer, out.data, kDtypeOf<std::remove_const_t<X>>,
                                 out.size(), rows,  first_row};
    observer_->output(output, stream);
  }

  OutputObserver* observer_ = nullptr;
};

}  // namespace llmc
