#include "llmc/config/trainer_config.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "llmc/config/bare_words.h"
#include "llmc/config/infer_table.h"
#include "llmc/config/train_table.h"

namespace llmc {

namespace {

constexpr std::array<std::string_view, 4> kSameMeaning = {"tokenizer", "device", "dtype", "quiet"};

bool trainer_has(const ConfigLine& line) {
  return find_setting(train_settings(), "--" + line.name) != nullptr;
}

// Whether a line is the trainer's size of a model, such as "d12", and not a path.
bool is_trainer_size(const ConfigLine& line) {
  return line.name == "model" && line.values.size() == 1 && is_size_name(line.values.front());
}

bool is_for_infer(const ConfigLine& line) {
  if (line.name == "model") return !is_trainer_size(line);
  return !trainer_has(line) || std::ranges::count(kSameMeaning, line.name) > 0;
}

}  // namespace

bool is_trainer_config(const std::vector<ConfigLine>& lines) {
  return std::ranges::any_of(lines, [](const ConfigLine& line) {
    return is_trainer_size(line) ||
           (trainer_has(line) &&
            find_setting(InferProgram::settings(), "--" + line.name) == nullptr);
  });
}

TrainerConfig read_trainer_config(const std::vector<ConfigLine>& lines, bool has_model) {
  TrainerConfig config;
  for (const ConfigLine& line : lines) {
    has_model = has_model || (line.name == "model" && is_for_infer(line));
  }
  for (const ConfigLine& line : lines) {
    if (is_for_infer(line)) {
      config.lines.push_back(line);
    } else if (line.name == "out" && !has_model && line.values.size() == 1) {
      config.model = line.values.front();
      config.lines.push_back({"model", line.values});
    } else {
      config.ignored.push_back(line.name);
    }
  }
  return config;
}

std::string trainer_config_notice(const std::string& path, const TrainerConfig& config) {
  std::string text = "--config " + path + " is for train_gpt2: ";
  if (!config.model.empty()) text += "its out, " + config.model + ", is --model; ";
  text += "ignored: ";
  for (const std::string& name : config.ignored) {
    text += (&name == &config.ignored.front() ? "" : ", ") + name;
  }
  return text + (config.ignored.empty() ? "nothing" : "");
}

}  // namespace llmc
