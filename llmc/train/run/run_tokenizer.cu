#include <cstdint>
#include <utility>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/config/eval_spec.h"
#include "llmc/io/data/data_sources.h"
#include "llmc/io/data/source_list.h"
#include "llmc/io/data/token_cache.h"
#include "llmc/io/tokenizer/id_tokenizer.h"
#include "llmc/io/tokenizer/tokenizer.h"
#include "llmc/train/run/run_tokenizer.h"

namespace llmc {

namespace {

// The files of --train and --val, or without both those of --eval.
std::vector<std::string> data_files(const Request& request) {
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
std::unique_ptr<Tokenizer> tokenizer_of_weights(const std::string& directory) {
  auto tokenizer = make_tokenizer(directory);
  auto bytes = make_tokenizer("bytes");
  const bool same_size = tokenizer->vocabulary_size() == bytes->vocabulary_size();
  return same_size && tokenizer_checksum(*tokenizer) == tokenizer_checksum(*bytes)
             ? std::move(bytes)
             : std::move(tokenizer);
}

// Whether the data are labelled texts or conversations.
bool has_task_data(const Request& request) {
  if (!request.task.classes && request.task.kind.value_or(Task::lm) == Task::lm) return false;
  if (!request.data.vocab_size) return true;
  fail_usage("--vocab-size is for token files, and the data are texts",
             "use --tokenizer instead of --vocab-size");
}

// Throws if --vocab-size is not the vocabulary of the resumed checkpoint.
void check_resumed_vocabulary(const Request& request, const StartingWeights& checkpoint) {
  const std::int64_t size = checkpoint.shape.vocabulary;
  if (request.data.vocab_size.value_or(size) == size) return;
  fail_usage("--vocab-size " + std::to_string(*request.data.vocab_size) + " does not agree with " +
                 std::to_string(size) + " in " + checkpoint.path,
             "leave the flag out: the checkpoint sets the vocabulary");
}

}  // namespace

std::unique_ptr<Tokenizer> make_run_tokenizer(const Request& request,
                                              const std::optional<std::string>& typed,
                                              const std::optional<StartingWeights>& weights) {
  if (typed) return make_tokenizer(*typed);
  const bool resumed = weights && weights->resumed;
  if (resumed) check_resumed_vocabulary(request, *weights);
  const std::optional<std::int64_t> vocab_size = resumed ? std::nullopt : request.data.vocab_size;
  if (!vocab_size && weights && has_tokenizer_files(weights->path)) {
    return tokenizer_of_weights(weights->path);
  }
  if (resumed && request.data.tokenizer.value_or(IdTokenizer::kName) != IdTokenizer::kName) {
    return make_tokenizer(*request.data.tokenizer);
  }
  if (has_task_data(request)) return make_tokenizer("bytes");
  for (const std::string& file : data_files(request)) {
    if (is_token_file(file)) continue;
    if (!vocab_size) return make_tokenizer("bytes");
    fail_usage("--vocab-size is for token files, and " + file + " is a text",
               "use --tokenizer instead of --vocab-size");
  }
  const std::int64_t usual = weights ? weights->shape.vocabulary : IdTokenizer::kGpt2Vocabulary;
  return std::make_unique<IdTokenizer>(vocab_size ? *vocab_size : usual);
}

}  // namespace llmc
