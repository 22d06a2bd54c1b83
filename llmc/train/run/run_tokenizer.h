// Chooses the tokenizer of a run on texts and token files.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/config/eval_spec.h"
#include "llmc/config/gpt2_config.h"
#include "llmc/config/train_settings.h"
#include "llmc/io/data/data_sources.h"
#include "llmc/io/data/source_list.h"
#include "llmc/io/data/token_cache.h"
#include "llmc/io/tokenizer/id_tokenizer.h"
#include "llmc/io/tokenizer/tokenizer.h"

namespace llmc {

// The files of --train and --val, or without both those of --eval.
inline std::vector<std::string> data_files(const Request& request) {
  std::vector<std::string> files;
  const auto append = [&](const std::optional<std::string>& list, const char* flag, bool weights) {
    if (!list) return;
    for (const std::string& name : parse_source_list(*list, flag, weights).names) {
      const std::vector<std::string> more = files_of_source(name, flag);
      files.insert(files.end(), more.begin(), more.end());
    }
  };
  append(request.data.train, "--train", true);
  append(request.data.val, "--val", false);
  if (!files.empty() || !request.evaluation.tasks) return files;
  for (const std::string& task : *request.evaluation.tasks) {
    files.push_back(parse_eval_spec(task).file);
  }
  return files;
}

// The tokenizer whose files are in a directory of weights. A checkpoint of a byte model has the
// files of an equal BPE: the result is the byte tokenizer then.
inline std::unique_ptr<Tokenizer> tokenizer_of_weights(const std::string& directory) {
  auto tokenizer = make_tokenizer(directory);
  auto bytes = make_tokenizer("bytes");
  const bool same_size = tokenizer->vocabulary_size() == bytes->vocabulary_size();
  return same_size && tokenizer_checksum(*tokenizer) == tokenizer_checksum(*bytes)
             ? std::move(bytes)
             : std::move(tokenizer);
}

// The tokenizer of --tokenizer. Without that flag: the one whose files are next to the weights;
// else only token ids, if all data are token files; else bytes. `weights` is the shape of
// --init-from.
inline std::unique_ptr<Tokenizer> make_run_tokenizer(const Request& request,
                                                     const std::optional<Gpt2Config>& weights) {
  if (request.data.tokenizer) return make_tokenizer(*request.data.tokenizer);
  const std::optional<std::int64_t> vocab_size = request.data.vocab_size;
  if (!vocab_size && weights && has_tokenizer_files(*request.model.init_from)) {
    return tokenizer_of_weights(*request.model.init_from);
  }
  for (const std::string& file : data_files(request)) {
    if (is_token_file(file)) continue;
    if (!vocab_size) return make_tokenizer("bytes");
    fail("--vocab-size is for token files, and " + file + " is a text",
         "use --tokenizer instead of --vocab-size");
  }
  const std::int64_t usual = weights ? weights->vocabulary : IdTokenizer::kGpt2Vocabulary;
  return std::make_unique<IdTokenizer>(vocab_size.value_or(usual));
}

}  // namespace llmc
