#include "llmc/config/train_finetune_settings.h"

#include <algorithm>
#include <array>
#include <utility>

#include "llmc/config/setting.h"
#include "llmc/config/train_settings.h"

// A row names only the columns it needs, which causes this warning. (Default member initializers
// would prevent it, but they crash g++ 12.)
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

namespace llmc {

namespace {

// The names of linear layers in --lora-targets, and the layers of a block that each stands for.
struct LoraTarget {
  const char* name;
  std::array<bool, 4> layers;  // in the order of kLinearLayers
};
constexpr std::array<LoraTarget, 6> kLoraTargets = {{{"c_attn", {true, false, false, false}},
                                                     {"attn.c_proj", {false, true, false, false}},
                                                     {"c_fc", {false, false, true, false}},
                                                     {"mlp.c_proj", {false, false, false, true}},
                                                     {"c_proj", {false, true, false, true}},
                                                     {"all", {true, true, true, true}}}};

// Returns the error of an entry of --lora-targets, or an empty text.
std::string lora_target_error(const std::string& entry) {
  if (std::ranges::any_of(kLoraTargets, [&](const auto& t) { return entry == t.name; })) return {};
  return "'" + entry + "' is no linear layer; allowed: c_attn, attn.c_proj, c_fc, mlp.c_proj, all";
}

void require_one_list(const Resolution<TrainProgram>& r) {
  const FinetuneSettings<Resolved>& finetune = r.config.finetune;
  const std::vector<std::string>&only = finetune.train_only, &freeze = finetune.freeze;
  if (only.empty() || freeze.empty()) return;
  fail_usage("--train-only and --freeze exclude each other",
             "--train-only names all parameters that learn, --freeze all that do not");
}

// The flag that gives the run an adapter, or an empty text.
std::string adapter_flag(const FinetuneSettings<Resolved>& finetune) {
  if (!finetune.adapter.empty()) return "--adapter";
  if (finetune.lora > 0) return "--lora";
  return finetune.ia3 ? "--ia3" : "";
}

void check_adapter_flags(const Resolution<TrainProgram>& r) {
  const FinetuneSettings<Resolved>& finetune = r.config.finetune;
  if (finetune.lora > 0 && finetune.ia3)
    fail_usage("--lora and --ia3 exclude each other", "give one of them");
  const bool is_new = finetune.lora > 0 || finetune.ia3;
  if (is_new && !finetune.adapter.empty()) {
    fail_usage("--adapter brings its own adapter, so --lora and --ia3 have no place next to it",
               "leave them out, or leave out --adapter to begin a new one");
  }
  const std::string flag = adapter_flag(finetune);
  if (flag.empty()) {
    if (finetune.ia3_targets == Ia3Targets::all) return;
    fail_usage("--ia3-targets kv needs --ia3, or --adapter with IA3", "add --ia3");
  }
  if (finetune.train_only.empty() && finetune.freeze.empty()) return;
  fail_usage(flag + " freezes the model, so --train-only and --freeze have no place next to it",
             "leave them out");
}

void check_base_quant(const Resolution<TrainProgram>& r) {
  if (r.config.finetune.base_quant == BaseQuant::none) return;
  if (adapter_flag(r.config.finetune).empty()) {
    fail_usage("--base-quant w8 is for the model under an adapter",
               "add --lora, --ia3 or --adapter");
  }
  const RankSettings<Resolved>& ranks = r.config.ranks;
  if (ranks.tp == 1 && ranks.pp == 1 && ranks.zero < 3) return;
  fail_usage("--base-quant w8 works on data-parallel ranks with --zero 0 to 2",
             "leave out --tp, --pp and --zero 3, or leave out --base-quant");
}

void require_base(const Resolution<TrainProgram>& r) {
  const std::string flag = adapter_flag(r.config.finetune);
  if (flag.empty() || !r.config.model.init_from.empty()) return;
  if (r.request.ranks.dry_run.value_or(false) || r.request.ranks.plan.value_or(false)) return;
  fail_usage(flag + " adapts a model that exists", "give the model with --init-from DIR");
}

}  // namespace

void refuse_qat_with_adapter(const Resolution<TrainProgram>& r) {
  const std::string flag = adapter_flag(r.config.finetune);
  if (flag.empty() || r.config.qat.mode == QatMode::none) return;
  fail_usage("--qat does not train adapters, and " + flag + " is given",
             "merge the adapter first (infer_gpt2 merge), then train the result with --qat");
}

AdapterConfig new_adapter(const FinetuneSettings<Resolved>& finetune, const ModelConfig& model) {
  AdapterConfig config{.rank = 0, .alpha = 0};
  if (finetune.lora == 0 && !finetune.ia3) return config;
  config.shape.kind = finetune.ia3 ? AdapterKind::ia3 : AdapterKind::lora;
  std::array<bool, 4> layers = {finetune.ia3, false, false, finetune.ia3};
  if (finetune.ia3) {
    config.shape.fixes_query = finetune.ia3_targets == Ia3Targets::kv;
  } else {
    config.rank = finetune.lora;
    config.alpha = finetune.lora_alpha;
    config.rslora = finetune.rslora;
    config.shape.dropout = finetune.lora_dropout;
    for (const LoraTarget& target : kLoraTargets) {
      if (std::ranges::find(finetune.lora_targets, target.name) == finetune.lora_targets.end())
        continue;
      for (std::size_t i = 0; i < layers.size(); ++i) layers[i] = layers[i] || target.layers[i];
    }
  }
  const double scale = finetune.ia3 ? 1 : lora_scale(config.alpha, config.rank, config.rslora);
  for (std::int64_t l = 0; l < model.layers; ++l) {
    for (std::size_t i = 0; i < layers.size(); ++i) {
      if (!layers[i]) continue;
      const std::string name = "h." + std::to_string(l) + "." + kLinearLayers[i];
      config.shape.layers.push_back({.layer = name, .rank = config.rank, .scale = scale});
    }
  }
  return config;
}

namespace {

Settings<TrainProgram> frozen_rows() {
  return {
      {.flag = "--train-only",
       .field = [](auto& s) -> decltype(auto) { return (s.finetune.train_only); },
       .unit = "PATTERN,...",
       .help = "train only the parameters whose whole names match one of these patterns of the "
               "shell, such as 'h.1[01].*,ln_f.*'; the others are frozen: no gradient, no "
               "optimizer state, no weight decay",
       .fallback = "all parameters learn",
       .changes_results = true,
       .on_resume = OnResume::fixed},
      {.flag = "--freeze",
       .field = [](auto& s) -> decltype(auto) { return (s.finetune.freeze); },
       .unit = "PATTERN,...",
       .help = "freeze the parameters that match, such as 'wte.*,wpe.*,h.[0-5].*', and train the "
               "others. (The backward pass ends at the lowest block that learns; blocks below "
               "keep no activations)",
       .fallback = "nothing is frozen",
       .changes_results = true,
       .on_resume = OnResume::fixed,
       .verify = require_one_list},
  };
}

Settings<TrainProgram> lora_rows() {
  return {
      {.flag = "--lora",
       .field = [](auto& s) -> decltype(auto) { return (s.finetune.lora); },
       .unit = "R",
       .help = "freeze the model and train LoRA adapters of this rank (Hu et al., 2021). A "
               "checkpoint then is an adapter of PEFT, and needs the model of --init-from",
       .fallback = "no LoRA",
       .range = between(1, 65536),
       .changes_results = true,
       .on_resume = OnResume::fixed},
      {.flag = "--lora-alpha",
       .field = [](auto& s) -> decltype(auto) { return (s.finetune.lora_alpha); },
       .unit = "A",
       .help = "an adapter's product is multiplied by A / R",
       .fallback = {"2 R",
                    [](const Resolution<TrainProgram>& r) {
                      return SettingValue(2.0 * static_cast<double>(r.config.finetune.lora));
                    }},
       .range = between(1e-6, 1e9),
       .changes_results = true,
       .on_resume = OnResume::fixed},
      {.flag = "--lora-targets",
       .field = [](auto& s) -> decltype(auto) { return (s.finetune.lora_targets); },
       .unit = "LAYER,...",
       .help = "the linear layers with an adapter: c_attn, attn.c_proj, c_fc, mlp.c_proj, or all",
       .fallback = SettingValue(std::vector<std::string>{"c_attn"}),
       .changes_results = true,
       .on_resume = OnResume::fixed,
       .check = [](const std::string& text) { return lora_target_error(text); }},
      {.flag = "--lora-dropout",
       .field = [](auto& s) -> decltype(auto) { return (s.finetune.lora_dropout); },
       .unit = "P",
       .help = "dropout of the inputs of adapters, and of nothing else",
       .fallback = 0.0,
       .range = between(0, 0.99),
       .changes_results = true,
       .on_resume = OnResume::noted},
      {.flag = "--rslora",
       .field = [](auto& s) -> decltype(auto) { return (s.finetune.rslora); },
       .help = "multiply by A / sqrt(R) instead (Kalajdzievski, 2023)",
       .changes_results = true,
       .on_resume = OnResume::fixed},
  };
}

Settings<TrainProgram> ia3_rows() {
  return {
      {.flag = "--ia3",
       .field = [](auto& s) -> decltype(auto) { return (s.finetune.ia3); },
       .help = "freeze the model and train IA3 adapters (Liu et al., 2022): vectors that scale the "
               "outputs of c_attn and the inputs of mlp.c_proj, as PEFT has them for GPT-2",
       .changes_results = true,
       .on_resume = OnResume::fixed},
      {.flag = "--ia3-targets",
       .field = [](auto& s) -> decltype(auto) { return (s.finetune.ia3_targets); },
       .help = "the outputs of c_attn that IA3 scales: all, or keys and values as in the paper",
       .fallback = SettingValue("all"),
       .changes_results = true,
       .on_resume = OnResume::fixed},
      {.flag = "--adapter",
       .field = [](auto& s) -> decltype(auto) { return (s.finetune.adapter); },
       .unit = "DIR",
       .help = "train on, or with --steps 0 evaluate, an adapter of PEFT or of another run, on the "
               "model of --init-from or, without that, on the one that the adapter names",
       .fallback = "no adapter",
       .changes_results = true,
       .on_resume = OnResume::ignored,
       .verify =
           [](const Resolution<TrainProgram>& r) {
             check_adapter_flags(r);
             require_base(r);
           }},
      {.flag = "--base-quant",
       .field = [](auto& s) -> decltype(auto) { return (s.finetune.base_quant); },
       .help =
           "with an adapter: keep the matrices of the model as INT8 codes with a scale per output "
           "(w8), of which one at a time is dequantized; on data-parallel ranks with --zero 0 "
           "to 2",
       .fallback = SettingValue("none"),
       .changes_results = true,
       .on_resume = OnResume::fixed,
       .verify = check_base_quant},
  };
}

}  // namespace

Settings<TrainProgram> finetune_rows() {
  Settings<TrainProgram> rows = frozen_rows();
  for (Settings<TrainProgram> more : {lora_rows(), ia3_rows()}) {
    rows.insert(rows.end(), std::make_move_iterator(more.begin()),
                std::make_move_iterator(more.end()));
  }
  return rows;
}

}  // namespace llmc
