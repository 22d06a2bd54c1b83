// What `tokenize` is told, with the defaults. tokenize_command_line.h reads it from flags and
// files; the rest of the program knows only this.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "llmc/io/data/documents.h"

namespace llmc {

struct TokenizeSettings {
  std::string tokenizer;  // as make_tokenizer takes it
  std::vector<std::string> inputs;
  std::string out;  // empty: stdout, of --decode
  bool decode = false;
  bool force = false;  // replace what is there

  DocumentFormat format;
  bool end_of_text = true;  // before each document

  std::string dedup = "none";  // exact, near
  double dedup_threshold = 0.8;

  std::int64_t shard_tokens = 100'000'000;
  std::string val;  // where the held out documents go
  double val_fraction = 0;

  std::int64_t threads = 0;  // 0: all processors
};

}  // namespace llmc
