// A tokenize job as JSON (tokenizer, settings, inputs). It is the first line of the progress file,
// which is compared on resume, and the main part of OUT.json.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "llmc/base/checksum.h"
#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/base/threads.h"
#include "llmc/config/tokenize_settings.h"
#include "llmc/io/data/documents.h"
#include "llmc/io/data/input_file.h"
#include "llmc/io/tokenizer/tokenizer_interface.h"
#include "llmc/tokenize/token_shards.h"
#include "llmc/tokenize/tokenize_progress.h"

namespace llmc {

// Numbers of documents, and of the bytes of their texts.
struct TokenizeCounts {
  std::int64_t read = 0, empty = 0, exact_duplicates = 0, near_duplicates = 0;
  struct Output {
    std::int64_t documents = 0, text_bytes = 0;
  };
  std::vector<Output> outputs;
};

// The outputs of a run: --out, and --val if it is set.
inline std::vector<std::filesystem::path> outputs_of(const TokenizeConfig& settings) {
  std::vector<std::filesystem::path> outputs{settings.out};
  if (!settings.val.empty()) outputs.emplace_back(settings.val);
  return outputs;
}

// DIR/OUT.json for DIR/OUT.bin.
inline std::filesystem::path sidecar_of(std::filesystem::path output) {
  return output.replace_extension(".json");
}

namespace tokenize_detail {

// Checksum of the bytes of all tokens, and of the tokenizer's files if it can write them. It
// detects a different tokenizer of the same name.
inline std::string tokenizer_checksum(const Tokenizer& tokenizer) {
  Checksum checksum;
  for (const TextFile& file : tokenizer.files()) checksum.add(std::as_bytes(std::span(file.text)));
  for (std::int32_t id = 0; id < tokenizer.vocabulary_size(); ++id) {
    const std::string bytes = tokenizer.decode({&id, 1}) + '\0';
    checksum.add(std::as_bytes(std::span(bytes)));
  }
  return checksum_text(checksum.value());
}

// The name of an input in the job. The number in the name of a pipe, such as /dev/fd/63, can differ
// in the run that resumes, so each pipe without a name of its own is called "pipe".
inline std::string job_name(const InputFile& input) {
  return input.is_pipe() && is_descriptor_path(input.path()) ? "pipe" : input.path();
}

inline OrderedJson settings_json(const TokenizeConfig& s) {
  OrderedJson json = {{"out", s.out},
                      {"format", choice_name(s.format)},
                      {"field", s.field},
                      {"split_on", s.separator ? OrderedJson(*s.separator) : OrderedJson()},
                      {"end_of_text", !s.no_end_of_text},
                      {"dedup", choice_name(s.dedup)},
                      {"shard_tokens", s.shard_tokens}};
  if (s.dedup == Dedup::near) json["dedup_threshold"] = s.dedup_threshold;
  if (!s.val.empty()) json["val"] = s.val;
  if (!s.val.empty()) json["val_fraction"] = s.val_fraction;
  return json;
}

// The first difference between two descriptions, such as "settings.field was \"a\" and is \"b\"
// now"; empty if there is none.
inline std::string difference(const OrderedJson& old_json, const OrderedJson& new_json,
                              const std::string& name) {
  const auto text_of = [](const OrderedJson* value) {
    return value == nullptr
               ? "not set"
               : printable(value->dump(-1, ' ', true, OrderedJson::error_handler_t::replace));
  };
  if (old_json == new_json) return {};
  if (old_json.is_object() && new_json.is_object()) {
    for (const auto& [one, other] :
         {std::pair(&old_json, &new_json), std::pair(&new_json, &old_json)}) {
      for (const auto& [key, value] : one->items()) {
        const std::string inner = (name.empty() ? "" : name + ".") + printable(key);
        const OrderedJson *a = json_member(old_json, key), *b = json_member(new_json, key);
        if (a == nullptr || b == nullptr) {
          return inner + " was " + text_of(a) + " and is " + text_of(b) + " now";
        }
        const std::string inner_difference = difference(*a, *b, inner);
        if (!inner_difference.empty()) return inner_difference;
      }
    }
  }
  if (old_json.is_array() && new_json.is_array() && old_json.size() == new_json.size()) {
    for (std::size_t i = 0; i < new_json.size(); ++i) {
      const std::string inner_difference =
          difference(old_json[i], new_json[i], name + "[" + std::to_string(i) + "]");
      if (!inner_difference.empty()) return inner_difference;
    }
  }
  return name + " was " + text_of(&old_json) + " and is " + text_of(&new_json) + " now";
}

}  // namespace tokenize_detail

// The job as one line of JSON: tokenizer, settings, and inputs with their checksums. Computing
// these takes one pass through the inputs.
inline std::string job_text(const TokenizeConfig& settings, const Tokenizer& tokenizer,
                            const DocumentReader& reader) {
  const std::vector<InputFile>& files = reader.inputs();
  std::vector<std::uint64_t> checksums(files.size());
  for_each_parallel(checksums.size(), settings.threads,
                    [&](std::size_t i) { checksums[i] = files[i].checksum(); });
  OrderedJson inputs = OrderedJson::array();
  for (std::size_t i = 0; i < checksums.size(); ++i) {
    inputs.push_back({{"file", tokenize_detail::job_name(files[i])},
                      {"bytes", files[i].bytes().size()},
                      {"xxh64", checksum_text(checksums[i])}});
  }
  const OrderedJson job = {{"tokenizer",
                            {{"name", tokenizer.name()},
                             {"vocabulary_size", tokenizer.vocabulary_size()},
                             {"xxh64", tokenize_detail::tokenizer_checksum(tokenizer)}}},
                           {"settings", tokenize_detail::settings_json(settings)},
                           {"inputs", std::move(inputs)}};
  // File names need not be UTF-8. Bytes that are not are replaced, in the same way in each run.
  return job.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

// Why a run cannot resume the earlier run: that was a different job, a file that it finished has
// changed, or the progress file is damaged. Empty if it can resume.
inline std::string obstacle(const TokenizeProgress& progress, const std::string& job,
                            const std::vector<std::filesystem::path>& outputs) {
  try {
    const std::string path = progress.path().string();
    const std::string other = tokenize_detail::difference(OrderedJson::parse(progress.job()),
                                                          OrderedJson::parse(job), "");
    if (!other.empty()) return path + " belongs to an unfinished run of another job: " + other;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      for (const Shard& shard : progress.shards(static_cast<std::int64_t>(i))) {
        const std::filesystem::path file = parent_of(outputs[i]) / shard.file;
        if (checksum_text(checksum_of_file(file)) == shard.checksum) continue;
        return file.string() + " has changed since " + path + " was written";
      }
    }
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

// The text of OUT.json. `shards` has the files of each output. The text depends only on the job.
inline std::string sidecar_text(const std::string& job, const TokenizeCounts& counts,
                                const std::vector<std::filesystem::path>& outputs,
                                const std::vector<std::vector<Shard>>& shards) {
  OrderedJson json = {{"format", "llmc token files"}, {"version", 1}};
  json.update(OrderedJson::parse(job));
  json["documents"] = {{"read", counts.read},
                       {"empty", counts.empty},
                       {"exact_duplicates", counts.exact_duplicates},
                       {"near_duplicates", counts.near_duplicates}};
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    OrderedJson files = OrderedJson::array();
    std::int64_t tokens = 0;
    for (const Shard& shard : shards[i]) {
      files.push_back({{"file", shard.file}, {"tokens", shard.tokens}, {"xxh64", shard.checksum}});
      tokens += shard.tokens;
    }
    json["outputs"].push_back({{"out", outputs[i].string()},
                               {"documents", counts.outputs[i].documents},
                               {"text_bytes", counts.outputs[i].text_bytes},
                               {"tokens", tokens},
                               {"files", std::move(files)}});
  }
  return json.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

}  // namespace llmc
