// The adapters of a model: small parameters that fine-tuning adds to linear layers whose own
// weights are frozen.
//
// LoRA (Hu et al., 2021) adds scale · (x · Aᵀ) · B to the output of a layer. IA3 (Liu et al., 2022)
// multiplies the output of c_attn, bias included, and the input of mlp.c_proj, by a vector.
//
// The parameters of the adapter of a layer h.0.attn.c_attn, for example, are
//     h.0.attn.c_attn.lora_A.weight (R, inputs), h.0.attn.c_attn.lora_B.weight (R, outputs)
//     h.0.attn.c_attn.ia3_l (outputs), h.0.mlp.c_proj.ia3_l (inputs)
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace llmc {

enum class AdapterKind { none, lora, ia3 };

// The linear layers of a block, by GPT-2's names.
inline constexpr std::array<const char*, 4> kLinearLayers = {"attn.c_attn", "attn.c_proj",
                                                             "mlp.c_fc", "mlp.c_proj"};

struct LayerAdapter {
  std::string layer;      // "h.0.attn.c_attn"
  std::int64_t rank = 0;  // of LoRA, without padding
  double scale = 1;       // of LoRA: alpha / rank, or alpha / sqrt(rank)

  bool operator==(const LayerAdapter&) const = default;
};

struct AdapterShape {
  AdapterKind kind = AdapterKind::none;
  std::vector<LayerAdapter> layers = {};  // in the order of the model
  double dropout = 0;                     // of the input of LoRA's A
  // IA3 of c_attn: only keys and values are scaled, as in the paper. Its vector has 2C elements,
  // and in files C ones before them.
  bool fixes_query = false;

  bool operator==(const AdapterShape&) const = default;
};

}  // namespace llmc
