// Cases of training with less memory: what is recomputed, in which layout of ranks, and with what
// work. Each must have the bits of the same training that keeps everything.
#pragma once

#include <doctest/doctest.h>

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "llmc/models/gpt2/gpt2_parameters.h"
#include "llmc/plan/offload_traffic.h"
#include "test/adapter_shapes.h"
#include "test/layout_cases.h"
#include "test/layout_rig.h"
#include "test/pairwise.h"
#include "test/write_file.h"

namespace llmc_test {

struct MemoryCase {
  LayoutCase work;  // its options have the modes
  Dtype dtype = Dtype::fp32;

  std::string reference() const {
    return std::string(dtype_name(dtype)) + ", " + work.text() +
           (work.options.stochastic_rounding ? ", stochastic rounding" : "") + ", qat " +
           choice_name(work.options.qat) + ", " + std::to_string(work.options.steps) + " steps, " +
           std::to_string(work.options.frozen.size()) + " frozen, " +
           std::to_string(work.options.adapters.layers.size()) + " adapters";
  }
  // Next to a GPU, the CPU's compiler contracts other products and sums than the GPU's.
  bool has_other_rounding() const {
    return kCudaTarget && work.options.memory.offload.optimizer_on_cpu;
  }
  std::string text() const { return reference() + ", " + work.options.memory.text(); }
};

inline std::vector<Layout> memory_layouts() {
  std::vector<Layout> all = {{.micro_batches = 2}};
  for (const int stage : {0, 1, 2, 3}) {
    all.push_back(
        {.ranks = 2, .stage = stage, .shard_ranks = stage == 0 ? 1 : 2, .micro_batches = 2});
  }
  for (const bool sequence_parallel : {false, true}) {
    all.push_back({.ranks = 2, .tensor_ranks = 2, .sequence_parallel = sequence_parallel});
  }
  for (const int chunks : {1, 2}) {
    all.push_back({.ranks = 2, .micro_batches = 4, .pipeline_ranks = 2, .chunks = chunks});
  }
  return all;
}

// A directory for offloaded state, which leaves no file in it.
inline std::string scratch_directory() {
  static const TemporaryDirectory folder;
  return folder.path().string();
}

// Offloads kinds to a place. The chunks are small, so that a bucket has several.
inline OffloadPlaces offload_to(const OffloadPlace& place, bool optimizer, bool gradients,
                                bool parameters, bool activations) {
  OffloadPlaces places;
  places.chunk = 2048;
  if (optimizer) places.optimizer = place;
  if (gradients) places.gradients = place;
  if (parameters) places.parameters = place;
  if (activations) places.activations = place;
  return places;
}

// The same with the update on the CPU, for which the optimizer's state is in host memory.
inline OffloadPlaces update_on_cpu(OffloadPlaces places) {
  places.optimizer = {Place::host, {}};
  places.optimizer_on_cpu = true;
  return places;
}

inline std::vector<MemoryOptions> memory_modes() {
  const OffloadPlace host{Place::host, {}};
  const OffloadPlace disk{Place::disk, scratch_directory()};
  return {{.recompute = Recompute::selective},
          {.recompute = Recompute::full},
          {.recompute = Recompute::selective, .blocks = 1},
          {.recompute = Recompute::full, .blocks = 1},
          {.offload = offload_to(host, true, false, false, false)},
          {.offload = offload_to(host, false, true, false, false)},
          {.offload = offload_to(host, false, false, true, false)},
          {.offload = offload_to(host, false, false, false, true)},
          {.recompute = Recompute::full,
           .blocks = 1,
           .offload = offload_to(host, true, true, true, true)},
          {.recompute = Recompute::selective, .offload = offload_to(disk, true, true, true, true)},
          {.offload = offload_to(disk, true, false, true, false)},
          {.offload = offload_to(disk, false, true, false, true)},
          {.offload = update_on_cpu(offload_to(host, false, false, false, false))},
          {.recompute = Recompute::selective,
           .offload = update_on_cpu(offload_to(host, true, true, true, true))},
          {.offload = update_on_cpu(offload_to(disk, false, true, true, false))}};
}

// Sets of frozen parameters of a model: none, all but the upper half, with stages in which nothing
// learns, and all matrices, so that blocks keep no inputs of them.
inline std::vector<std::string> frozen_of(int set, const ModelConfig& model) {
  std::vector<std::string> frozen;
  const ParameterTable table = gpt2_parameters(model);
  for (const ParameterSpec& spec : table.specs()) {
    const bool is_lower = spec.block <= model.layers / 2;
    const bool is_matrix = !spec.axes.columns.empty();
    if ((set == 1 && is_lower) || (set == 2 && is_matrix)) frozen.push_back(spec.name);
  }
  return frozen;
}

// The dimensions of a case: layout, mode, dtype, dropout, documents, standard attention, QAT w8a8,
// stochastic rounding, what learns: all, the sets of frozen_of(), LoRA with dropout, IA3.
inline std::vector<int> memory_dimensions() {
  return {static_cast<int>(memory_layouts().size()),
          static_cast<int>(memory_modes().size()),
          3,
          2,
          2,
          2,
          2,
          2,
          5};
}

inline bool is_valid_memory_case(const ChoiceRow& row) {
  const bool rounds_masters = row[7] == 0 || row[2] > 0;
  return rounds_masters && (row[8] < 3 || row[6] == 0);  // no QAT with adapters
}

inline MemoryCase memory_case(const ChoiceRow& row) {
  MemoryCase c{make_case(memory_layouts()[static_cast<std::size_t>(row[0])], 211, 0),
               static_cast<Dtype>(row[2])};
  LayoutOptions& options = c.work.options;
  options = {.vocabulary = 211,
             .steps = tiny_shapes() ? 1 : 5,
             .heads = options.heads,
             .layers = 2 * c.work.layout.pipeline_ranks * c.work.layout.chunks,
             .B = 2,
             .logits_rows = 5};
  options.memory = memory_modes()[static_cast<std::size_t>(row[1])];
  if (c.has_other_rounding()) options.steps = 1;
  if (row[3] == 1) options.dropout = kDropout;
  options.documents = row[4] == 1;
  options.standard_attention = row[5] == 1;
  options.qat = row[6] == 1 ? QatMode::w8a8 : QatMode::none;
  options.stochastic_rounding = row[7] == 1;
  if (row[8] < 3) {
    options.frozen = frozen_of(row[8], options.config());
  } else {
    options.adapters = adapter_shapes(options.config())[row[8] == 3 ? 0 : 2];
  }
  options.grad_clip = 0.1;
  return c;
}

template <class Use>
auto with_dtype(Dtype dtype, const Use& use) {
  switch (dtype) {
    case Dtype::bf16:
      return use(bf16());
    case Dtype::fp16:
      return use(fp16());
    default:
      return use(float());
  }
}

inline Results train_case(const MemoryCase& c) {
  return with_dtype(c.dtype,
                    [&]<class T>(T) { return train_ranks<T>(c.work.layout, c.work.options); });
}

// Compares the bytes that rank 0 has moved in its last step with their formula.
inline void check_offload_bytes(const MemoryCase& c, const Results& results) {
  const Layout& layout = c.work.layout;
  const RunShape shape = shape_of(layout, c.work.options);
  const OffloadTraffic traffic = offload_traffic(c.dtype, c.work.options.config(), shape,
                                                 layout.mesh(), layout.micro_batches, 0);
  for (const Place place : {Place::host, Place::disk}) {
    CAPTURE(place_name(place));
    const OffloadBytes expected = traffic.of(place, shape.offload);
    const std::size_t i = place == Place::host ? 0 : 2;
    CHECK(results.offload_bytes[i] == expected.to_device);
    CHECK(results.offload_bytes[i + 1] == expected.from_device);
  }
}

// One update of two runs whose roundings differ. Weights are in fp32.
inline void compare_update(const Results& results, const Results& expected) {
  for (const auto part : {&Results::weights, &Results::first_moments, &Results::second_moments}) {
    for (const auto& [name, values] : expected.*part) {
      CAPTURE(name);
      const std::vector<float>& actual = (results.*part).at(name);
      CHECK(relative_l2(oracle::Vec(actual.begin(), actual.end()),
                        oracle::Vec(values.begin(), values.end())) < 1e-6);
    }
  }
}

// Trains the case and the one that keeps everything, and compares all bits.
inline void compare_with_plain(const MemoryCase& c) {
  CAPTURE(c.text());
  static std::map<std::string, Results> plain;
  const auto [entry, is_new] = plain.try_emplace(c.reference());
  if (is_new) {
    MemoryCase reference = c;
    reference.work.options.memory = {};
    entry->second = train_case(reference);
  }
  const Results results = train_case(c);
  if (c.work.options.steps > 1) check_offload_bytes(c, results);
  CHECK(llmc_test::same_bits(results.losses, entry->second.losses));
  CHECK(llmc_test::same_bits(results.norms, entry->second.norms));
  CHECK(same_bits(results.gradients, entry->second.gradients));
  if (c.has_other_rounding()) return compare_update(results, entry->second);
  CHECK(same_bits(results.weights, entry->second.weights));
  CHECK(same_bits(results.first_moments, entry->second.first_moments));
  CHECK(same_bits(results.second_moments, entry->second.second_moments));
}

}  // namespace llmc_test
