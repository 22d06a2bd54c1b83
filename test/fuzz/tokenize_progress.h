// Fuzz target for the progress file of `tokenize`, from which a later run resumes.
#pragma once

#include "llmc/tokenize/tokenize_job.h"
#include "test/fuzz/fuzz.h"

namespace llmc_fuzz {

inline void tokenize_progress(std::string_view input) {
  static const Folder folder;
  folder.write("out.bin.progress", input);
  const std::filesystem::path output = folder.file("out.bin");
  llmc::TokenizeProgress progress(output);
  if (!progress.begun()) return;
  refused(folder.path(), [&] { progress.job(); });
  refused(folder.path(), [&] { progress.shards(0); });
  const std::string why = llmc::obstacle(progress, R"({"tokenizer":{"name":"bytes"}})", {output});
  refused(folder.path(), [&] { llmc::fail(folder.path() + why); });
  std::error_code ignored;
  std::filesystem::remove(progress.path(), ignored);
}

}  // namespace llmc_fuzz
