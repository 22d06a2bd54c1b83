// Adapters in files that the engine cannot compute, or that do not fit the base model, are errors.
#include <string>
#include <vector>

#include "test/adapter_samples.h"

TEST_SUITE_BEGIN("adapter_faults");

using namespace llmc_test;
using llmc::AdapterConfig;
using llmc::AdapterKind;

TEST_CASE("a field that the engine cannot honour is an error that names file, field and value") {
  const auto with = [](const char* key, const char* value, const char* name = "lora_all") {
    return AdapterCopy(name).set(key, value).fault();
  };
  const std::string file = "DIR/adapter_config.json: ";
  for (const char* key : {"use_dora", "lora_bias", "use_qalora"}) {
    CHECK(with(key, "true") == file + key + " = true is not supported");
  }
  for (const char* key : {"trainable_token_indices", "target_parameters", "layer_replication",
                          "alora_invocation_tokens"}) {
    CHECK(with(key, "[1]") == file + key + " = [1] is not supported");
    CHECK(with(key, "[]") == "");
  }
  for (const char* key : {"use_bdlora", "kasa_config", "arrow_config", "monteclora_config"}) {
    CHECK(with(key, "{\"a\":1}") == file + key + " = {\"a\":1} is not supported");
  }
  CHECK(with("init_lora_weights", "\"pissa_niter_4\"") ==
        file + "init_lora_weights is pissa_niter_4, which changes the weights of the base model");
  CHECK(with("init_lora_weights", "\"gaussian\"") == "");
  CHECK(with("bias", "\"lora_only\"") == file + "bias is \"lora_only\"");
  CHECK(with("peft_type", "\"LOHA\"") == file + "peft_type is \"LOHA\"");
  CHECK(with("peft_type", "") == "DIR/adapter_config.json has no peft_type");
  CHECK(with("task_type", "\"TOKEN_CLS\"") == file + "task_type is \"TOKEN_CLS\"");
  CHECK(with("task_type", "null") == "");
  CHECK(with("modules_to_save", "[\"wte\"]") == file + "modules_to_save is [\"wte\"]");
  CHECK(with("modules_to_save", "[\"score\"]") == file + "modules_to_save is [\"score\"]");
  CHECK(with("modules_to_save", "[\"score\",\"classifier\",\"score\"]", "classifier") == "");
  CHECK(with("modules_to_save", "null", "classifier") == "");
  CHECK(with("r", "0") == file + "r is 0");
  CHECK(contains(with("r", "1.5"), file + "r is 1.5, not an integer"));
  CHECK(with("lora_alpha", "0") == file + "lora_alpha is 0");
  CHECK(with("lora_alpha", "\"16\"") == file + "lora_alpha is \"16\"");
  CHECK(with("lora_dropout", "1") == file + "lora_dropout is 1");
  CHECK(with("use_rslora", "1") == file + "use_rslora is 1");
  CHECK(with("rank_pattern", "[1]") == file + "rank_pattern is [1]");
  CHECK(with("rank_pattern", "{\"c_fc\":0}") == file + "rank_pattern: c_fc is 0");
  CHECK(with("alpha_pattern", "{\"c_fc\":null}") == file + "alpha_pattern: c_fc is null");
  CHECK(with("target_modules", "7") == file + "target_modules is 7");
  CHECK(with("target_modules", "[7]").starts_with(file + "target_modules"));
  CHECK(with("target_modules", "\"*c_attn\"")
            .starts_with(file + "target_modules: the regular expression *c_attn: "));
  CHECK(with("layers_to_transform", "[0]", "expression") == file + "layers_to_transform is [0]");
  CHECK(with("feedforward_modules", "[]", "ia3") ==
        file + "feedforward_modules does not select h.0.mlp.c_proj");
  CHECK(with("feedforward_modules", "[\"c_attn\",\"c_proj\"]", "ia3") ==
        file + "feedforward_modules selects h.0.attn.c_attn");
  CHECK(with("target_modules", "\"all-linear\"", "ia3") ==
        file + "target_modules selects h.0.attn.c_proj for IA3");
  CHECK(with("base_model_name_or_path", "[]").starts_with(file + "base_model_name_or_path"));
  CHECK(with("unknown", "[1]") == "");
  CHECK(with("velora_config", "null") == "");
}

TEST_CASE("tensors that do not fit the settings or the base model are errors") {
  const std::string file = "DIR/adapter_model.safetensors";
  const std::string layer = "base_model.model.transformer.h.0.attn.c_attn.";
  AdapterCopy copy("lora_c_attn");
  copy.set("target_modules", R"(["c_attn","c_fc"])");
  CHECK(copy.fault() == file +
                            " has no tensor base_model.model.transformer.h.0.mlp.c_fc.lora_A.weight"
                            ", although target_modules in DIR/adapter_config.json selects its "
                            "layer");
  copy.set("target_modules", R"(["c_attn"])").set("layers_to_transform", "1");
  CHECK(copy.fault() == file + ": tensor " + layer +
                            "lora_A.weight is in a layer that DIR/adapter_config.json does not "
                            "adapt");
  CHECK(AdapterCopy("lora_c_attn").set("target_modules", "[]").fault() == copy.fault());
  CHECK(AdapterCopy("lora_c_attn").set("r", "8").fault() ==
        file + ": tensor " + layer +
            "lora_A.weight has rank 4, but r or rank_pattern in DIR/adapter_config.json is 8");

  const auto changed = [&](const char* name, const auto& change) {
    return AdapterCopy(name).change_tensors(change).fault();
  };
  CHECK(changed("lora_c_attn", [](auto& headers, auto& contents) {
          headers.erase(headers.begin());
          contents.erase(contents.begin());
        }) == file + " has " + layer + "lora_B.weight but no " + layer + "lora_A.weight");
  CHECK(changed("lora_c_attn", [](auto& headers, auto&) {
          headers[1].shape = {4, 96};
        }) == file + ": tensor " + layer + "lora_B.weight has shape (4, 96), expected (96, 4)");
  CHECK(changed("lora_c_attn", [](auto& headers, auto&) { headers[0].shape = {128}; }) ==
        file + ": tensor " + layer + "lora_A.weight has shape (128), expected (4, 32)");
  CHECK(changed("ia3", [](auto& headers, auto&) {
          headers[0].shape = {1, 96};
        }) == file + ": tensor " + layer + "ia3_l has shape (1, 96), expected (96, 1)");
  CHECK(changed("classifier", [](auto& headers, auto&) {
          for (auto& header : headers) {
            if (header.name.ends_with("score.weight")) header.shape = {32, 3};
          }
        }) == file + ": tensor base_model.model.score.weight has shape (32, 3), expected (32, 32)");
  const auto extra = [](const char* name) {
    return [name](auto& headers, auto& contents) {
      headers.push_back({name, llmc::TensorDtype::f32, {1}});
      contents.emplace_back(4);
    };
  };
  for (const char* name : {"base_model.model.transformer.h.2.attn.c_attn.lora_A.weight",
                           "base_model.model.transformer.h.0.attn.c_attn.lora_magnitude_vector",
                           "base_model.model.score.weight", "wte.weight"}) {
    CHECK(changed("lora_c_attn", extra(name)) == file + ": tensor " + name +
                                                     " is not a part of a LoRA adapter of the "
                                                     "base model");
  }
  CHECK(changed("ia3", extra("base_model.model.transformer.h.0.mlp.c_fc.ia3_l")) ==
        file +
            ": tensor base_model.model.transformer.h.0.mlp.c_fc.ia3_l is not a part of an IA3 "
            "adapter of the base model");
  CHECK(AdapterCopy("lora_c_attn").set("task_type", "\"SEQ_CLS\"").fault() ==
        file + " has no tensor base_model.model.score.weight, although the adapter classifies");

  CHECK(AdapterCopy("lora_c_attn")
            .set("task_type", "null")
            .set("modules_to_save", "[\"score\"]")
            .fault() ==
        file + " has no tensor base_model.model.score.weight, although the adapter classifies");

  AdapterCopy pickled("ia3");
  fs::rename(pickled.file("adapter_model.safetensors"), pickled.file("adapter_model.bin"));
  CHECK(pickled.fault() == "DIR has its weights only in PyTorch's format, adapter_model.bin");
  fs::remove(pickled.file("adapter_model.bin"));
  CHECK(pickled.fault() == file + " is missing");
}

TEST_CASE("layers out of order or without such an adapter are not written") {
  const auto fault = [](const std::vector<std::string>& layers, AdapterKind kind) {
    return complaint(
        [&] { llmc::adapter_tensors(config_of(kind, layers, 2, 2, 1), adapted_model()); });
  };
  const auto lora = AdapterKind::lora;
  CHECK(fault({"h.0.attn.c_attn", "h.0.mlp.c_fc", "h.1.attn.c_attn"}, lora) == "");
  CHECK(contains(fault({"h.0.mlp.c_fc", "h.0.attn.c_attn"}, lora), "h.0.attn.c_attn does not fit"));
  CHECK(contains(fault({"h.2.mlp.c_fc"}, lora), "h.2.mlp.c_fc does not fit"));
  CHECK(contains(fault({"h.0.mlp.c_fc"}, AdapterKind::ia3), "IA3 cannot adapt h.0.mlp.c_fc"));
  CHECK(contains(complaint([&] {
                   llmc::adapter_tensors(config_of(lora, {"h.0.mlp.c_fc"}, 0, 2, 1),
                                         adapted_model());
                 }),
                 "h.0.mlp.c_fc: LoRA needs a rank above 0"));
  CHECK(contains(complaint([&] { llmc::adapter_config_text(AdapterConfig(), 2); }),
                 "no adapter to write"));
}

TEST_SUITE_END();
