// The update of a rank's weights by the CPU (--optimizer-on cpu; ZeRO-Offload, Ren et al., 2021):
// masters, moments and gradients are in host memory, where AdamW's arithmetic runs. New weights go
// to the device, or by way of it to a disk, while the next ones are computed. Weights that are in
// host memory do not move.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "llmc/device/device.h"
#include "llmc/nn/context.h"
#include "llmc/nn/memory_plan.h"
#include "llmc/ops/optimizer/adamw_on_cpu.h"
#include "llmc/parallel/state_array.h"
#include "llmc/parallel/state_chunks.h"

namespace llmc {

template <class T>
class CpuUpdate {
 public:
  // Weights from an element of a piece on, at `weights` in host memory. fp32 weights are their own
  // masters: they are read too.
  struct Range {
    std::int64_t first, n;
    T* weights;
  };

  // Reserves memory in the plan for `elements` weights on their way, unless these are in host
  // memory. All references must outlive the object.
  CpuUpdate(std::int64_t elements, StateArray<T>& weights, StateChunks& chunks, Context& context,
            MemoryPlan& plan)
      : weights_(weights), chunks_(chunks), context_(context), elements_(elements) {
    if (weights.is_on_host()) return;
    const std::int64_t slots = std::ssize(slots_);
    plan.reserve_outside(Place::host, "new weights", slots * elements * std::int64_t{sizeof(T)},
                         [=, this](std::int64_t) {
                           for (Slot& slot : slots_) slot.weights = PinnedBuffer<T>(elements);
                         });
  }
  CpuUpdate(const CpuUpdate&) = delete;
  CpuUpdate& operator=(const CpuUpdate&) = delete;

  // Returns the state on the device when it is computed, and what has left is in host memory.
  OptimizerState read(const OptimizerState* device, Stream& stream) {
    OptimizerState state{};
    copy_to_host(&state, device, 1, stream);
    context_.ranks.synchronize(stream);
    context_.timed(Phase::offload, [&] { context_.transfers().synchronize(); });
    return state;
  }

  // Calls update(range) for consecutive ranges of the n weights that begin at `begin` among the
  // kept ones, and moves the results to their place.
  template <class Update>
  void run(std::int64_t begin, std::int64_t n, Stream& stream, const Update& update) {
    if (n == 0) return;
    if (weights_.is_on_host()) {
      return update(Range{0, n, static_cast<T*>(weights_.on_host(begin))});
    }
    using Use = StateOperand::Use;
    const StateOperand operand = {&weights_, begin, kReads ? Use::update : Use::write};
    chunks_.run({{operand}}, n, [&](const auto& data, std::int64_t first, std::int64_t size) {
      move(static_cast<T*>(data[0]), first, size, stream, update);
    });
  }

 private:
  static constexpr bool kReads = std::is_same_v<T, float>;

  struct Slot {
    PinnedBuffer<T> weights;
    Event ready;  // the host may use the slot
  };

  // The same for n weights at `device`, which are elements `first` on of the piece.
  template <class Update>
  void move(T* device, std::int64_t first, std::int64_t n, Stream& stream, const Update& update) {
    read_slot(device, 0, n, stream);
    for (std::int64_t i = 0; i < n; i += elements_) {
      Slot& slot = slots_[turn_];
      turn_ = 1 - turn_;
      read_slot(device, i + elements_, n, stream);
      context_.timed(Phase::offload, [&] { slot.ready.synchronize(); });
      const std::int64_t size = std::min(elements_, n - i);
      update(Range{first + i, size, slot.weights.data()});
      copy_to_device(device + i, static_cast<const T*>(slot.weights.data()), size, stream);
      context_.transfers().count_to_device(Place::host, size * std::int64_t{sizeof(T)});
      slot.ready.record(stream);
    }
  }

  // Begins to bring the weights that the next turn reads.
  void read_slot(const T* device, std::int64_t i, std::int64_t n, Stream& stream) {
    if (!kReads || i >= n) return;
    Slot& slot = slots_[turn_];
    const std::int64_t size = std::min(elements_, n - i);
    copy_to_host(slot.weights.data(), device + i, size, stream);
    context_.transfers().count_from_device(Place::host, size * std::int64_t{sizeof(T)});
    slot.ready.record(stream);
  }

  StateArray<T>& weights_;
  StateChunks& chunks_;
  Context& context_;
  std::int64_t elements_;
  std::array<Slot, 2> slots_;
  std::size_t turn_ = 0;
};

}  // namespace llmc
