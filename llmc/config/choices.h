// Settings with a fixed set of names. The names of an enum are in the order of its values.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "llmc/base/suggestions.h"
#include "llmc/comm/comm_choice.h"
#include "llmc/device/dtype.h"
#include "llmc/io/data/documents.h"
#include "llmc/io/data/token_file.h"

namespace llmc {

// Where a program runs; automatic: on a GPU if there is one.
enum class DeviceChoice { automatic, cuda, host };

// Learning-rate schedule after warm-up. wsd (warm-up, stable, decay; Hu et al., "MiniCPM", 2024)
// keeps the peak rate until the last part of the run, in which the rate falls linearly to the final
// one. The decay can start after any step of the stable part, so one long run serves several
// budgets.
enum class Decay { cosine, linear, constant, wsd };

// `standard` stores the (T, T) matrix of probabilities. It is a baseline.
enum class Attention { flash, standard };

// Activations that the backward pass computes again instead of reading what the forward pass stored
// (models/gpt2/activations.h).
enum class Recompute { none, selective, full };

// Where the optimizer updates the weights: on the device, or, if its state is in host memory, on
// the processors of the host (ZeRO-Offload).
enum class OptimizerOn { device, cpu };

// INT8 in inference: w8: weights; w8a8: weights, and activations where products read them, with a
// scale per token; w8a8-static: with scales from a calibration text.
enum class Quant { none, w8, w8a8, w8a8_static };

// Whether smoothing is used where it helps, or never.
enum class Smoothing { automatic, off };

// Quantization in the forward pass of training: none, INT8 weights (w8), or weights and activations
// (w8a8).
enum class QatMode { none, w8, w8a8 };

// Zero points of INT8 activations: their codes cover the range of the values, not a symmetric one.
enum class ZeroPoints { automatic, off };

// The outputs of c_attn that IA3 scales: queries, keys and values, or keys and values as in the
// paper.
enum class Ia3Targets { all, kv };

// The matrices of the model on which adapters train: as they are, or as INT8 codes with a scale per
// output.
enum class BaseQuant { none, w8 };

// The task that a model learns: to continue texts (a language model), to give each text one label
// (a classifier), or to continue conversations as their assistant.
enum class Task { lm, classify, chat };

// The result of an evaluation that --keep-best compares.
enum class KeepBestBy { loss, macro_f1 };

// Who writes checkpoints: rank 0, while all ranks wait, or each rank its part on a thread of its
// own, while training continues.
enum class SaveMode { sync, async };

// After a step whose loss or gradient is not finite, when its cause is reported: the run ends, or
// it skips the update.
enum class OnNan { stop, skip };

// How ranks divide the model and the batch: as flags and their defaults have it, or as is predicted
// to be the fastest.
enum class MeshChoice { flags, automatic };

// Storage of a key-value cache: as the numbers of a model, or as INT8 codes with scales.
enum class CacheDtype { fp32, bf16, fp16, int8 };

// Documents that tokenize drops: none, those with the same bytes, or near duplicates as well.
enum class Dedup { none, exact, near };

inline constexpr std::array<const char*, 3> choice_names(DeviceChoice) {
  return {"auto", "cuda", "host"};
}
inline constexpr std::array<const char*, 4> choice_names(Decay) {
  return {"cosine", "linear", "constant", "wsd"};
}
inline constexpr std::array<const char*, 2> choice_names(Attention) {
  return {"flash", "standard"};
}
inline constexpr std::array<const char*, 3> choice_names(Recompute) {
  return {"none", "selective", "full"};
}
inline constexpr std::array<const char*, 2> choice_names(OptimizerOn) {
  return {"device", "cpu"};
}
inline constexpr std::array<const char*, 2> choice_names(OnNan) {
  return {"stop", "skip"};
}
inline constexpr std::array<const char*, 2> choice_names(SaveMode) {
  return {"sync", "async"};
}
inline constexpr std::array<const char*, 4> choice_names(Quant) {
  return {"none", "w8", "w8a8", "w8a8-static"};
}
inline constexpr std::array<const char*, 2> choice_names(Smoothing) {
  return {"auto", "off"};
}
inline constexpr std::array<const char*, 3> choice_names(QatMode) {
  return {"none", "w8", "w8a8"};
}
inline constexpr std::array<const char*, 2> choice_names(ZeroPoints) {
  return {"auto", "off"};
}
inline constexpr std::array<const char*, 2> choice_names(BaseQuant) {
  return {"none", "w8"};
}
inline constexpr std::array<const char*, 2> choice_names(Ia3Targets) {
  return {"all", "kv"};
}
inline constexpr std::array<const char*, 3> choice_names(Task) {
  return {"lm", "classify", "chat"};
}
inline constexpr std::array<const char*, 2> choice_names(KeepBestBy) {
  return {"loss", "macro-f1"};
}
inline constexpr std::array<const char*, 3> choice_names(Dedup) {
  return {"none", "exact", "near"};
}
inline constexpr std::array<const char*, 3> choice_names(DocumentFormat::Kind) {
  return {"auto", "txt", "jsonl"};
}
inline constexpr std::array<const char*, 2> choice_names(BinFormat) {
  return {"llmc", "nanogpt"};
}
inline constexpr std::array<const char*, 2> choice_names(MeshChoice) {
  return {"flags", "auto"};
}
inline constexpr std::array<const char*, 4> choice_names(CommChoice) {
  return {"auto", "mpi", "nccl", "tcp"};
}
inline constexpr std::array<const char*, 3> choice_names(Dtype) {
  return {"fp32", "bf16", "fp16"};
}
inline constexpr std::array<const char*, 4> choice_names(CacheDtype) {
  return {"fp32", "bf16", "fp16", "int8"};
}

// Names of choices in other programs. An error about one of them suggests ours.
template <class Choice>
std::vector<KnownName> other_choice_names(Choice) {
  return {};
}
std::vector<KnownName> other_choice_names(Dtype);
inline std::vector<KnownName> other_choice_names(Quant) {
  return {{"int8", "w8a8"}, {"q8_0", "w8"}, {"int8_float32", "w8a8"}, {"w8a16", "w8"}};
}
std::vector<KnownName> other_choice_names(CacheDtype);
inline std::vector<KnownName> other_choice_names(DeviceChoice) {
  return {{"gpu", "cuda"}, {"cuda:0", "cuda"}, {"nvidia", "cuda"}, {"cpu", "host"}};
}
inline std::vector<KnownName> other_choice_names(Decay) {
  return {{"cosine-annealing", "cosine"}, {"none", "constant"}, {"warmup-stable-decay", "wsd"}};
}
std::vector<KnownName> other_choice_names(Attention);
inline std::vector<KnownName> other_choice_names(Recompute) {
  return {{"off", "none"}, {"core_attn", "selective"}, {"block", "full"}, {"uniform", "full"}};
}

inline std::vector<KnownName> other_choice_names(Task) {
  return {{"classification", "classify"},
          {"text-classification", "classify"},
          {"sequence-classification", "classify"},
          {"causal-lm", "lm"},
          {"language", "lm"},
          {"sft", "chat"},
          {"conversations", "chat"},
          {"instruct", "chat"}};
}
inline std::vector<KnownName> other_choice_names(KeepBestBy) {
  return {
      {"f1", "macro-f1"}, {"macro_f1", "macro-f1"}, {"eval_loss", "loss"}, {"val_loss", "loss"}};
}

inline std::vector<KnownName> other_choice_names(OptimizerOn) {
  return {{"gpu", "device"}, {"cuda", "device"}, {"host", "cpu"}};
}

template <class Choice>
const char* choice_name(Choice choice) {
  return choice_names(choice)[static_cast<std::size_t>(choice)];
}

// The storage of a cache as the numbers of a model of a dtype.
inline constexpr CacheDtype cache_dtype(Dtype dtype) {
  switch (dtype) {
    case Dtype::bf16:
      return CacheDtype::bf16;
    case Dtype::fp16:
      return CacheDtype::fp16;
    case Dtype::int8:
      return CacheDtype::int8;
    default:
      return CacheDtype::fp32;
  }
}

inline constexpr Dtype dtype_of(CacheDtype cache) {
  for (const Dtype dtype : {Dtype::bf16, Dtype::fp16, Dtype::int8}) {
    if (cache_dtype(dtype) == cache) return dtype;
  }
  return Dtype::fp32;
}

}  // namespace llmc
