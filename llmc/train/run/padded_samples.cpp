#include "llmc/train/run/padded_samples.h"

#include <cstddef>
#include <filesystem>
#include <span>
#include <sstream>

#include "llmc/base/checksum.h"
#include "llmc/base/error.h"
#include "llmc/base/notice.h"
#include "llmc/base/terminal.h"

namespace llmc {

namespace {

// The list of the source without directories: "negative=a.txt,positive=b.txt".
std::string names_of_files(const std::string& source) {
  std::string text, item;
  std::istringstream items(source);
  while (std::getline(items, item, ',')) {
    const std::size_t label = item.find('=') == item.npos ? 0 : item.find('=') + 1;
    text += (text.empty() ? "" : ",") + item.substr(0, label) +
            std::filesystem::path(item.substr(label)).filename().string();
  }
  return text;
}

DataRecord record_of(const SampleSequences& source) {
  DataRecord record;
  ContentChecksum sum;
  for (const TokenSequence& sequence : source.sequences) {
    record.tokens += std::ssize(sequence.tokens);
    const std::vector<std::int64_t> size = {std::ssize(sequence.tokens)};
    sum.add(std::as_bytes(std::span(size)));
    sum.add(std::as_bytes(std::span(sequence.tokens)));
    sum.add(std::as_bytes(std::span(sequence.targets)));
  }
  record.text = readable_text(names_of_files(source.name));
  record.hashes = {{source.name}, sum.text()};
  return record;
}

std::string description_of(const SampleSequences& source, const DataRecord& record) {
  return "data: " + source.name + source.part + ": " + std::to_string(source.sequences.size()) +
         " " + source.what + source.detail + ", " + std::to_string(record.tokens) + " tokens";
}

NamedValues values_of(const DataRecord& record, const std::string& flag) {
  const std::string name = " of " + flag + " " + record.hashes.names.front();
  return {{"the number of tokens" + name, std::to_string(record.tokens)},
          {"the checksum of the tokens" + name, record.hashes.hashes}};
}

}  // namespace

PaddedTraining::PaddedTraining(SampleSequences source, const PaddingOptions& padding,
                               std::uint64_t seed)
    : record_(record_of(source)),
      description_(description_of(source, record_)),
      sequences_(std::move(source.sequences), padding, source.name + source.part),
      seed_(seed) {}

NamedValues PaddedTraining::compared_values(const std::string& flag) const {
  return values_of(record_, flag);
}

void PaddedTraining::describe() const {
  Notice::print(description_);
}

void PaddedTraining::begin(std::int64_t global_batch, std::int64_t first) {
  if (first % global_batch != 0) {
    fail_usage("the run has used " + std::to_string(first) +
                   " samples, which are not a whole number of steps of " +
                   std::to_string(global_batch) + " samples",
               "resume with the --batch-size, the --grad-accum and the ranks of the run");
  }
  shuffled_.emplace(sequences_, global_batch, seed_);
}

Batch PaddedTraining::batch(std::int64_t first, std::int64_t B) const {
  require(shuffled_.has_value(), "training samples are used before begin()");
  return shuffled_->batch(first, B).batch;
}

PaddedEvaluation::PaddedEvaluation(SampleSequences source, const PaddingOptions& padding)
    : record_(record_of(source)),
      description_(description_of(source, record_)),
      sequences_(std::move(source.sequences), padding, source.name + source.part),
      sorted_(sequences_) {}

NamedValues PaddedEvaluation::compared_values(const std::string& flag) const {
  return values_of(record_, flag);
}

void PaddedEvaluation::describe() const {
  Notice::print(description_);
}

Batch PaddedEvaluation::batch(std::int64_t first, std::int64_t B) const {
  return sorted_.batch(first, B).batch;
}

}  // namespace llmc
