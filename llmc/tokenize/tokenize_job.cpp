#include "llmc/tokenize/tokenize_job.h"

#include <cstddef>
#include <span>
#include <utility>

#include "llmc/base/checksum.h"
#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/base/threads.h"
#include "llmc/config/choices.h"
#include "llmc/io/data/input_file.h"

namespace llmc {

std::vector<std::filesystem::path> outputs_of(const TokenizeConfig& settings) {
  std::vector<std::filesystem::path> outputs{settings.out};
  if (!settings.val.empty()) outputs.emplace_back(settings.val);
  return outputs;
}

namespace {

// Checksum of the bytes of all tokens, and of the tokenizer's files if it can write them. It
// detects a different tokenizer of the same name.
std::string checksum_of_tokenizer(const Tokenizer& tokenizer) {
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
std::string job_name(const InputFile& input) {
  return input.is_pipe() && is_descriptor_path(input.path()) ? "pipe" : input.path();
}

Json settings_json(const TokenizeConfig& s) {
  Json json = {{"out", s.out},
               {"format", choice_name(s.format)},
               {"field", s.field},
               {"split_on", s.separator ? Json(*s.separator) : Json()},
               {"end_of_text", !s.no_end_of_text},
               {"dedup", choice_name(s.dedup)},
               {"shard_tokens", s.shard_tokens}};
  if (s.skip_bad_lines) json["skip_bad_lines"] = true;
  if (s.dedup == Dedup::near) json["dedup_threshold"] = s.dedup_threshold;
  if (!s.val.empty()) json["val"] = s.val;
  if (!s.val.empty()) json["val_fraction"] = s.val_fraction;
  return json;
}

// The first difference between two descriptions, such as "settings.field was \"a\" and is \"b\"
// now"; empty if there is none.
std::string difference(const Json& old_json, const Json& new_json, const std::string& name) {
  const auto text_of = [](const Json* value) {
    return value == nullptr ? "not set" : printable(value->dump(-1, true));
  };
  if (old_json == new_json) return {};
  if (old_json.is_object() && new_json.is_object()) {
    for (const auto& [one, other] :
         {std::pair(&old_json, &new_json), std::pair(&new_json, &old_json)}) {
      for (const auto& [key, value] : one->items()) {
        const std::string inner = (name.empty() ? "" : name + ".") + printable(key);
        const Json *a = json_member(old_json, key), *b = json_member(new_json, key);
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

}  // namespace

std::string job_text(const TokenizeConfig& settings, const Tokenizer& tokenizer,
                     const DocumentReader& reader) {
  const std::vector<InputFile>& files = reader.inputs();
  std::vector<std::uint64_t> checksums(files.size());
  for_each_parallel(checksums.size(), settings.threads,
                    [&](std::size_t i) { checksums[i] = files[i].checksum(); });
  Json inputs = Json::array();
  for (std::size_t i = 0; i < checksums.size(); ++i) {
    // The size is that of the unpacked text; the checksum is that of the file.
    inputs.push_back({{"file", job_name(files[i])},
                      {"bytes", files[i].bytes().size()},
                      {"xxh64", checksum_text(checksums[i])}});
  }
  const Json job = {{"tokenizer",
                     {{"name", tokenizer.name()},
                      {"vocabulary_size", tokenizer.vocabulary_size()},
                      {"xxh64", checksum_of_tokenizer(tokenizer)}}},
                    {"settings", settings_json(settings)},
                    {"inputs", std::move(inputs)}};
  // File names need not be UTF-8. Bytes that are not are replaced, in the same way in each run.
  return job.dump();
}

std::string obstacle(const TokenizeProgress& progress, const std::string& job,
                     const std::vector<std::filesystem::path>& outputs) {
  try {
    const std::string path = progress.path().string();
    const std::string other = difference(parse_json(progress.job(), path, KeyOrder::as_written),
                                         parse_json(job, "the job", KeyOrder::as_written), "");
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

std::string sidecar_text(const std::string& job, const TokenizeCounts& counts,
                         const std::vector<std::filesystem::path>& outputs,
                         const std::vector<std::vector<Shard>>& shards) {
  Json json = {{"format", "llmc token files"}, {"version", 1}};
  json.update(parse_json(job, "the job", KeyOrder::as_written));
  json["documents"] = {{"read", counts.read},
                       {"empty", counts.empty},
                       {"exact_duplicates", counts.exact_duplicates},
                       {"near_duplicates", counts.near_duplicates}};
  if (counts.bad_lines > 0) json["documents"]["bad_lines"] = counts.bad_lines;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    Json files = Json::array();
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
  return json.dump(2) + "\n";
}

}  // namespace llmc
