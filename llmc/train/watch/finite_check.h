// The check of every operation of a step whose loss or gradient is not finite. The micro-batches of
// the step run again (TrainStep::diagnose), and the layers report the values that each operation
// writes (nn/output_observer.h). The check copies them to the host, so it is slow.
//
// Each rank finds its own first operation. The ranks then select the first of all: the earliest
// micro-batch, its forward pass before its backward pass, the lowest layer in a forward pass and
// the highest one in a backward pass, then the order of operations. So a rank that only received
// the values of another one is not named.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "llmc/comm/exchange.h"
#include "llmc/nn/output_observer.h"
#include "llmc/nn/tensor_group.h"

namespace llmc {

// The cause of a step that is not finite, equal on all ranks.
struct NotFinite {
  // The second run was finite: a fault that does not repeat. `ranks` are those whose first run left
  // values that are not finite; all ranks if none did.
  bool is_transient = false;
  // The ranks on which the operation is the first one. Empty: the outputs of all operations are
  // finite, their sum over ranks or the norm is not.
  std::vector<int> ranks = {};
  std::string operation = {}, layer = {};
  std::int64_t micro_batch = 0;
  std::int64_t sample =
      -1;  // in the micro-batch of the lowest of the ranks; -1: a sum over samples
};

class FiniteCheck final : public OutputObserver {
 public:
  // `group` must outlive the object.
  explicit FiniteCheck(const TensorGroup& group) : group_(group) {}

  // The next passes are those of this micro-batch of B sequences of T tokens.
  void begin_micro_batch(std::int64_t index, std::int64_t B, std::int64_t T);

  void begin_pass(bool is_backward) override;
  void output(const OperationOutput& output, Stream& stream) override;

  // The cause, from the findings of all ranks. `is_finite`: whether loss and norm of this run are
  // finite; equal on all ranks. `was_finite`: whether this rank's first run left only finite
  // values. All ranks call this together.
  NotFinite agree(bool is_finite, bool was_finite, Exchange& exchange) const;

 private:
  // The place of an operation in the order above: micro-batch, pass, layer, number in the pass.
  using Place = std::array<std::int64_t, 4>;
  struct Finding {
    Place place;
    std::string operation, layer;
    std::int64_t sample = -1;
  };

  std::int64_t sample_of(const OperationOutput& output, std::int64_t index) const;

  const TensorGroup& group_;
  std::int64_t micro_batch_ = 0, B_ = 0, T_ = 1;
  bool is_backward_ = false;
  std::int64_t num_outputs_ = 0;  // of the pass
  std::optional<Finding> first_;
  std::vector<std::byte> host_;
};

// "step 12: the loss is nan: first not finite in "attention forward" of h.3, rank 1, micro-batch 0,
// sample 2". `value`: "the loss is nan".
std::string not_finite_text(std::int64_t step, const std::string& value, const NotFinite& cause);

}  // namespace llmc
