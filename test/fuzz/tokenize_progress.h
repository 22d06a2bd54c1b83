// Fuzz target for the progress file of `tokenize`, from which a later run resumes.
#pragma once

#include <system_error>

#include "llmc/tokenize/tokenize_job.h"
#include "test/fuzz/fuzz.h"

namespace llmc_fuzz {

inline void tokenize_progress(std::string_view input) {
  static const Folder folder;
  folder.write("out.bin.progress", input);
  const std::filesystem::path output = folder.file("out.bin");
  llmc::TokenizeProgress progress(output);
  if (!progress.has_finished_files()) return;
  is_rejected(folder.path(), [&] { progress.job(); });
  is_rejected(folder.path(), [&] { progress.shards(0); });
  const std::string reason =
      llmc::obstacle(progress, R"({"tokenizer":{"name":"bytes"}})", {output});
  is_rejected(folder.path(), [&] { llmc::fail(folder.path() + reason); });
  std::error_code ignored;
  std::filesystem::remove(progress.path(), ignored);
}

}  // namespace llmc_fuzz
