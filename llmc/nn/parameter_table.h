// The table of all parameters of a model, and the part of each that one rank holds. Initialisation,
// optimizer groups, sharding, checkpoint layout, import and export and the memory report all use
// it. No code refers to a parameter by a fixed index.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/device/math.h"
#include "llmc/nn/axis.h"
#include "llmc/ops/global_index.h"
#include "llmc/pipeline/pipeline.h"

namespace llmc {

enum class Initializer { normal, uniform, zero, one };

// The axes of a parameter, outermost first, grouped into rows and columns of its tensor in files.
// Files use Hugging Face's layout: the weight of c_attn has (C) rows and (3 parts, NH, HS) columns.
struct ParameterAxes {
  std::vector<Axis> rows;
  std::vector<Axis> columns = {};  // empty: the tensor is a vector

  // (rows, columns) or (rows).
  std::vector<std::int64_t> shape() const {
    if (columns.empty()) return {product(rows)};
    return {product(rows), product(columns)};
  }

  // The size of the axis of this name; throws if there is none.
  std::int64_t size_of(AxisName name) const {
    for (const auto* axes : {&rows, &columns}) {
      for (const Axis& axis : *axes) {
        if (axis.name == name) return axis.size;
      }
    }
    fail(std::string("the parameter has no axis '") + axis_text(name) + "'");
  }

 private:
  static std::int64_t product(const std::vector<Axis>& axes) {
    std::int64_t product = 1;
    for (const Axis& axis : axes) product *= axis.size;
    return product;
  }
};

// The part of a parameter that one rank holds.
struct LocalParameter {
  ParameterAxes axes;               // with the sizes of this rank, without padding
  std::vector<std::int64_t> shape;  // of the rank's tensor: (rows, columns) or (rows)
  std::int64_t stored_rows = 0;     // rows in memory: shape[0] plus padding
  bool split = false;               // false: every tensor rank holds the whole parameter
  GlobalIndex index;                // of the rank's elements in the whole tensor

  std::int64_t row_size() const { return shape.size() > 1 ? shape[1] : 1; }
  std::int64_t size() const { return row_size() * shape[0]; }
  std::int64_t stored_size() const { return row_size() * stored_rows; }
};

struct ParameterSpec {
  std::string name;  // Hugging Face's, without the prefix "transformer."
  ParameterAxes axes;
  std::vector<std::int64_t> shape;  // as stored in files: axes.shape()
  LocalParameter part;              // that this rank holds
  Initializer initializer = Initializer::zero;
  float stddev = 0;           // for Initializer::normal
  float bound = 0;            // for Initializer::uniform: numbers are between -bound and bound
  bool weight_decay = false;  // true for matrices and embeddings
  // Whether training changes the parameter. Only trainable parameters have gradients, moments and
  // master weights. The others are frozen.
  bool trainable = true;
  bool is_adapter = false;  // a part of an adapter (ops/adapter_shape.h), not of the model
  // Whether training keeps INT8 codes of the parameter, outside the array of all tensors.
  bool is_code = false;
  // 0: embeddings, 1 .. L: transformer blocks, L + 1: the final LayerNorm, L + 2: a head that is
  // not tied to the embeddings
  int block = 0;
  // The tensor's key for random numbers. That of a parameter of the model does not depend on
  // adapters; without them, it is the index in the table.
  std::uint32_t id = 0;
  std::int64_t offset = 0;  // first element in the array that holds all tensors of a tensor rank
  // Whether the pipeline rank of the table's place has the parameter, and the first one that does.
  // Only a tied wte is on two, if there are several: the embedding and the head use it.
  bool is_held = true;
  int first_holder = 0;
  bool is_lookup = false;  // no product multiplies by it

  // Number of elements in files, and in this rank's memory.
  std::int64_t size() const { return row_size() * shape[0]; }
  std::int64_t stored_size() const { return part.stored_size(); }

  // Returns the part that the rank at `place` holds; a single rank holds everything. Throws if the
  // ranks cannot split the parameter.
  LocalParameter local(const MeshPlace& place = {}) const {
    try {
      return local_part(place);
    } catch (const Error& error) {
      fail(name + ": " + error.what());
    }
  }

  // FLOP of a forward pass per token, by the convention of 2 per parameter. Embeddings that are
  // only looked up and added count 0; a tied wte counts as the matrix of the head.
  std::int64_t flops_per_token() const { return is_lookup ? 0 : 2 * size(); }

 private:
  std::int64_t row_size() const { return shape.size() > 1 ? shape[1] : 1; }

  LocalParameter local_part(const MeshPlace& place) const {
    LocalParameter local;
    local.stored_rows = 1;
    for (const Axis& axis : axes.rows) {
      require(axis.multiple == 1 || &axis == &axes.rows.front(),
              "only the first axis can be padded");
      const AxisPiece piece = axis.piece(place);
      local.axes.rows.push_back({axis.name, piece.size});
      local.stored_rows *= piece.stored_size;
    }
    for (const Axis& axis : axes.columns) {
      require(axis.multiple == 1, "only the first axis can be padded");
      local.axes.columns.push_back({axis.name, axis.piece(place).size});
    }
    local.shape = local.axes.shape();
    if (place.tensor_ranks > 1) set_index(local, place);
    return local;
  }

  // At most one axis is split: the first one of the rows, or one of the axes that a row of the
  // tensor consists of (a vector is one row).
  void set_index(LocalParameter& local, const MeshPlace& place) const {
    const bool is_vector = axes.columns.empty();
    const auto inner_size = [](const std::vector<Axis>& all, std::size_t axis) {
      std::int64_t size = 1;
      for (std::size_t i = axis + 1; i < all.size(); ++i) size *= all[i].size;
      return size;
    };
    if (!is_vector && axes.rows.front().split) {
      local.split = true;
      local.index = {.begin = axes.rows.front().piece(place).begin * inner_size(axes.rows, 0) *
                              row_size()};
      return;
    }
    const std::vector<Axis>& row = is_vector ? axes.rows : axes.columns;
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (!row[i].split) continue;
      const AxisPiece piece = row[i].piece(place);
      const std::int64_t inner = inner_size(row, i);
      local.split = true;
      local.index = {.begin = piece.begin * inner,
                     .row_size = is_vector ? local.shape[0] : local.shape[1],
                     .piece = piece.size * inner,
                     .global_row_size = is_vector ? shape[0] : shape[1],
                     .global_piece = row[i].size * inner};
    }
  }
};

// The weight (labels, C) of a classifier's head.
inline constexpr const char* kScoreName = "score.weight";
inline bool is_score(const ParameterSpec& spec) {
  return spec.axes.rows.front().name == AxisName::labels;
}
// Whether a model of tokens lacks a parameter, so that a run that starts from one begins with
// initial values.
inline bool is_added(const ParameterSpec& spec) {
  return spec.is_adapter || is_score(spec);
}

// Whether INT8 models, and quantized passes of training, quantize a parameter: matrices and token
// embeddings.
inline bool is_quantized(const ParameterSpec& spec) {
  const bool is_matrix = !spec.axes.columns.empty() && !is_added(spec);
  return is_matrix && spec.axes.rows.front().name != AxisName::positions;
}

// Every tensor starts at a multiple of this many elements. This aligns 16-byte accesses in every
// dtype, and no 1024-element piece of the gradient norm spans two tensors.
inline constexpr std::int64_t kParameterAlignment = 1024;

class ParameterTable {
 public:
  // A table without parameters, to which the functions below add those of a model, block by block
  // (models/gpt2/gpt2_parameters.h).
  explicit ParameterTable(const MeshPlace& place) : place_(place) {}

  // Adds a matrix with random values of this standard deviation. Throws if the ranks cannot split
  // it.
  void add_matrix(const std::string& name, int block, ParameterAxes axes, float stddev) {
    ParameterSpec spec;
    spec.name = name;
    spec.axes = std::move(axes);
    spec.initializer = Initializer::normal;
    spec.stddev = stddev;
    spec.weight_decay = true;
    spec.block = block;
    add(std::move(spec));
  }
  // Adds NAME.weight, of ones, and NAME.bias, of zeros.
  void add_norm(const std::string& name, int block, const Axis& channels) {
    add_vector(name + ".weight", block, {{channels}}, Initializer::one);
    add_vector(name + ".bias", block, {{channels}}, Initializer::zero);
  }
  // Adds NAME.weight with the axes (inputs, outputs) and NAME.bias with the outputs, which is split
  // with them. A row-parallel layer splits only its inputs, so every rank has the whole bias.
  void add_linear(const std::string& name, int block, const ParameterAxes& axes, float stddev) {
    add_matrix(name + ".weight", block, axes, stddev);
    add_vector(name + ".bias", block, {axes.columns}, Initializer::zero);
  }
  // Adds the adapters NAME.lora_A.weight (R, inputs) and NAME.lora_B.weight (R, outputs) of a
  // linear layer with these axes. The first begins with uniform numbers, the other with zeros.
  void add_lora(const std::string& name, int block, const ParameterAxes& axes, std::int64_t R) {
    constexpr std::int64_t kRankMultiple = 8;
    const Axis rank{AxisName::rank, R, false, kRankMultiple};
    ParameterSpec spec;
    spec.is_adapter = true;
    spec.block = block;
    spec.weight_decay = true;
    spec.name = name + ".lora_A.weight";
    spec.axes = {{rank}, axes.rows};
    spec.initializer = Initializer::uniform;
    spec.bound = 1 / std::sqrt(static_cast<float>(axes.shape()[0]));
    add(spec);
    spec.name = name + ".lora_B.weight";
    spec.axes = {{rank}, axes.columns};
    spec.initializer = Initializer::zero;
    add(std::move(spec));
  }
  // Adds the adapter NAME.ia3_l, a vector of ones with these axes.
  void add_ia3(const std::string& name, int block, const std::vector<Axis>& axes) {
    ParameterSpec spec;
    spec.is_adapter = true;
    spec.block = block;
    spec.name = name + ".ia3_l";
    spec.axes = {axes};
    spec.initializer = Initializer::one;
    add(std::move(spec));
  }
  // Call once, after the last parameter: sets offsets, and which pipeline ranks hold a parameter.
  // `frozen`: names of parameters that are not trainable; with adapters, all of the model are
  // frozen, except a classifier's score. Throws if one of them does not exist, and if all
  // parameters are frozen. `codes`: matrices of the model become INT8 codes.
  void finish(std::int64_t layers, const Pipeline& pipeline, const std::vector<std::string>& frozen,
              bool codes = false) {
    freeze(frozen);
    for (ParameterSpec& spec : specs_) spec.is_code = codes && is_quantized(spec);
    for (ParameterSpec& spec : specs_) spec.is_lookup = is_lookup(spec);
    compute_offsets();
    set_holders(layers, pipeline);
  }

  const std::vector<ParameterSpec>& specs() const { return specs_; }
  const MeshPlace& place() const { return place_; }

  const ParameterSpec& find(const std::string& name) const {
    for (const ParameterSpec& spec : specs_) {
      if (spec.name == name) return spec;
    }
    fail("there is no parameter '" + name + "'");
  }

  // The weight of the logits: wte, or that of a head that is not tied to it.
  const ParameterSpec& head() const {
    const auto has_logits = [](const ParameterSpec& spec) {
      return spec.axes.rows.front().name == AxisName::vocabulary || is_score(spec);
    };
    const auto last = std::find_if(specs_.rbegin(), specs_.rend(), has_logits);
    require(last != specs_.rend(), "the model has no vocabulary");
    return *last;
  }
  bool tied_head() const { return head().block == 0; }

  // Number of elements of the array that holds this rank's part of all tensors, including gaps.
  std::int64_t stored_size() const { return stored_size_; }
  // The same for the trainable parameters, which come first in it.
  std::int64_t trainable_size() const { return trainable_size_; }

  // Number of parameters of the whole model, and of those that training changes, without padding
  // and gaps.
  std::int64_t count() const {
    std::int64_t count = 0;
    for (const ParameterSpec& spec : specs_) count += spec.size();
    return count;
  }
  std::int64_t trainable_count() const {
    std::int64_t count = 0;
    for (const ParameterSpec& spec : specs_) count += spec.trainable ? spec.size() : 0;
    return count;
  }

  // Whether training changes a parameter whose name begins with `prefix`, such as
  // "h.0.attn.c_attn.".
  bool learns(std::string_view prefix) const {
    return std::ranges::any_of(specs_, [&](const ParameterSpec& spec) {
      return spec.trainable && spec.name.starts_with(prefix);
    });
  }
  // The lowest block with a trainable parameter (ParameterSpec::block): the backward pass ends
  // there.
  int first_learning_block() const {
    int first = specs_.back().block;
    for (const ParameterSpec& spec : specs_) {
      if (spec.trainable) first = std::min(first, spec.block);
    }
    return first;
  }

 private:
  void add(ParameterSpec spec) {
    spec.shape = spec.axes.shape();
    spec.part = spec.local(place_);
    spec.id = spec.is_adapter ? kFirstAdapterId + num_adapters_++
                              : static_cast<std::uint32_t>(specs_.size()) - num_adapters_;
    specs_.push_back(std::move(spec));
  }
  void add_vector(const std::string& name, int block, ParameterAxes axes, Initializer initializer) {
    ParameterSpec spec;
    spec.name = name;
    spec.axes = std::move(axes);
    spec.initializer = initializer;
    spec.block = block;
    add(std::move(spec));
  }
  void freeze(const std::vector<std::string>& names) {
    for (ParameterSpec& spec : specs_) spec.trainable = is_added(spec) || num_adapters_ == 0;
    for (const std::string& name : names) {
      find(name);
      for (ParameterSpec& spec : specs_) spec.trainable = spec.trainable && spec.name != name;
    }
    require(std::ranges::any_of(specs_, &ParameterSpec::trainable),
            "all parameters are frozen: there is nothing to train");
  }

  bool is_lookup(const ParameterSpec& spec) const {
    const AxisName rows = spec.axes.rows.front().name;
    return rows == AxisName::positions || (rows == AxisName::vocabulary && spec.id != head().id);
  }

  // Trainable parameters come before frozen ones, so that arrays of gradients and moments have the
  // offsets of arrays of weights.
  void compute_offsets() {
    append_blocks(true);
    trainable_size_ = stored_size_;
    append_blocks(false);
  }
  // Blocks are neighbours, in their order. With several tensor ranks, the parameters that these
  // hold in equal copies come last in their block, so that one all-reduce adds up their gradients.
  void append_blocks(bool trainable) {
    for (auto first = specs_.begin(); first != specs_.end();) {
      const auto end = std::find_if(first, specs_.end(), [&](const ParameterSpec& spec) {
        return spec.block != first->block;
      });
      for (const bool split : {true, false}) {
        for (auto spec = first; spec != end; ++spec) {
          if (spec->trainable != trainable || spec->is_code) continue;
          if (place_.tensor_ranks > 1 ? spec->part.split == split : split) append(*spec);
        }
      }
      first = end;
    }
  }
  void append(ParameterSpec& spec) {
    spec.offset = stored_size_;
    stored_size_ += round_up(spec.stored_size(), kParameterAlignment);
  }

  void set_holders(std::int64_t layers, const Pipeline& pipeline) {
    if (pipeline.single()) return;
    const int last = pipeline.shape.ranks - 1;
    for (ParameterSpec& spec : specs_) {
      const std::int64_t layer = spec.block - 1;
      const bool is_shared = spec.id == head().id && tied_head();
      spec.first_holder = layer < 0 ? 0 : layer >= layers ? last : pipeline.rank_of_layer(layer);
      spec.is_held =
          spec.first_holder == place_.pipeline_rank || (is_shared && place_.pipeline_rank == last);
    }
  }

  static constexpr std::uint32_t kFirstAdapterId = 1 << 20;  // ids are below 2^24

  MeshPlace place_;
  std::vector<ParameterSpec> specs_;
  std::uint32_t num_adapters_ = 0;
  std::int64_t stored_size_ = 0, trainable_size_ = 0;
};

}  // namespace llmc
