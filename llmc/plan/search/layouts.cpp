#include "llmc/plan/search/layouts.h"

#include <optional>
#include <utility>

namespace llmc {

namespace {

constexpr std::int64_t kMostMicroBatch = 64, kMostChunks = 8;

std::vector<std::int64_t> divisors(std::int64_t number) {
  std::vector<std::int64_t> list;
  for (std::int64_t i = 1; i <= number; ++i) {
    if (number % i == 0) list.push_back(i);
  }
  return list;
}

std::vector<std::int64_t> powers_of_two(std::int64_t most) {
  std::vector<std::int64_t> list;
  for (std::int64_t i = 1; i <= most; i *= 2) list.push_back(i);
  return list;
}

template <class Value>
std::vector<Value> chosen(const std::optional<Value>& typed, std::vector<Value> others) {
  return typed ? std::vector<Value>{*typed} : others;
}

std::string dash(const char* flag, std::int64_t value) {
  return std::string(flag) + " " + std::to_string(value);
}

// Collects the layouts, one size after another.
class Space {
 public:
  Space(const Request& typed, const SpaceSizes& sizes) : typed_(typed), sizes_(sizes) {}

  LayoutSpace collect() {
    for (const std::int64_t t : chosen(typed_.ranks.tp, divisors(sizes_.ranks))) {
      const std::string name = dash("--tp", t);
      if (sizes_.ranks % t != 0) {
        refuse(name, "it does not divide the " + std::to_string(sizes_.ranks) + " ranks");
      } else if (sizes_.heads % t != 0) {
        refuse(name, "it does not divide the " + std::to_string(sizes_.heads) + " heads");
      } else if (t > sizes_.ranks_per_node && !typed_.ranks.tp) {
        refuse(name, "a tensor group of several nodes, which has " +
                         std::to_string(sizes_.ranks_per_node) + " ranks each");
      } else {
        layout_.tensor = static_cast<int>(t);
        add_pipelines();
      }
    }
    return std::move(space_);
  }

 private:
  void refuse(const std::string& layout, const std::string& reason) {
    space_.refused.push_back({layout, reason});
  }

  void add_pipelines() {
    const std::int64_t left = sizes_.ranks / layout_.tensor;
    for (const std::int64_t p : chosen(typed_.ranks.pp, divisors(left))) {
      const std::string name = dash("--tp", layout_.tensor) + dash(" --pp", p);
      if (left % p != 0) {
        refuse(name, "it does not divide the ranks");
      } else if (p > sizes_.layers) {
        refuse(name, "more pipeline ranks than the " + std::to_string(sizes_.layers) + " layers");
      } else if (sizes_.sequences % (left / p) != 0) {
        refuse(name, std::to_string(left / p) + " data ranks do not divide the " +
                         std::to_string(sizes_.sequences) + " sequences of a step");
      } else {
        layout_.pipeline = static_cast<int>(p);
        layout_.data = static_cast<int>(left / p);
        add_micro_batches();
      }
    }
  }

  void add_micro_batches() {
    const std::int64_t sequences = sizes_.sequences / layout_.data;
    for (const std::int64_t B : chosen(typed_.batch.batch_size, powers_of_two(kMostMicroBatch))) {
      if (sequences % B != 0) continue;
      if (typed_.batch.grad_accum && sequences / B != *typed_.batch.grad_accum) continue;
      layout_.micro_batch = B;
      layout_.micro_batches = sequences / B;
      add_chunks();
    }
  }

  void add_chunks() {
    for (const std::int64_t v : chosen(typed_.ranks.pp_chunks, powers_of_two(kMostChunks))) {
      const bool is_allowed =
          v == 1 || (layout_.pipeline > 1 && layout_.micro_batches % layout_.pipeline == 0 &&
                     layout_.pipeline * v <= sizes_.layers);
      if (!is_allowed) continue;
      layout_.chunks = static_cast<int>(v);
      add_shards();
    }
  }

  void add_shards() {
    for (const std::int64_t zero : chosen(typed_.ranks.zero, {0, 1, 2, 3})) {
      layout_.zero = layout_.data > 1 ? static_cast<int>(zero) : 0;
      if (layout_.data == 1 && zero > 0 && !typed_.ranks.zero) continue;
      const std::int64_t inside = sizes_.ranks_per_node / layout_.tensor;
      std::vector<std::int64_t> groups = {layout_.data};
      const bool has_nodes = inside > 1 && inside < layout_.data && layout_.data % inside == 0;
      if (has_nodes && layout_.zero > 0) groups.push_back(inside);
      if (typed_.ranks.shard_group.value_or(0) > 0) groups = {*typed_.ranks.shard_group};
      for (const std::int64_t group : groups) {
        layout_.shard_ranks = layout_.zero > 0 ? static_cast<int>(group) : 1;
        add_memory_modes();
      }
    }
  }

  void add_memory_modes() {
    const std::vector<Recompute> modes = {Recompute::none, Recompute::selective, Recompute::full};
    for (const Recompute mode : chosen(typed_.memory.recompute, modes)) {
      for (const bool offloads : {false, true}) {
        if (offloads && (typed_.memory.offload || !sizes_.can_offload)) continue;
        layout_.recompute = mode;
        layout_.offloads_optimizer = offloads;
        layout_.sequence_parallel =
            layout_.tensor > 1 && typed_.ranks.sequence_parallel.value_or(true);
        space_.layouts.push_back(layout_);
      }
    }
  }

  const Request& typed_;
  SpaceSizes sizes_;
  Layout layout_;
  LayoutSpace space_;
};

}  // namespace

LayoutSpace layout_space(const Request& typed, const SpaceSizes& sizes) {
  return Space(typed, sizes).collect();
}

std::string flags_of(const Layout& layout) {
  std::string text = dash("--tp", layout.tensor) + dash(" --pp", layout.pipeline);
  if (layout.sequence_parallel) text += " --sequence-parallel";
  if (layout.chunks > 1) text += dash(" --pp-chunks", layout.chunks);
  if (layout.data > 1) text += dash(" --zero", layout.zero);
  if (layout.zero > 0 && layout.shard_ranks < layout.data) {
    text += dash(" --shard-group", layout.shard_ranks);
  }
  text += dash(" --batch-size", layout.micro_batch) + dash(" --grad-accum", layout.micro_batches);
  if (layout.recompute != Recompute::none) {
    text += std::string(" --recompute ") + choice_name(layout.recompute);
  }
  return text + (layout.offloads_optimizer ? " --offload optimizer" : "");
}

Layout layout_of(const RunConfig& config) {
  const std::int64_t data = config.data_ranks(), group = config.ranks.shard_group;
  const auto zero = static_cast<int>(data > 1 ? config.ranks.zero : 0);
  return {.tensor = static_cast<int>(config.ranks.tp),
          .pipeline = static_cast<int>(config.ranks.pp),
          .chunks = static_cast<int>(config.ranks.pp_chunks),
          .data = static_cast<int>(data),
          .zero = zero,
          .shard_ranks = static_cast<int>(zero == 0    ? 1
                                          : group == 0 ? data
                                                       : group),
          .micro_batch = config.batch.batch_size,
          .micro_batches = config.batch.grad_accum,
          .recompute = config.memory.recompute,
          .sequence_parallel = config.ranks.sequence_parallel,
          .offloads_optimizer = config.run_shape().offload.optimizer.place != Place::device};
}

Request neutral_request(const Request& typed) {
  Request request = typed;
  request.ranks.tp.reset();
  request.ranks.pp.reset();
  request.ranks.pp_chunks.reset();
  request.ranks.shard_group.reset();
  request.ranks.sequence_parallel.reset();
  request.batch.batch_size = 1;
  request.batch.grad_accum = 1;
  request.batch.total_batch_tokens.reset();
  return request;
}

Request request_of(const Request& typed, const Layout& layout) {
  Request request = typed;
  request.ranks.tp = layout.tensor;
  request.ranks.pp = layout.pipeline;
  if (layout.pipeline > 1) request.ranks.pp_chunks = layout.chunks;
  if (layout.tensor > 1) request.ranks.sequence_parallel = layout.sequence_parallel;
  if (layout.data > 1 || !typed.ranks.zero) request.ranks.zero = layout.zero;
  if (layout.data > 1) {
    request.ranks.shard_group =
        layout.shard_ranks < layout.data && layout.zero > 0 ? std::int64_t{layout.shard_ranks} : 0;
  }
  request.batch.batch_size = layout.micro_batch;
  request.batch.grad_accum = layout.micro_batches;
  request.batch.total_batch_tokens.reset();
  request.memory.recompute = layout.recompute;
  if (!typed.memory.offload) {
    request.memory.offload = layout.offloads_optimizer ? std::vector<std::string>{"optimizer"}
                                                       : std::vector<std::string>{};
  }
  return request;
}

}  // namespace llmc
