// Directories of classifiers: config.json with labels, weights with score.weight, and transformers
// reading ours.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "llmc/base/json.h"
#include "llmc/config/huggingface_shape.h"
#include "llmc/io/checkpoint/huggingface.h"
#include "test/support.h"

TEST_SUITE_BEGIN("classifier_files");

namespace {

using namespace llmc;
using llmc_test::complaint;
using llmc_test::contains;
using llmc_test::TemporaryDirectory;
using Names = std::vector<std::string>;

HuggingFaceConfig classifier() {
  HuggingFaceConfig config;
  config.vocab_size = 13;
  config.n_positions = 8;
  config.n_layer = 1;
  config.n_head = 1;
  config.n_embd = 8;
  config.bos_token_id = 12;
  config.eos_token_ids = {12};
  config.label_names = {"negative", "neutral \"0\"", "positive\n"};
  config.pad_token_id = 12;
  return config;
}

HuggingFaceConfig parse(const std::string& text) {
  return parse_huggingface_config(text, "dir/config.json");
}

// The text of the config with other values of some keys; an empty value removes its key.
std::string config_with(const std::vector<std::pair<std::string, std::string>>& values) {
  Json json = parse_json(huggingface_config_text(classifier(), TensorDtype::f32), "JSON");
  for (const auto& [key, value] : values) {
    if (value.empty()) json.erase(key);
    if (!value.empty()) json[key] = parse_json(value, "JSON");
  }
  return json.dump();
}

std::string error_with(const std::vector<std::pair<std::string, std::string>>& values) {
  return complaint([&] { parse(config_with(values)); });
}

Names names_with(const std::vector<std::pair<std::string, std::string>>& values) {
  return parse(config_with(values)).label_names;
}

void write_weights(const std::filesystem::path& folder, const std::vector<TensorHeader>& tensors) {
  SafetensorsWriter writer(folder / kWeightsName, tensors);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::vector<float> values(static_cast<std::size_t>(*checked_count(tensors[i].shape)),
                                    static_cast<float>(i));
    writer.write(tensors[i].name, std::as_bytes(std::span(values)));
  }
  writer.finish();
}

}  // namespace

TEST_CASE("labels and the pad token are written as transformers does, and read back") {
  const std::string text = huggingface_config_text(classifier(), TensorDtype::f32);
  CHECK(parse(text) == classifier());
  const Json json = parse_json(text, "JSON");
  CHECK(json["architectures"] == Json({"GPT2ForSequenceClassification"}));
  CHECK(json["id2label"] == Json({{"0", "negative"}, {"1", "neutral \"0\""}, {"2", "positive\n"}}));
  CHECK(json["label2id"] == Json({{"negative", 0}, {"neutral \"0\"", 1}, {"positive\n", 2}}));
  CHECK(json["pad_token_id"] == Json(12));
  CHECK(json["problem_type"] == Json("single_label_classification"));

  HuggingFaceConfig config = classifier();
  config.pad_token_id.reset();
  config.label_names.assign({"", "1"});
  CHECK(parse(huggingface_config_text(config, TensorDtype::bf16)) == config);
  // Many labels take no time that grows with their square.
  config.label_names = default_label_names(65536);
  CHECK(parse(huggingface_config_text(config, TensorDtype::f32)) == config);
}

TEST_CASE("labels that transformers leaves out have its default names") {
  const Names two{"LABEL_0", "LABEL_1"};
  CHECK(names_with({{"id2label", ""}, {"label2id", ""}}) == two);
  CHECK(names_with({{"id2label", "null"}}) == two);
  CHECK(names_with({{"id2label", ""}, {"num_labels", "3"}}) ==
        Names{"LABEL_0", "LABEL_1", "LABEL_2"});
  CHECK(names_with({{"num_labels", "3"}}) == classifier().label_names);
  // The order of the keys does not matter; "10" is after "9".
  std::string map;
  for (int id = 11; id >= 0; --id) {
    map += (map.empty() ? "{" : ", ") + json_quoted(std::to_string(id)) + ": " +
           json_quoted("n" + std::to_string(id));
  }
  const Names many = names_with({{"id2label", map + "}"}});
  CHECK(many.size() == 12);
  CHECK(many[2] == "n2");
  CHECK(many[10] == "n10");
  CHECK(parse(config_with({{"pad_token_id", "null"}})).pad_token_id == std::nullopt);
  CHECK(parse(config_with({{"pad_token_id", ""}})).pad_token_id == std::nullopt);
  CHECK(parse(config_with({{"problem_type", "null"}})) == classifier());
}

TEST_CASE("labels that are no numbering from 0 with different names are an error") {
  CHECK(error_with({{"id2label", R"({"0": "a", "2": "b"})"}}) ==
        "dir/config.json: id2label has no label 1\n  hint: number its 2 labels from 0");
  CHECK(contains(error_with({{"id2label", R"({"1": "a", "2": "b"})"}}), "has no label 0"));
  CHECK(contains(error_with({{"id2label", R"({"0": "a", "01": "b"})"}}), "has no label 1"));
  CHECK(contains(error_with({{"id2label", R"({"0": "a"})"}}), "id2label has 1 labels\n"));
  CHECK(contains(error_with({{"id2label", "{}"}}), "id2label has 0 labels\n"));
  CHECK(contains(error_with({{"id2label", R"(["a", "b"])"}}), "id2label is no object\n"));
  CHECK(contains(error_with({{"id2label", R"({"0": "a", "1": 1})"}}),
                 "id2label: label 1 is not a string"));
  CHECK(
      contains(error_with({{"id2label", R"({"0": "a", "1": null})"}}), "label 1 is not a string"));
  CHECK(error_with({{"id2label", R"({"0": "a", "1": "b", "2": "a"})"}}) ==
        "dir/config.json: id2label has two labels with the name a\n"
        "  hint: give each label a name of its own");
  CHECK(contains(error_with({{"num_labels", "4"}}), "has 3 labels, but num_labels is 4"));
  for (const char* count : {"1", "0", "70000"}) {
    CHECK(contains(error_with({{"id2label", ""}, {"num_labels", count}}),
                   std::string("num_labels is ") + count + "\n"));
  }
  CHECK(contains(error_with({{"problem_type", "\"regression\""}}),
                 "problem_type is \"regression\"\n  hint: supported: single_label_classification"));
  CHECK(contains(error_with({{"problem_type", "1"}}), "problem_type is 1\n"));
  CHECK(contains(error_with({{"pad_token_id", "13"}}),
                 "pad_token_id is 13\n  hint: allowed: null, or a token below vocab_size = 13"));
  CHECK(contains(error_with({{"pad_token_id", "-1"}}), "pad_token_id is -1"));
}

TEST_CASE("a language model has no labels, whatever default names its config has") {
  for (const char* architectures :
       {R"(["GPT2LMHeadModel"])", R"("GPT2ForSequenceClassification")", "null", "[]", ""}) {
    CAPTURE(architectures);
    const HuggingFaceConfig config = parse(config_with({{"architectures", architectures}}));
    CHECK(config.label_names.empty());
    CHECK(!config.pad_token_id);
    CHECK(from_huggingface(config, "c").labels == 0);
  }
  CHECK(from_huggingface(classifier(), "c").labels == 3);
  HuggingFaceConfig named = to_huggingface(from_huggingface(classifier(), "c"), 12);
  CHECK(named.label_names == default_label_names(3));
  CHECK(named.pad_token_id == 12);
}

TEST_CASE("score.weight is the head of a classifier, other heads are ignored") {
  const TemporaryDirectory folder;
  const auto f32 = TensorDtype::f32;
  write_weights(folder.path(), {{"transformer.wte.weight", f32, {3, 2}},
                                {"lm_head.weight", f32, {3, 2}},
                                {"score.weight", f32, {2, 2}}});
  const HuggingFaceWeights weights(folder.path(), StoredHead::score);
  CHECK(weights.names() == Names{"score.weight", "wte.weight"});
  std::vector<float> score(4);
  weights.load("score.weight", {2, 2}, score.data());
  CHECK(score == std::vector<float>{2, 2, 2, 2});
  CHECK(contains(complaint([&] {
                   weights.load("score.weight", {3, 2}, score.data());
                 }),
                 "tensor score.weight has shape (2, 2), expected (3, 2)"));
  // For a language model, score.weight is another head.
  const HuggingFaceWeights untied(folder.path(), StoredHead::own);
  CHECK(untied.names() == Names{"lm_head.weight", "wte.weight"});
  CHECK(huggingface_name("score.weight") == "score.weight");
  CHECK(stored_head(classifier()) == StoredHead::score);
}

TEST_SUITE_END();
