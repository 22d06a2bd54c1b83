// A tokenize job as JSON (tokenizer, settings, inputs). It is the first line of the progress file,
// which is compared on resume, and the main part of OUT.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "llmc/config/tokenize_settings.h"
#include "llmc/io/data/documents.h"
#include "llmc/io/tokenizer/tokenizer_interface.h"
#include "llmc/tokenize/token_shards.h"
#include "llmc/tokenize/tokenize_progress.h"

namespace llmc {

// Numbers of documents, and of the bytes of their texts.
struct TokenizeCounts {
  std::int64_t read = 0, empty = 0, exact_duplicates = 0, near_duplicates = 0;
  std::int64_t bad_lines = 0;  // skipped, and counted as read too
  struct Output {
    std::int64_t documents = 0, text_bytes = 0;
  };
  std::vector<Output> outputs;
};

// The outputs of a run: --out, and --val if it is set.
std::vector<std::filesystem::path> outputs_of(const TokenizeConfig& settings);

// DIR/OUT.json for DIR/OUT.bin.
inline std::filesystem::path sidecar_of(std::filesystem::path output) {
  return output.replace_extension(".json");
}

// The job as one line of JSON: tokenizer, settings, and inputs with their checksums. Computing
// these takes one pass through the inputs.
std::string job_text(const TokenizeConfig& settings, const Tokenizer& tokenizer,
                     const DocumentReader& reader);

// Why a run cannot resume the earlier run: that was a different job, a file that it finished has
// changed, or the progress file is damaged. Empty if it can resume.
std::string obstacle(const TokenizeProgress& progress, const std::string& job,
                     const std::vector<std::filesystem::path>& outputs);

// The text of OUT.json. `shards` has the files of each output. The text depends only on the job.
std::string sidecar_text(const std::string& job, const TokenizeCounts& counts,
                         const std::vector<std::filesystem::path>& outputs,
                         const std::vector<std::vector<Shard>>& shards);

}  // namespace llmc
