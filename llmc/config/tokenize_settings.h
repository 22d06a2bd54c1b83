// The settings of tokenize: a TokenizeRequest holds the flags that were given, a TokenizeConfig the
// values. The table of the flags is in tokenize_table.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "llmc/base/resolved.h"
#include "llmc/config/choices.h"
#include "llmc/io/data/documents.h"

namespace llmc {

template <template <class> class Value>
struct TokenizeSettings {
  Value<std::vector<std::string>> inputs;
  Value<std::string> tokenizer;  // argument of make_tokenizer
  Value<std::string> out;        // empty: stdout, only with --decode
  Value<bool> decode;
  Value<bool> force;            // replace existing files
  Value<BinFormat> bin_format;  // of token files to decode

  Value<DocumentFormat::Kind> format;
  Value<std::string> field;
  Value<std::string> split_on;  // the line between the documents of a text
  Value<bool> skip_bad_lines;   // skip lines of JSON that are no documents
  Value<bool> no_end_of_text;   // otherwise one precedes each document

  Value<Dedup> dedup;
  Value<double> dedup_threshold;

  Value<std::int64_t> shard_tokens;
  Value<std::string> val;  // token file of the held-out documents
  Value<double> val_fraction;

  Value<std::int64_t> threads;  // worker threads
};

using TokenizeRequest = TokenizeSettings<std::optional>;

struct TokenizeConfig : TokenizeSettings<Resolved> {
  std::optional<std::string> separator;  // --split-on; none: a file is one document

  DocumentFormat document_format() const {
    return {.kind = format, .field = field, .separator = separator};
  }
};

}  // namespace llmc
