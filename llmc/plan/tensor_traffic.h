// The bytes that a rank sends in its tensor group: formulae, which equal what its communicator
// counts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "llmc/config/model_config.h"
#include "llmc/config/run_shape.h"
#include "llmc/device/math.h"
#include "llmc/models/gpt2/block_backward.h"
#include "llmc/models/gpt2/gpt2_parameters.h"
#include "llmc/nn/stage.h"
#include "llmc/ops/fake_quantize.h"

namespace llmc {

// Bytes that a rank sends in one group, by kind of collective.
struct GroupTraffic {
  std::int64_t all_reduce = 0, reduce_scatter = 0, all_gather = 0, broadcast = 0, message = 0;

  std::int64_t all() const {
    return all_reduce + reduce_scatter + all_gather + broadcast + message;
  }
  GroupTraffic& operator+=(const GroupTraffic& other) {
    all_reduce += other.all_reduce;
    reduce_scatter += other.reduce_scatter;
    all_gather += other.all_gather;
    broadcast += other.broadcast;
    message += other.message;
    return *this;
  }
  bool operator==(const GroupTraffic&) const = default;
  GroupTraffic operator+(const GroupTraffic& other) const { return GroupTraffic(*this) += other; }
  GroupTraffic operator*(std::int64_t times) const {
    return {times * all_reduce, times * reduce_scatter, times * all_gather, times * broadcast,
            times * message};
  }
};

// Bytes that a rank of n sends if the operand has `payload` bytes; twice for an all-reduce.
inline std::int64_t bytes_sent(std::int64_t payload, std::int64_t n) {
  return ceil_div(payload * (n - 1), n);
}

// The collectives of passes over a batch of `rows` rows through a stage, with `ranks` tensor ranks.
// `size`: bytes of an activation. One rank sends nothing.
class TensorTraffic {
 public:
  TensorTraffic(const ModelConfig& config, const RunShape& run, std::int64_t rows, int ranks,
                std::int64_t size)
      : TensorTraffic(config, run, {.end = config.layers}, rows, ranks, size) {}
  TensorTraffic(const ModelConfig& config, const RunShape& run, const Stage& stage,
                std::int64_t rows, int ranks, std::int64_t size)
      : config_(config),
        run_(run),
        table_(gpt2_parameters(config, {}, run)),
        kept_(table_, run),
        stage_(stage),
        rows_(rows),
        ranks_(ranks),
        size_(size) {}

  // Two sums per layer, and that of the embeddings. If rows are spread, the inputs of c_attn and
  // c_fc are gathered. Passes are quantized if run.qat allows it. LoRA of the row-parallel layers
  // adds up its h.
  GroupTraffic forward() const {
    const std::int64_t L = stage_.blocks();
    GroupTraffic traffic =
        sum() * (2 * L + (stage_.embedding ? 1 : 0)) + gather() * (2 * L) + ranges() * (2 * L);
    for (std::int64_t l = stage_.first; l < stage_.end; ++l) {
      traffic += hidden_sum(l, "attn.c_proj") + hidden_sum(l, "mlp.c_proj");
    }
    return traffic;
  }
  // Two sums per layer, and that of the head. If rows are spread, the inputs of c_attn and c_fc are
  // gathered again, and the gradients of both branches, of the embeddings and the head's input.
  // Frozen parameters need less of that. LoRA of the column-parallel layers adds up the gradients
  // of its h.
  GroupTraffic backward() const {
    GroupTraffic traffic;
    for (std::int64_t l = kept_.first_backward(stage_); l < stage_.end; ++l) {
      traffic += block_backward_of(l);
    }
    if (stage_.head) traffic += sum() + gather() + statistics();
    return traffic + gather() * (stage_.embedding && table_.learns("wte.") ? 1 : 0);
  }
  // Before the backward pass of a block that is recomputed in full: its first sum. If rows are
  // spread, the inputs of c_attn and c_fc are gathered, otherwise the pieces of the block's input.
  GroupTraffic recompute() const {
    const GroupTraffic inputs = sequence_parallel() ? gather() * 2 : pieces();
    GroupTraffic traffic;
    const std::int64_t first = kept_.first_backward(stage_);
    for (std::int64_t l = first; l < stage_.end; ++l) {
      if (run_.recompute_of(l - first) != Recompute::full) continue;
      traffic += sum() + inputs + ranges() + hidden_sum(l, "attn.c_proj");
    }
    return traffic;
  }
  // The scales of the weights whose rows are split, in quantized passes: once after each update.
  GroupTraffic scales() const {
    if (run_.qat == QatMode::none) return {};
    GroupTraffic traffic;
    for (const std::int64_t inputs : {config_.channels, config_.hidden_size()}) {
      const std::int64_t magnitudes = magnitude_parts(inputs / ranks_) * config_.channels;
      const auto bytes = static_cast<std::int64_t>(sizeof(float)) * magnitudes * ranks_;
      traffic.all_gather += bytes_sent(bytes, ranks_);
    }
    return traffic * stage_.blocks();
  }
  // The losses of an evaluation.
  GroupTraffic losses() const { return gather() + statistics(); }
  // The logits of one row, of which each rank has `columns`.
  GroupTraffic row_logits(std::int64_t columns) const {
    GroupTraffic traffic{.all_gather = bytes_sent(size_ * columns * ranks_, ranks_)};
    if (sequence_parallel()) traffic.broadcast = bytes_sent(size_ * config_.channels, ranks_);
    return traffic;
  }

 private:
  // The sums of the gradients of both norms' outputs. If rows are spread, the gathered gradients of
  // both branches, and inputs that the gradients of weights read.
  GroupTraffic block_backward_of(std::int64_t layer) const {
    const BlockBackward needed = block_backward(table_, layer);
    const std::string h = "h." + std::to_string(layer) + ".";
    const auto reads_input = [&](const char* name) {
      return run_.qat != QatMode::none || table_.learns(h + name + ".weight");
    };
    const auto has_adapter = [&](const std::string& name) {
      return table_.learns(h + name + ".lora_") || table_.learns(h + name + ".ia3_l");
    };
    const auto count = [](std::initializer_list<bool> terms) {
      return static_cast<std::int64_t>(std::ranges::count(terms, true));
    };
    const bool mlp_branch = needed.hidden || reads_input("mlp.c_proj") || has_adapter("mlp.c_proj");
    const bool attention_branch =
        needed.attention || reads_input("attn.c_proj") || has_adapter("attn.c_proj");
    GroupTraffic hidden;
    if (needed.hidden) hidden += hidden_sum(layer, "mlp.c_fc");
    if (needed.attention) hidden += hidden_sum(layer, "attn.c_attn");
    return hidden + sum() * count({needed.mlp_input, needed.norm_output}) +
           gather() * count({mlp_branch, needed.residual_mid && attention_branch,
                             needed.hidden && reads_input("mlp.c_fc"),
                             needed.attention && reads_input("attn.c_attn")}) +
           ranges() * count({mlp_branch, needed.residual_mid && attention_branch});
  }

  // The sum over the ranks of h (rows, R), or of its gradient, if the layer has LoRA.
  GroupTraffic hidden_sum(std::int64_t layer, const char* name) const {
    const std::string a = "h." + std::to_string(layer) + "." + name + ".lora_A.weight";
    const auto spec = std::ranges::find(table_.specs(), a, &ParameterSpec::name);
    if (spec == table_.specs().end()) return {};
    return sum_of(spec->part.stored_rows);
  }

  bool sequence_parallel() const { return run_.uses_sequence_parallelism(ranks_); }
  // Bytes of rows of this many columns, one for each of the residual stream, with padding.
  std::int64_t bytes_of_rows(std::int64_t columns) const {
    const std::int64_t rows = sequence_parallel() ? round_up(rows_, std::int64_t{ranks_}) : rows_;
    return size_ * rows * columns;
  }
  GroupTraffic sum_of(std::int64_t columns) const {
    const std::int64_t bytes = bytes_of_rows(columns);
    if (sequence_parallel()) return {.reduce_scatter = bytes_sent(bytes, ranks_)};
    return {.all_reduce = bytes_sent(2 * bytes, ranks_)};
  }
  GroupTraffic sum() const { return sum_of(config_.channels); }
  GroupTraffic gather() const {
    if (!sequence_parallel()) return {};
    return {.all_gather = bytes_sent(bytes_of_rows(config_.channels), ranks_)};
  }
  // The residual stream in equal pieces of whole rows.
  GroupTraffic pieces() const {
    const std::int64_t rows = ranks_ * ceil_div(rows_, std::int64_t{ranks_});
    return {.all_gather = bytes_sent(size_ * rows * config_.channels, ranks_)};
  }
  // Two floats per row of an input whose columns are split, if inputs are quantized.
  GroupTraffic ranges() const {
    if (run_.qat != QatMode::w8a8) return {};
    constexpr std::int64_t kRow = 2 * sizeof(float);
    return {.all_gather = bytes_sent(kRow * rows_ * ranks_, ranks_)};
  }
  // Three floats per row of the vocabulary's slices, gathered chunk by chunk.
  GroupTraffic statistics() const {
    constexpr std::int64_t kRow = 3 * sizeof(float);
    GroupTraffic traffic;
    const std::int64_t step = run_.chunk_rows();
    for (std::int64_t first = 0; first < rows_; first += step) {
      traffic.all_gather += bytes_sent(kRow * std::min(step, rows_ - first) * ranks_, ranks_);
    }
    return traffic;
  }

  ModelConfig config_;
  RunShape run_;
  ParameterTable table_;  // of one rank
  KeptBlocks kept_;
  Stage stage_;
  std::int64_t rows_;
  int ranks_;
  std::int64_t size_;
};

}  // namespace llmc
