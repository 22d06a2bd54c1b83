#include "llmc/config/train_task_settings.h"

#include <cstddef>
#include <string>
#include <string_view>

#include "llmc/base/error.h"
#include "llmc/config/relocation.h"
#include "llmc/config/train_settings.h"
#include "llmc/io/data/conversations.h"
#include "llmc/io/data/hashed_split.h"

// A row names only the columns it needs, which causes this warning. (Default member initializers
// would prevent it, but they crash g++ 12.)
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

namespace llmc {

namespace {

const char* const kClassify = "classify";

// The error that parse() throws for a value of a flag, on one line and without the name of the
// flag; empty if there is none.
template <class Parse>
std::string format_error(const Parse& parse) {
  try {
    parse();
    return {};
  } catch (const Error& error) {
    constexpr std::string_view kHint = "\n  hint: ";
    std::string text = error.what();
    text.erase(0, text.find_first_not_of(' '));
    const std::size_t hint = text.find(kHint);
    return hint == text.npos ? text : text.replace(hint, kHint.size(), "; ");
  }
}

void check_task(const Resolution<TrainProgram>& r) {
  const Task task = r.config.task.kind;
  const bool is_classifier = r.facts.weights && r.facts.weights->labels > 0;
  if (!is_classifier || task == Task::classify) return;
  const std::string adapter = r.request.finetune.adapter.value_or("");
  fail_usage("--task " + std::string(choice_name(task)) + ": the model in " +
                 (adapter.empty() ? r.facts.weights_path : adapter) + " is a classifier with " +
                 std::to_string(r.facts.weights->labels) + " labels",
             "use --task classify, or start from a language model");
}

// Some parts of a run need text: they do not exist for a classifier, or read other data.
void check_other_flags(const Resolution<TrainProgram>& r) {
  if (r.config.task.kind == Task::lm) return;
  const std::string task = std::string("--task ") + choice_name(r.config.task.kind);
  const auto refuse = [&](bool is_given, const char* flag, const char* hint) {
    if (is_given) fail_usage(std::string(flag) + " has no effect with " + task, hint);
  };
  const auto& data = r.request.data;
  refuse(data.document_mask.value_or(false), "--document-mask",
         "each text is a sequence of its own");
  refuse(data.bin_format.has_value(), "--bin-format", "the data are texts");
  refuse(data.text_format.has_value(), "--text-format", "give .jsonl, or --classes");
  refuse(data.text_field.has_value(), "--text-field", "the fields have fixed names");
  refuse(data.split_on.has_value(), "--split-on", "each line is a text");
  refuse(data.skip_bad_lines.value_or(false), "--skip-bad-lines", "correct the lines");
  refuse(data.cache_dir.has_value(), "--cache-dir", "the texts are tokenized in memory");
  refuse(data.no_cache.value_or(false), "--no-cache", "the texts are tokenized in memory");
  if (r.config.task.kind != Task::classify) return;
  refuse(r.request.samples.every.value_or(0) > 0, "--sample-every", "a classifier writes no text");
  refuse(r.request.samples.final_out.has_value(), "--final-samples-out",
         "a classifier writes no text");
  refuse(r.request.evaluation.tasks.has_value(), "--eval", "give --test with labelled texts");
  refuse(r.request.qat.mode.value_or(QatMode::none) != QatMode::none, "--qat",
         "the layers of a classifier stay in --dtype");
}

}  // namespace

Settings<TrainProgram> task_rows() {
  return {
      {.flag = "--task",
       .field = [](auto& s) -> decltype(auto) { return (s.task.kind); },
       .help =
           "lm: a language model of texts; classify: one label for each text, from --classes or "
           "lines {\"text\": ..., \"label\": ...}; chat: answers in lines {\"prompt\": ..., "
           "\"completion\": ...} or {\"messages\": [{\"role\": ..., \"content\": ...}, ...]}",
       .fallback = {"lm; classify if --init-from or --adapter is a classifier",
                    [](const Resolution<TrainProgram>& r) {
                      const bool is_classifier = r.facts.weights && r.facts.weights->labels > 0;
                      return std::string(choice_name(is_classifier ? Task::classify : Task::lm));
                    }},
       .changes_results = true,
       .on_resume = OnResume::fixed,
       .verify = check_task},
      {.flag = "--classes",
       .field = [](auto& s) -> decltype(auto) { return (s.task.classes); },
       .unit = "LABEL=FILE,...",
       .help =
           "training data of a classifier: a file for each label, with a text on each line; the "
           "labels are numbered in this order",
       .excluded_flags = {"--train"},
       .changes_results = true,
       .on_resume = OnResume::adapted,
       .special = {.condition = {"--task", {kClassify}},
                   .resume_text = "the texts are compared, directories are not",
                   .relocate = relocate_label_files}},
      {.flag = "--split",
       .field = [](auto& s) -> decltype(auto) { return (s.task.split); },
       .unit = "TRAIN/VAL[/TEST]",
       .help = "parts of the labelled texts or conversations for training, validation and test, "
               "which a hash of each text selects, so that no text is in two",
       .fallback = {"80/10/10 with --task classify, 90/10 with chat, none with --val",
                    [](const Resolution<TrainProgram>& r) -> SettingValue {
                      if (r.config.task.kind == Task::lm || !r.config.data.val.empty()) return "";
                      return r.config.task.kind == Task::classify ? "80/10/10" : "90/10";
                    }},
       .excluded_flags = {"--val", "--test"},
       .changes_results = true,
       .on_resume = OnResume::noted,
       .special = {.condition = {"--task", {kClassify, "chat"}}},
       .check =
           [](const std::string& text) {
             return format_error([&] { parse_split_fractions(text, ""); });
           }},
      {.flag = "--test",
       .field = [](auto& s) -> decltype(auto) { return (s.task.test); },
       .unit = "NAME",
       .help = "labelled texts or conversations that are evaluated only at the end, in the formats "
               "of --train and --classes",
       .fallback = "the last part of --split",
       .required_flags = {"--val"},
       .special = {.condition = {"--task", {kClassify, "chat"}}, .relocate = relocate_label_files}},
      {.flag = "--chat-template",
       .field = [](auto& s) -> decltype(auto) { return (s.task.message_template); },
       .unit = "TEXT",
       .help = "text of a message, with {role} and {content}, and \\n for a line break",
       .fallback = SettingValue("{role}: {content}\\n"),
       .changes_results = true,
       .on_resume = OnResume::noted,
       .special = {.condition = {"--task", {"chat"}}},
       .check =
           [](const std::string& text) {
             return format_error([&] { parse_message_template(text, ""); });
           },
       .verify = check_other_flags},
  };
}

void check_eval_batches(const Resolution<TrainProgram>& r) {
  if (r.config.task.kind == Task::lm || r.config.validation.batches == 0) return;
  fail_usage("--eval-batches " + std::to_string(r.config.validation.batches) + " with --task " +
                 choice_name(r.config.task.kind) + ": its evaluations are of all samples",
             "leave it out, or give fewer samples in --val");
}

void check_keep_best_by(const Resolution<TrainProgram>& r) {
  if (r.config.output.keep_best_by == KeepBestBy::loss) return;
  if (r.config.task.kind == Task::classify) return;
  fail_usage("--keep-best-by macro-f1 is for classifiers", "use --task classify, or loss");
}

}  // namespace llmc
