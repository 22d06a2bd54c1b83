// The device memory of blocks whose activations are offloaded: two slots in turn, for all
// micro-batches of a rank. What a block keeps leaves after its forward pass, and returns one block
// ahead of its backward pass.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "llmc/config/model_config.h"
#include "llmc/config/run_shape.h"
#include "llmc/device/device.h"
#include "llmc/models/gpt2/block_activations.h"
#include "llmc/nn/context.h"
#include "llmc/nn/memory_plan.h"
#include "llmc/offload/make_store.h"

namespace llmc {

// The kept values of the blocks of one micro-batch outside the device.
struct BlockStore {
  struct Range {
    std::int64_t offset = 0, bytes = 0;
    Recompute mode = Recompute::none;
  };

  std::unique_ptr<Store> store;
  std::vector<Range> blocks;
};

template <class T>
class OffloadedBlocks {
 public:
  // Reserves the slots in the plan, if activations are offloaded; usable after plan.allocate().
  OffloadedBlocks(const ModelConfig& config, const RunShape& run, const KeptBlocks& kept,
                  Context& context, MemoryPlan& plan)
      : context_(context), place_(run.offload.activations) {
    if (!is_used(run)) return;
    for (Slot& slot : slots_) {
      std::vector<MemoryPlan> layouts;
      for (const Recompute mode : modes(run)) {
        MemoryPlan& layout = layouts.emplace_back();
        BlockActivations<T>& view = slot.views[static_cast<std::size_t>(mode)];
        BlockReservation<T>(config, run, kept, context.tensor, layout).kept(view, mode);
        bytes_[static_cast<std::size_t>(mode)] = layout.total();
      }
      plan.reserve_shared("activations", slot.memory, std::move(layouts));
    }
  }
  OffloadedBlocks(const OffloadedBlocks&) = delete;
  OffloadedBlocks& operator=(const OffloadedBlocks&) = delete;

  static bool is_used(const RunShape& run) {
    return run.training && run.offload.activations.place != Place::device;
  }

  // A block begins at a page, so that a transfer to a disk need not read it first.
  static constexpr std::int64_t kPage = 4096;

  // Reserves room for `blocks` blocks in the plan; the store must not move before its allocate().
  void reserve(BlockStore& store, const RunShape& run, std::int64_t blocks, MemoryPlan& plan) {
    std::int64_t bytes = 0;
    for (std::int64_t i = 0; i < blocks; ++i) {
      const Recompute mode = run.recompute_of(i);
      const std::int64_t size = bytes_[static_cast<std::size_t>(mode)];
      store.blocks.push_back({bytes, size, mode});
      bytes += round_up(size, kPage);
    }
    store.store = make_store(place_, context_.transfers());
    plan.reserve_outside(place_.place, "activations", bytes,
                         [&store](std::int64_t size) { store.store->allocate(size); });
  }

  // The values of a block in its slot.
  const BlockActivations<T>& view(const BlockStore& store, std::int64_t index) const {
    const Slot* slot = find(store, index);
    require(slot != nullptr, "a pass reads activations of a block that are not on the device");
    return slot->views[static_cast<std::size_t>(range(store, index).mode)];
  }

  // Before the forward pass of a block, which may overwrite its slot.
  void enter(const BlockStore& store, std::int64_t index) {
    Slot* slot = find(store, index);
    if (slot == nullptr) slot = &take(store, index);
    last_used_ = slot;
    await(*slot);
  }

  // After the forward pass of a block: its values leave.
  void leave(const BlockStore& store, std::int64_t index) {
    Slot& slot = *find(store, index);
    const BlockStore::Range& bytes = range(store, index);
    move(slot, [&](Transfers& transfers) {
      transfers.write(*store.store, place_.place, bytes.offset, slot.memory.data, bytes.bytes);
    });
  }

  // Before the backward pass of a block: its values are on the device, and those of block `next`
  // are on their way unless it is negative.
  void bring(const BlockStore& store, std::int64_t index, std::int64_t next) {
    Slot& slot = fetch(store, index);
    last_used_ = &slot;
    if (next >= 0) fetch(store, next);
    await(slot);
  }

 private:
  struct Slot {
    Tensor<unsigned char, 1> memory;
    std::array<BlockActivations<T>, 3> views;  // by mode
    const BlockStore* store = nullptr;         // of the block whose values it has
    std::int64_t index = 0;
    TransferPoint moved;  // after the last transfer
  };

  static std::vector<Recompute> modes(const RunShape& run) {
    if (run.recompute_blocks == 0 || run.recompute == Recompute::none) return {run.recompute};
    return {run.recompute, Recompute::none};
  }

  static const BlockStore::Range& range(const BlockStore& store, std::int64_t index) {
    return store.blocks[static_cast<std::size_t>(index)];
  }

  const Slot* find(const BlockStore& store, std::int64_t index) const {
    for (const Slot& slot : slots_) {
      if (slot.store == &store && slot.index == index) return &slot;
    }
    return nullptr;
  }
  Slot* find(const BlockStore& store, std::int64_t index) {
    return const_cast<Slot*>(std::as_const(*this).find(store, index));
  }

  // Gives a block the slot that was not used last.
  Slot& take(const BlockStore& store, std::int64_t index) {
    Slot& slot = slots_[last_used_ == &slots_[0] ? 1 : 0];
    slot.store = &store;
    slot.index = index;
    return slot;
  }

  Slot& fetch(const BlockStore& store, std::int64_t index) {
    Slot* const present = find(store, index);
    if (present != nullptr) return *present;
    Slot& slot = take(store, index);
    const BlockStore::Range& bytes = range(store, index);
    move(slot, [&](Transfers& transfers) {
      transfers.read(*store.store, place_.place, slot.memory.data, bytes.offset, bytes.bytes);
    });
    return slot;
  }

  // Calls copy(transfers) for a slot, after the present work of the compute stream.
  template <class Copy>
  void move(Slot& slot, const Copy& copy) {
    context_.timed(Phase::offload, [&] {
      Transfers& transfers = context_.transfers();
      transfers.follow(context_.stream);
      copy(transfers);
      transfers.mark(slot.moved);
    });
  }

  // Later work of the compute stream comes after the last transfer of the slot.
  void await(const Slot& slot) {
    context_.timed(Phase::offload,
                   [&] { context_.transfers().await(slot.moved, context_.stream); });
  }

  Context& context_;
  OffloadPlace place_;
  std::array<std::int64_t, 3> bytes_{};  // of a block, by mode
  std::array<Slot, 2> slots_;
  const Slot* last_used_ = nullptr;
};

}  // namespace llmc
