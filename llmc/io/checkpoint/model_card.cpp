#include "llmc/io/checkpoint/model_card.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>

#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/io/checkpoint/token_ids.h"

namespace llmc {

std::string generation_config_text(const HuggingFaceConfig& config) {
  Json json = {{"_from_model_config", false}};
  if (config.bos_token_id) json["bos_token_id"] = *config.bos_token_id;
  if (!config.eos_token_ids.empty()) {
    json["eos_token_id"] = token_ids_json(config.eos_token_ids);
    json["pad_token_id"] = config.eos_token_ids.front();
  }
  constexpr std::int64_t kMaxNewTokens = 128;
  json["max_new_tokens"] = std::clamp<std::int64_t>(config.n_positions / 2, 1, kMaxNewTokens);
  return json.dump(2) + "\n";
}

namespace model_card_detail {

std::string code(std::string_view text) {
  std::string cell = printable(text);
  for (char& c : cell) {
    if (c == '|' || c == '`') c = '?';
  }
  return std::string("`").append(cell).append("`");
}

namespace {

// 124439808 -> "124,439,808"
std::string group_digits(std::int64_t number) {
  const std::string digits = std::to_string(number);
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string loss_text(const MeasuredLoss& measured, bool is_classifier) {
  char text[128];
  if (is_classifier) {
    std::snprintf(text, sizeof text, "%.4f nats per text, after step %lld", measured.loss,
                  static_cast<long long>(measured.step));
    std::string line = text;
    if (!measured.macro_f1) return line;
    std::snprintf(text, sizeof text, "; macro F1 %.4f", *measured.macro_f1);
    return line + text;
  }
  std::snprintf(text, sizeof text, "%.4f nats per token (perplexity %.4g), after step %lld",
                measured.loss, std::exp(measured.loss), static_cast<long long>(measured.step));
  return text;
}

}  // namespace

std::string table(const std::vector<std::pair<std::string, std::string>>& rows) {
  std::string text = "| | |\n|---|---|\n";
  for (const auto& [key, value] : rows) text += "| " + key + " | " + value + " |\n";
  return text + "\n";
}

namespace {

std::string shape_table(const ModelCard& card) {
  const HuggingFaceConfig& c = card.config;
  std::vector<std::pair<std::string, std::string>> rows = {
      {"parameters", group_digits(card.parameters)},
      {"layers", std::to_string(c.n_layer)},
      {"attention heads", std::to_string(c.n_head)},
      {"channels", std::to_string(c.n_embd)},
      {"context", group_digits(c.n_positions) + " tokens"},
      {"vocabulary", group_digits(c.vocab_size) + " tokens"}};
  const std::string differences = differences_from_gpt2(c);
  if (!differences.empty()) rows.emplace_back("different from GPT-2", differences);
  std::string labels;
  for (const std::string& name : c.label_names) labels += (labels.empty() ? "" : ", ") + code(name);
  if (!labels.empty()) rows.emplace_back("labels", labels);
  rows.emplace_back("tokenizer", code(card.tokenizer));
  rows.emplace_back("stored as", "float32");
  return table(rows);
}

// All training texts, in the order in which they were first used. One text: its name. Several: each
// with its tokens.
std::string training_texts(const ModelCard& card) {
  std::vector<std::pair<std::string, std::int64_t>> texts;
  for (const TrainingStretch& stretch : card.history) {
    const auto known = std::ranges::find(texts, stretch.train, &decltype(texts)::value_type::first);
    if (known == texts.end()) {
      texts.emplace_back(stretch.train, stretch.tokens);
    } else {
      known->second += stretch.tokens;
    }
  }
  if (texts.size() < 2) return code(card.train);
  std::string all;
  for (const auto& [name, tokens] : texts) {
    all += (all.empty() ? "" : "<br>") + code(name) + ": " + group_digits(tokens) + " tokens";
  }
  return all;
}

std::string training_table(const ModelCard& card) {
  std::vector<std::pair<std::string, std::string>> rows = {
      {"started from",
       card.initial_weights.empty() ? "random weights" : code(card.initial_weights)},
      {"training text", training_texts(card)}};
  if (!card.validation.empty()) rows.emplace_back("validation text", code(card.validation));
  rows.emplace_back("optimizer steps", group_digits(card.step));
  rows.emplace_back(
      "tokens trained on",
      group_digits(card.tokens) + ", " + group_digits(card.tokens_per_step) + " in the last step");
  rows.emplace_back(card.history.size() > 1 ? "optimizer, at the end" : "optimizer",
                    card.optimizer);
  rows.emplace_back("arithmetic", card.arithmetic);
  const bool is_classifier = !card.config.label_names.empty();
  const auto add_loss = [&](const char* name, const MeasuredLoss& loss) {
    rows.emplace_back(name, loss_text(loss, is_classifier));
  };
  if (card.train_loss) add_loss("training loss, of one step", *card.train_loss);
  if (card.validation_loss) add_loss("validation loss", *card.validation_loss);
  if (card.best_loss &&
      card.best_loss->step != card.validation_loss.value_or(MeasuredLoss{}).step) {
    add_loss(is_classifier ? "best validation" : "lowest validation loss", *card.best_loss);
  }
  return table(rows);
}

std::string learning_rates(const TrainingStretch& stretch) {
  char text[96];
  if (stretch.max_lr == 0) return "not recorded";
  std::snprintf(text, sizeof text, "%.3g to %.3g, at most %.3g", stretch.first_lr, stretch.last_lr,
                stretch.max_lr);
  return text;
}

// One row per stretch, if there are several.
std::string history_table(const ModelCard& card) {
  if (card.history.size() < 2) return {};
  std::string text =
      "### History\n\n| steps | training text | tokens | learning rate | changes |\n"
      "|---|---|---|---|---|\n";
  for (const TrainingStretch& stretch : card.history) {
    std::string changes;
    for (const std::string& change : stretch.changes) {
      changes += (changes.empty() ? "" : "<br>") + code(change);
    }
    text += "| " + group_digits(stretch.first_step) + " to " + group_digits(stretch.last_step) +
            " | " + code(stretch.train) + " | " + group_digits(stretch.tokens) + " | " +
            learning_rates(stretch) + " | " + changes + " |\n";
  }
  return text + "\n";
}

// How a classifier is used.
std::string classifier_usage(const ModelCard& card) {
  std::string text =
      "With the engine that trained it, from the parent directory of this one, for a file with a "
      "text\non each line:\n\n    ./infer_gpt2 classify FILE --model " +
      card.name + (card.tokenizer_files ? "" : " --tokenizer TOKENIZER") + "\n";
  if (!card.tokenizer_files) return text;
  return text +
         "\nWith transformers:\n\n"
         "    from transformers import pipeline\n"
         "    print(pipeline(\"text-classification\", model=\"" +
         card.name + "\")(\"...\"))\n";
}

std::string usage(const ModelCard& card) {
  if (!card.config.label_names.empty()) return classifier_usage(card);
  const std::string engine =
      "With the engine that trained it, from the parent directory of this one:\n\n"
      "    ./infer_gpt2 --model " +
      card.name + (card.tokenizer_files ? "" : " --tokenizer TOKENIZER") +
      " --prompt \"...\" --tokens 40\n\n";
  if (card.tokenizer_files) {
    return engine +
           "With transformers:\n\n"
           "    from transformers import pipeline\n"
           "    print(pipeline(\"text-generation\", model=\"" +
           card.name + "\")(\"...\"))\n";
  }
  return engine +
         "With transformers (it cannot read this tokenizer, so input and output are ids):\n\n"
         "    import torch\n"
         "    from transformers import AutoModelForCausalLM\n"
         "    model = AutoModelForCausalLM.from_pretrained(\"" +
         card.name +
         "\")\n"
         "    print(model.generate(torch.tensor([[0]])))\n";
}

}  // namespace

}  // namespace model_card_detail

std::string model_card_text(const ModelCard& card) {
  using namespace model_card_detail;
  const bool is_classifier = !card.config.label_names.empty();
  const std::string task = is_classifier ? "text-classification" : "text-generation";
  return "---\n"
         "library_name: transformers\n"
         "pipeline_tag: " +
         task + "\ntags:\n- gpt2\n- " + task +
         "\n---\n\n"
         "# " +
         card.name + "\n\nA GPT-2 " + (is_classifier ? "classifier of texts" : "language model") +
         ", as it was after training step " + std::to_string(card.step) + ".\n\n## Model\n\n" +
         shape_table(card) + "## Training\n\n" + training_table(card) + history_table(card) +
         "The licence of the training text is not recorded here" +
         (is_classifier ? ".\n\n"
                        : ", and the output of the model has\n"
                          "not been examined for passages copied from that text.\n\n") +
         "## Use\n\n" + usage(card);
}

}  // namespace llmc
