#include <cstddef>
#include <cstdint>
#include <iterator>
#include <set>
#include <span>
#include <vector>

#include "llmc/base/checksum.h"
#include "llmc/base/file.h"
#include "llmc/comm/compare_ranks.h"
#include "llmc/config/compared_settings.h"
#include "llmc/config/train_table.h"
#include "llmc/device/device.h"
#include "llmc/io/checkpoint/huggingface.h"
#include "llmc/io/checkpoint/manifest.h"
#include "llmc/train/checkpoint/resume_checks.h"
#include "llmc/train/run/input_agreement.h"

namespace llmc {

namespace input_agreement_detail {

namespace {

constexpr std::int64_t kBlocks = 64;         // between the ends
constexpr std::int64_t kBlockTokens = 1024;  // of a source
constexpr std::int64_t kBlockBytes = 4096;   // of a file

// Calls sample(begin, count) for the first and the last `block` of `size` items, and for kBlocks
// evenly spaced blocks between them; for all items if these are no more.
template <class Sample>
void for_each_block(std::int64_t size, std::int64_t block, const Sample& sample) {
  if (size <= (kBlocks + 2) * block) return sample(std::int64_t{0}, size);
  for (std::int64_t i = 0; i <= kBlocks + 1; ++i) {
    sample(static_cast<std::int64_t>(static_cast<__int128>(size - block) * i / (kBlocks + 1)),
           block);
  }
}

template <class Value>
void add_values(ContentChecksum& sum, const std::vector<Value>& values) {
  sum.add(std::as_bytes(std::span(values)));
}

}  // namespace

std::string sampled_checksum(const TokenSource& source) {
  ContentChecksum sum;
  for_each_block(source.size(), kBlockTokens, [&](std::int64_t begin, std::int64_t count) {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(count)), starts = tokens;
    source.copy(begin, count, tokens.data());
    source.document_starts(begin, tokens, starts.data());
    add_values(sum, tokens);
    add_values(sum, starts);
  });
  return sum.text();
}

std::string sampled_checksum(const EvalTask& task) {
  ContentChecksum sum;
  for_each_block(task.rows(), 1, [&](std::int64_t begin, std::int64_t count) {
    for (std::int64_t i = begin; i < begin + count; ++i) {
      const EvalRow row = task.row(i);
      add_values(sum, row.tokens);
      add_values(sum, std::vector<std::int64_t>{row.num_scored, std::ssize(row.tokens)});
    }
  });
  return sum.text();
}

std::string sampled_checksum(const std::filesystem::path& path) {
  const MappedFile file(path);
  ContentChecksum sum;
  for_each_block(
      std::ssize(file.bytes()), kBlockBytes, [&](std::int64_t begin, std::int64_t count) {
        sum.add(
            file.bytes().subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count)));
      });
  return sum.text();
}

namespace {

// The files of weights: the one of llm.c, or those in a directory.
std::set<std::filesystem::path> weight_files(const std::string& path) {
  if (!std::filesystem::is_directory(path)) return {path};
  std::set<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    const std::string name = entry.path().filename().string();
    const bool is_tensors = name.starts_with("model") && name.ends_with(".safetensors");
    if (is_tensors || name == kConfigName || name == kWeightsIndexName) files.insert(entry.path());
  }
  return files;
}

}  // namespace

}  // namespace input_agreement_detail

namespace {

// The vocabulary, and the data of training, validation and tasks.
NamedValues data_values(const RunData& data) {
  using namespace input_agreement_detail;
  NamedValues values = {{"the checksum of the vocabulary of --tokenizer " + data.tokenizer->name(),
                         vocabulary_checksum(*data.tokenizer)}};
  const auto add = [&](const char* flag, const auto& samples) {
    if (!samples) return;
    const NamedValues more = samples->compared_values(flag);
    values.insert(values.end(), more.begin(), more.end());
  };
  add("--train", data.train);
  add("--val", data.validation);
  add("--test", data.test);
  for (const auto& task : data.tasks) {
    const std::string name = " of --eval " + task->name() + ":" + task->file();
    values.push_back({"the number of rows" + name, std::to_string(task->rows())});
    values.push_back({"the checksum of rows" + name, sampled_checksum(*task)});
  }
  return values;
}

// The files of --init-from. Those of a resumed checkpoint are compared by their manifest.
NamedValues weight_values(const std::optional<StartingWeights>& weights) {
  using namespace input_agreement_detail;
  NamedValues values;
  if (!weights || weights->resumed) return values;
  for (const std::filesystem::path& file : weight_files(weights->path)) {
    const std::string name = " of --init-from " + file.string();
    values.push_back({"the size" + name, std::to_string(std::filesystem::file_size(file))});
    values.push_back({"the checksum of blocks" + name, sampled_checksum(file)});
  }
  return values;
}

}  // namespace

void require_equal_checkpoints(const std::optional<RecordedRun>& run, Exchange& exchange) {
  if (exchange.ranks() == 1) return;
  NamedValues values;
  if (run) {
    const std::string manifest = read_file(run->checkpoint / kManifestName);
    values = {{"the step of " + run->checkpoint.string(), std::to_string(run->step)},
              {"the checksum of the manifest of " + run->checkpoint.string(),
               content_checksum_of(manifest)}};
  }
  require_equal_values(
      [&](const std::string& text) { return exchange.gather_texts(text); },
      "the ranks resume from different checkpoints", values,
      "copy the checkpoint of rank 0 to all machines, or use a shared file system");
}

void require_equal_inputs(const RunConfig& config, const RunData& data,
                          const std::optional<StartingWeights>& weights, Exchange& exchange) {
  if (exchange.ranks() == 1) return;
  const auto gather = [&](const std::string& text) { return exchange.gather_texts(text); };
  const std::string copy = "copy the files of rank 0 to all machines, or use a shared file system";
  require_equal_values(gather, "the ranks have read different data", data_values(data), copy);
  require_equal_values(gather, "the ranks have different initial weights", weight_values(weights),
                       copy);
  require_equal_values(gather, "the ranks have different settings",
                       resolved_values(train_settings(), config),
                       "type the flags, so that they do not depend on the machine");
}

}  // namespace llmc
