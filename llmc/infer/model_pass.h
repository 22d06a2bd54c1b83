// The model as generation runs it: rows of several sequences in one pass, over a key-value cache.
// It composes the fused operations of ops/ over the weights of the layers of a Gpt2:
//
//   x = wte[token] + wpe[position]                                    embedding
//   for each block:
//     q = ln_1(x) · c_attn; keys and values go to the cache           norm, product, append
//     a = attention(q, cache)                                         attention
//     x += a · attn.c_proj                                            product, addition
//     h = gelu(ln_2(x) · c_fc)                                        norm, product, activation
//     x += h · mlp.c_proj                                             product, addition
//   logits = ln_f(x) · wteᵀ                                           norm, product (or lm_head)
//
// So a step has 5 L + 2 launches; sampling is one more. Sequence b uses slot b of the cache.
//
// A pass has the rows of prompts (read_prompts), of any sequences and positions, or one generated
// row per slot (step). The logits of a row depend on the weights, the tokens of its sequence and
// which of them were read as prompts, to the bit: not on the other rows, the slot, or the chunks in
// which a prompt was read. Every operation has one order of sums for any number of rows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "llmc/device/rows.h"
#include "llmc/infer/generation_pass.h"
#include "llmc/infer/kv_cache.h"
#include "llmc/models/gpt2/gpt2.h"
#include "llmc/models/int8_layout.h"
#include "llmc/nn/context.h"
#include "llmc/nn/memory_plan.h"
#include "llmc/ops/attention/decode_attention.h"
#include "llmc/ops/attention/prompt_attention.h"
#include "llmc/ops/code_embedding.h"
#include "llmc/ops/embedding.h"
#include "llmc/ops/gemm/invariant_gemm.h"

namespace llmc {

template <class T, class KV = T>
class ModelPass final : public GenerationPass {
 public:
  // Reserves memory in the plan; usable after plan.allocate() and clear(). `model` and `context`
  // must outlive this object.
  // `pass` matters only if the model has INT8 weights (models/int8_weights.h).
  ModelPass(const Gpt2<T>& model, Context& context, const BatchShape& shape, MemoryPlan& plan,
            const Int8Pass& pass = {})
      : model_(model),
        context_(context),
        shape_(validate(shape, model.config())),
        pass_(pass),
        cache_(model.config(), shape.slots, shape.capacity, plan) {
    require(context.tensor.ranks() == 1, "generation needs the whole model on its rank");
    const ModelConfig& config = model.config();
    const std::int64_t rows = shape.rows(), C = config.channels, NH = config.heads;
    for (Tensor<T, 2>* const buffer : {&x_, &q_, &attention_, &last_}) {
      plan.reserve("activations", *buffer, buffer == &last_ ? shape.slots : rows, C);
    }
    plan.reserve("activations", hidden_, rows, config.hidden_size());
    plan.reserve("activations", scratch_,
                 decode_attention_scratch(shape.slots, shape.capacity, NH, config.head_size()));
    plan.reserve("activations", counters_, decode_attention_counters(shape.slots, NH));
    if (kIsQuantized<KV>) {
      plan.reserve("activations", qkv_scratch_.sums, qkv_scratch(rows, C));
      plan.reserve("activations", qkv_scratch_.counters, qkv_counters(rows, NH));
    }
    plan.reserve("logits", logits_, std::max(shape.slots, shape.logits_rows),
                 round_up(config.num_logits(), kLogitColumns));
    for (Tensor<std::int32_t, 1>* const ids : {&row_token_, &row_position_, &row_slot_}) {
      plan.reserve("batch", *ids, shape.chunk);
    }
    plan.reserve("batch", tiles_, max_tiles());
    if (pass.quantizes_rows) plan.reserve("batch", faults_, shape.slots, shape.capacity);
  }
  ModelPass(const ModelPass&) = delete;
  ModelPass& operator=(const ModelPass&) = delete;

  void clear() override {
    fill_zero(counters_.data, counters_.size(), context_.stream);
    fill_zero(qkv_scratch_.counters.data, qkv_scratch_.counters.size(), context_.stream);
  }

  const ModelConfig& config() const override { return model_.config(); }
  const BatchShape& shape() const override { return shape_; }
  Stream& stream() override { return context_.stream; }

  void clear_faults(std::int64_t slot) override {
    if (faults_.data == nullptr) return;
    fill_zero(row_range(faults_, slot, 1).data, shape_.capacity, stream());
  }

  std::string fault_text(std::int64_t slot) override {
    if (faults_.data == nullptr) return {};
    std::vector<std::int32_t> sites(static_cast<std::size_t>(shape_.capacity));
    copy_to_host(sites.data(), row_range(faults_, slot, 1).data, std::ssize(sites), stream());
    stream().synchronize();
    const auto first = std::find_if(sites.begin(), sites.end(), [](int site) { return site > 0; });
    if (first == sites.end()) return {};
    const int site = *first - 1;
    return "the input of h." + std::to_string(site / 4) + "." +
           kBlockLayers[static_cast<std::size_t>(site % 4)] + " at token " +
           std::to_string(first - sites.begin()) + " is not finite";
  }

  Tensor<const float, 2> read_prompts(const std::vector<PromptChunk>& chunks) override {
    const std::int64_t rows = stage(chunks);
    const Tensor<T, 2> x = first_rows(x_, rows);
    embed(x, first_rows(row_token_, rows), first_rows(row_position_, rows));
    const Tensor<const PromptTile, 1> tiles =
        make_tensor(static_cast<const PromptTile*>(tiles_.data),
                    static_cast<std::int64_t>(tiles_staged_.size()));
    blocks(x, RowKind::prompt, first_rows(row_slot_, rows), first_rows(row_position_, rows),
           [&](std::int64_t layer, Tensor<T, 2> out, Tensor<T, 2> q) {
             prompt_attention<T, KV>(out, q, cache_.keys(layer), cache_.values(layer), tiles,
                                     config().heads, stream(), config().attention_scale(layer));
           });
    return write_logits(last_rows(chunks, x), RowKind::prompt);
  }

  Tensor<const float, 2> logits_of(std::int64_t first, std::int64_t count) override {
    require(count <= logits_.shape[0], "more rows of logits than the batch has memory for");
    return write_logits(row_range(x_, first, count), RowKind::prompt);
  }

  Tensor<const float, 2> step(In<std::int32_t, 1> token, In<std::int32_t, 1> position) override {
    const Tensor<T, 2> x = first_rows(x_, shape_.slots);
    embed(x, token, position);
    blocks(x, RowKind::generated, {}, position,
           [&](std::int64_t layer, Tensor<T, 2> out, Tensor<T, 2> q) {
             decode_attention<T, KV>(out, q, cache_.keys(layer), cache_.values(layer), position,
                                     scratch_, counters_, config().heads, stream(),
                                     config().attention_scale(layer));
           });
    return write_logits(x, RowKind::generated);
  }

  Tensor<const float, 2> step_logits() const override { return first_rows(logits_, shape_.slots); }

  std::int64_t cache_bytes_per_token() const override {
    return KvCache<KV>::bytes_per_token(config());
  }

 private:
  static constexpr std::int64_t kLogitColumns = 64;  // rows of logits start at cache lines

  static const BatchShape& validate(const BatchShape& shape, const ModelConfig& config) {
    require(shape.slots > 0 && shape.chunk > 0 && shape.capacity > 0 && shape.logits_rows >= 0,
            "a batch needs at least one sequence, one row of prompts and one token of cache");
    if (shape.capacity > config.context) {
      fail("a cache of " + std::to_string(shape.capacity) + " tokens exceeds the context of " +
               std::to_string(config.context),
           "use a capacity of at most the context");
    }
    return shape;
  }

  std::int64_t max_tiles() const { return ceil_div(shape_.chunk, kPromptTileRows) + shape_.slots; }

  // Copies tokens, positions, slots and tiles of a pass to device memory; returns the number of
  // rows. The host waits, because the next pass replaces the staged values.
  std::int64_t stage(const std::vector<PromptChunk>& chunks) {
    token_staged_.clear();
    position_staged_.clear();
    slot_staged_.clear();
    tiles_staged_.clear();
    for (const PromptChunk& chunk : chunks) stage(chunk);
    const std::int64_t rows = std::ssize(token_staged_);
    require(rows > 0 && rows <= shape_.chunk, "the chunks have no rows, or too many");
    copy_to_device(row_token_.data, token_staged_.data(), rows, stream());
    copy_to_device(row_position_.data, position_staged_.data(), rows, stream());
    copy_to_device(row_slot_.data, slot_staged_.data(), rows, stream());
    copy_to_device(tiles_.data, tiles_staged_.data(), std::ssize(tiles_staged_), stream());
    stream().synchronize();
    return rows;
  }

  void stage(const PromptChunk& chunk) {
    const std::int64_t count = std::ssize(chunk.tokens), end = chunk.first_position + count;
    require(count > 0 && chunk.slot >= 0 && chunk.slot < shape_.slots && chunk.first_position >= 0,
            "a chunk of a prompt has no tokens, or a slot that does not exist");
    require(end <= shape_.capacity, "a prompt does not fit the cache");
    const auto first_row = static_cast<std::int32_t>(token_staged_.size());
    for (std::int64_t i = 0; i < count; ++i) {
      token_staged_.push_back(chunk.tokens[static_cast<std::size_t>(i)]);
      position_staged_.push_back(static_cast<std::int32_t>(chunk.first_position + i));
      slot_staged_.push_back(static_cast<std::int32_t>(chunk.slot));
    }
    for (std::int64_t i = 0; i < count; i += kPromptTileRows) {
      const std::int64_t rows = std::min<std::int64_t>(kPromptTileRows, count - i);
      tiles_staged_.push_back({first_row + static_cast<std::int32_t>(i),
                               static_cast<std::int32_t>(rows),
                               static_cast<std::int32_t>(chunk.slot),
                               static_cast<std::int32_t>(chunk.first_position + i)});
    }
  }

  void embed(Tensor<T, 2> x, In<std::int32_t, 1> token, In<std::int32_t, 1> position) {
    const Embedding<T>& layer = model_.embedding();
    if (layer.tokens().has_codes()) {
      code_embedding<T>(x, token, layer.tokens().codes(), layer.positions().matrix(), position,
                        stream());
      return;
    }
    embedding_forward<T>(x, token, layer.tokens().matrix(), layer.positions().matrix(), 1,
                         VocabularySlice{0, config().vocabulary}, stream(), position.data);
  }

  // Arguments that the products of a pass share.
  struct PassRows {
    RowKind kind;
    In<std::int32_t, 1> slot, position;
  };

  // The product of a linear layer; `site` numbers the products.
  InvariantGemm<T> product(In<T, 2> inp, const Linear<T>& linear, const PassRows& rows,
                           std::int64_t site) const {
    InvariantGemm<T> result = linear.inference(inp);
    result.kind = rows.kind;
    result.activation = config().activation;
    result.quantizer = {.enabled = pass_.quantizes_rows, .zero_points = pass_.zero_points};
    if (pass_.scales != nullptr) set_scales(result, *pass_.scales, site);
    result.faults = {faults_.data, shape_.capacity, rows.slot.data, rows.position.data,
                     static_cast<std::int32_t>(site + 1)};
    return result;
  }
  static void set_scales(InvariantGemm<T>& product, const ActivationScales& scales,
                         std::int64_t site) {
    if (scales.smooths_gelu && site % 4 == 2)
      product.gelu_factors = row_range(scales.gelu_factors, site / 4, 1).data;
    if (!product.quantizer.enabled || scales.fixed.empty()) return;
    product.quantizer.is_fixed = true;
    product.quantizer.fixed = scales.fixed[static_cast<std::size_t>(site)];
  }
  InvariantGemm<T> product(In<T, 2> inp, const Norm<T>& norm, const Linear<T>& linear,
                           const PassRows& rows, std::int64_t site) const {
    InvariantGemm<T> result = product(inp, linear, rows, site);
    norm.fuse_into(result);
    return result;
  }

  // Replaces x (rows, C), the sum of the embeddings, by the output of the last block.
  template <class Attend>
  void blocks(Tensor<T, 2> x, RowKind kind, In<std::int32_t, 1> slot, In<std::int32_t, 1> position,
              const Attend& attend) {
    const std::int64_t rows = x.shape[0];
    const PassRows pass{kind, slot, position};
    const Tensor<T, 2> q = first_rows(q_, rows), a = first_rows(attention_, rows);
    const Tensor<T, 2> h = first_rows(hidden_, rows);
    for (std::int64_t l = 0; l < config().layers; ++l) {
      const Block<T>& block = model_.blocks()[static_cast<std::size_t>(l)];
      invariant_gemm_qkv<T, KV>(q, cache_.keys(l), cache_.values(l), slot, position,
                                product(x, block.ln_1(), block.c_attn(), pass, 4 * l), stream(),
                                qkv_scratch_);
      attend(l, a, q);
      invariant_gemm_add<T>(x, x, product(a, block.attention_c_proj(), pass, 4 * l + 1), stream());
      invariant_gemm_activation<T>(h, product(x, block.ln_2(), block.c_fc(), pass, 4 * l + 2),
                                   stream());
      invariant_gemm_add<T>(x, x, product(h, block.mlp_c_proj(), pass, 4 * l + 3), stream());
    }
  }

  // The rows of x (rows, C) at which a chunk ends whose logits are wanted, one after the other.
  Tensor<T, 2> last_rows(const std::vector<PromptChunk>& chunks, Tensor<T, 2> x) {
    std::int64_t row = 0, count = 0;
    for (const PromptChunk& chunk : chunks) {
      row += std::ssize(chunk.tokens);
      if (!chunk.wants_logits) continue;
      require(count < shape_.slots, "more logits are wanted than the batch has sequences");
      copy_on_device(row_range(last_, count, 1).data, row_range(x, row - 1, 1).data,
                     config().channels, stream());
      ++count;
    }
    return first_rows(last_, count);
  }

  Tensor<const float, 2> write_logits(Tensor<T, 2> x, RowKind kind) {
    const Tensor<float, 2> logits = first_rows(logits_, x.shape[0]);
    if (x.shape[0] == 0) return logits;
    InvariantGemm<T> product = model_.head().inference(x);
    model_.final_norm().fuse_into(product);
    product.kind = kind;
    invariant_gemm_logits<T>(logits, product, stream());
    return logits;
  }

  const Gpt2<T>& model_;
  Context& context_;
  BatchShape shape_;
  Int8Pass pass_;
  KvCache<KV> cache_;
  Tensor<T, 2> x_, q_, attention_;  // (rows, C)
  Tensor<T, 2> hidden_;             // (rows, H)
  Tensor<T, 2> last_;               // (slots, C)
  Tensor<float, 2> logits_;         // (slots, columns)
  Tensor<float, 1> scratch_;        // of decode attention
  Tensor<std::int32_t, 1> counters_;
  QkvScratch qkv_scratch_;                                       // only of an INT8 cache
  Tensor<std::int32_t, 1> row_token_, row_position_, row_slot_;  // (chunk)
  Tensor<PromptTile, 1> tiles_;
  Tensor<std::int32_t, 2> faults_;  // (slots, capacity): RowFaults::site_of_token
  std::vector<std::int32_t> token_staged_, position_staged_, slot_staged_;
  std::vector<PromptTile> tiles_staged_;
};

}  // namespace llmc
