// Work on elements of several arrays of the training state at a time. Those of offloaded arrays are
// in device memory chunk by chunk, in two slots in turn: while the device works on a chunk, the one
// before leaves and the next one arrives.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "llmc/device/device.h"
#include "llmc/nn/context.h"
#include "llmc/nn/memory_plan.h"
#include "llmc/parallel/state_array.h"

namespace llmc {

// Elements of an array, from `first` on, that work reads or writes.
struct StateOperand {
  enum class Use { read, write, update };

  StateBytes* array;
  std::int64_t first;
  Use use;
};

class StateChunks {
 public:
  static constexpr std::size_t kMaxOperands = 5;
  // The elements of each operand in device memory.
  using Pointers = std::array<void*, kMaxOperands>;

  // `context` must outlive the object.
  explicit StateChunks(Context& context) : context_(context) {}
  StateChunks(const StateChunks&) = delete;
  StateChunks& operator=(const StateChunks&) = delete;

  // Reserves the slots for `elements` elements of each of `arrays`, as far as these are offloaded;
  // usable after plan.allocate(). The slots suffice for work on any of the arrays.
  void reserve(std::int64_t elements, std::span<const StateBytes* const> arrays, MemoryPlan& plan) {
    elements_ = elements;
    std::int64_t bytes = 0;
    for (const StateBytes* array : arrays) {
      if (!array->is_resident()) bytes += elements * array->element_bytes();
    }
    if (bytes == 0) return;
    for (Slot& slot : slots_) plan.reserve("offload buffers", slot.memory, bytes);
  }

  // Calls use(pointers, first, n), which works on the compute stream, for consecutive ranges
  // [first, first + n) of `size` elements: one range if all operands are resident.
  template <class Use>
  void run(std::span<const StateOperand> operands, std::int64_t size, const Use& use) {
    if (std::ranges::all_of(operands, [](const auto& o) { return o.array->is_resident(); })) {
      if (size > 0) use(pointers(operands, slots_[0], 0), std::int64_t{0}, size);
      return;
    }
    const std::int64_t chunks = ceil_div(size, elements_);
    if (chunks > 0) fetch(operands, 0, size);
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      if (chunk + 1 < chunks) fetch(operands, chunk + 1, size);
      Slot& slot = slots_[chunk % 2];
      context_.timed(Phase::offload,
                     [&] { context_.transfers().await(slot.fetched, context_.stream); });
      const std::int64_t first = chunk * elements_;
      use(pointers(operands, slot, first), first, std::min(elements_, size - first));
      put(operands, chunk, size);
    }
  }

  // Elements of a chunk.
  std::int64_t elements() const { return elements_; }

 private:
  struct Slot {
    Tensor<unsigned char, 1> memory;
    TransferPoint fetched;
  };

  // Where the operand's elements are in a slot.
  template <class Each>
  void for_each_offloaded(std::span<const StateOperand> operands, Slot& slot, const Each& each) {
    unsigned char* memory = slot.memory.data;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      if (operands[i].array->is_resident()) continue;
      each(i, memory);
      memory += elements_ * operands[i].array->element_bytes();
    }
  }

  Pointers pointers(std::span<const StateOperand> operands, Slot& slot, std::int64_t first) {
    Pointers pointers{};
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const StateOperand& operand = operands[i];
      if (operand.array->is_resident())
        pointers[i] = operand.array->resident(operand.first + first);
    }
    for_each_offloaded(operands, slot, [&](std::size_t i, void* memory) { pointers[i] = memory; });
    return pointers;
  }

  // Copies a chunk into its slot, which the present work of the compute stream may still use.
  void fetch(std::span<const StateOperand> operands, std::int64_t chunk, std::int64_t size) {
    transfer(operands, chunk, size, [](const StateOperand& o, void* memory, auto first, auto n) {
      if (o.use != StateOperand::Use::write) o.array->fetch(memory, first, n);
    });
    context_.transfers().mark(slots_[chunk % 2].fetched);
  }

  void put(std::span<const StateOperand> operands, std::int64_t chunk, std::int64_t size) {
    transfer(operands, chunk, size, [](const StateOperand& o, void* memory, auto first, auto n) {
      if (o.use != StateOperand::Use::read) o.array->put(first, memory, n);
    });
  }

  template <class Move>
  void transfer(std::span<const StateOperand> operands, std::int64_t chunk, std::int64_t size,
                const Move& move) {
    const std::int64_t first = chunk * elements_, n = std::min(elements_, size - first);
    context_.timed(Phase::offload, [&] {
      context_.transfers().follow(context_.stream);
      for_each_offloaded(operands, slots_[chunk % 2], [&](std::size_t i, void* memory) {
        move(operands[i], memory, operands[i].first + first, n);
      });
    });
  }

  Context& context_;
  std::int64_t elements_ = 0;
  std::array<Slot, 2> slots_;
};

}  // namespace llmc
