#include "llmc/tokenize/tokenize_files.h"

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/notice.h"
#include "llmc/base/number_text.h"
#include "llmc/base/signal_request.h"
#include "llmc/base/standard_output.h"
#include "llmc/io/data/documents.h"
#include "llmc/io/data/input_file.h"
#include "llmc/io/data/text_notices.h"
#include "llmc/io/data/token_file.h"
#include "llmc/io/tokenizer/tokenizer.h"
#include "llmc/io/tokenizer/tokenizer_interface.h"
#include "llmc/tokenize/token_shards.h"
#include "llmc/tokenize/tokenize_job.h"
#include "llmc/tokenize/tokenize_progress.h"
#include "llmc/tokenize/tokenize_run.h"

namespace llmc {

namespace {

using Paths = std::vector<std::filesystem::path>;

// The finished files that exist under the names of this run, without temporary files.
Paths existing_results(const Paths& outputs) {
  Paths results;
  for (const auto& output : outputs) {
    const Paths shards = existing_shards(output);
    results.insert(results.end(), shards.begin(), shards.end());
  }
  std::error_code ignored;
  const std::filesystem::path sidecar = sidecar_of(outputs.front());
  if (std::filesystem::exists(sidecar, ignored)) results.push_back(sidecar);
  return results;
}

void remove_file(const std::filesystem::path& path) {
  if (::unlink(path.c_str()) != 0) fail_file("remove", path, errno);
}

// Removes the temporary files of a killed run. No other process writes these outputs: the progress
// file is locked.
void remove_temporaries(const Paths& outputs) {
  std::error_code ignored;
  for (const auto& output : outputs) {
    Paths temporaries;
    for (const auto& entry : std::filesystem::directory_iterator(parent_of(output), ignored)) {
      const std::string name = entry.path().filename().string();
      if (!is_temporary_name(name)) continue;
      const std::string final_name = name.substr(0, name.rfind(kTemporaryMark));
      if (is_shard_of(output, final_name) ||
          final_name == sidecar_of(outputs.front()).filename().string()) {
        temporaries.push_back(entry.path());
      }
    }
    for (const auto& path : temporaries) remove_file(path);
  }
}

void check_names(const Paths& outputs, const std::vector<std::string>& inputs) {
  std::error_code ignored;
  if (outputs.size() > 1 &&
      parent_of(outputs[0]).lexically_normal() == parent_of(outputs[1]).lexically_normal()) {
    const bool clash = is_shard_of(outputs[0], outputs[1].filename().string()) ||
                       is_shard_of(outputs[1], outputs[0].filename().string());
    if (clash) {
      fail_usage("--out " + outputs[0].string() + " and --val " + outputs[1].string() +
                 " can be the same file");
    }
  }
  for (const std::string& input : inputs) {
    for (const auto& result : existing_results(outputs)) {
      if (std::filesystem::equivalent(input_path(input), result, ignored)) {
        fail_usage(input + " is an input and also a possible file name of the output " +
                   outputs.front().string());
      }
    }
  }
}

// Prepares the progress file. If an earlier run of the same job finished files, keeps it. Otherwise
// starts a new one and removes all results; throws if a different job is unfinished and `force` is
// not set.
void prepare_progress(TokenizeProgress& progress, const std::string& job, const Paths& outputs,
                      bool force) {
  if (progress.has_finished_files()) {
    const std::string reason = obstacle(progress, job, outputs);
    if (reason.empty()) return;
    if (!force) fail(reason, "use --force to start again, which removes the files of that run");
  }
  for (const auto& path : existing_results(outputs)) remove_file(path);
  progress.begin(job);
}

// Warns about inputs that are skipped, and about texts that are probably meant in another way.
void print_warnings(const DocumentReader& reader) {
  TextNotices notices(
      {.json_lines = "use --format jsonl",
       .end_of_text = "--split-on '<|endoftext|>' separates documents at such lines"});
  for (std::size_t i = 0; i < reader.inputs().size(); ++i) {
    const std::string reason = reader.empty_reason(i);
    if (!reason.empty()) Notice::warn("warning: " + reason + ", skipped");
    notices.examine(reader.text_of_input(i), reader.inputs()[i].path(), reader.format_of(i));
  }
  notices.print();
}

void print_finished_files(const TokenizeProgress& progress, const Paths& outputs) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const std::size_t files = progress.shards(static_cast<std::int64_t>(i)).size();
    if (files == 0) continue;
    Notice::print(outputs[i].string() + ": resuming after " + std::to_string(files) +
                  (files == 1 ? " finished file" : " finished files"));
  }
}

void print_summary(const TokenizeCounts& counts, const Paths& outputs,
                   const std::vector<std::vector<Shard>>& shards) {
  std::string text = "documents: " + std::to_string(counts.read) + " read, " +
                     std::to_string(counts.empty) + " empty, " +
                     std::to_string(counts.exact_duplicates) + " exact duplicates, " +
                     std::to_string(counts.near_duplicates) + " near-duplicates\n";
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    std::int64_t tokens = 0;
    for (const Shard& shard : shards[i]) tokens += shard.tokens;
    const double bytes = static_cast<double>(counts.outputs[i].text_bytes);
    text += outputs[i].string() + ": " + std::to_string(counts.outputs[i].documents) +
            " documents, " + std::to_string(tokens) + " tokens, " +
            number_text("%.3f", bytes / static_cast<double>(tokens)) + " bytes per token, " +
            std::to_string(shards[i].size()) + (shards[i].size() == 1 ? " file\n" : " files\n");
  }
  print_text(text);
}

// The hint of an error about too few documents. A text without --split-on is one document.
std::string more_documents_hint(const TokenizeConfig& settings, const DocumentReader& reader,
                                const Paths& outputs) {
  std::string hint = "give more documents";
  if (outputs.size() > 1) hint += ", or change --val-fraction";
  if (settings.separator || !reader.has_text()) return hint;
  return "each text file is one document: split texts at empty lines with --split-on '', or " +
         hint;
}

void check_tokenizer(const Tokenizer& tokenizer, const TokenizeConfig& settings) {
  check_token_file_vocabulary(tokenizer.vocabulary_size(), settings.out);
  if (!settings.no_end_of_text && !tokenizer.end_of_text()) {
    fail("the tokenizer " + tokenizer.name() + " has no token " + std::string(kEndOfText),
         "use --no-end-of-text to leave it out");
  }
}

// Sets what a signal interrupts from now on.
void set_interrupted_work(const TokenizeProgress& progress, std::size_t num_outputs) {
  std::size_t files = 0;
  for (std::size_t i = 0; i < num_outputs; ++i) {
    files += progress.shards(static_cast<std::int64_t>(i)).size();
  }
  SignalRequest::set_work(files == 0 ? "before a file was finished"
                                     : "after " + std::to_string(files) +
                                           (files == 1 ? " finished file" : " finished files") +
                                           ", which stay; the same command continues");
}

// The output streams, each after the files that an earlier run finished.
std::vector<std::unique_ptr<TokenShards>> make_streams(const TokenizeConfig& settings,
                                                       const Tokenizer& tokenizer,
                                                       TokenizeProgress& progress,
                                                       const Paths& outputs) {
  std::vector<std::unique_ptr<TokenShards>> streams;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const auto number = static_cast<std::int64_t>(i);
    streams.push_back(std::make_unique<TokenShards>(
        outputs[i], tokenizer.vocabulary_size(), settings.shard_tokens, progress.shards(number),
        [&progress, number, num_outputs = outputs.size()](const Shard& shard) {
          progress.record(number, shard);
          set_interrupted_work(progress, num_outputs);
        }));
  }
  set_interrupted_work(progress, outputs.size());
  return streams;
}

}  // namespace

void tokenize_files(const TokenizeConfig& settings) {
  check_pipes(settings.inputs);
  const auto tokenizer = make_tokenizer(settings.tokenizer);
  check_tokenizer(*tokenizer, settings);
  const Paths outputs = outputs_of(settings);
  check_names(outputs, settings.inputs);

  TokenizeProgress progress(settings.out);
  const auto require_no_results = [&] {
    const Paths results = existing_results(outputs);
    if (results.empty() || settings.force) return;
    fail(results.front().string() + " already exists", "use --force to replace it");
  };
  if (progress.is_new()) require_no_results();
  DocumentReader reader(settings.inputs, settings.document_format(), parent_of(settings.out));
  print_warnings(reader);
  Notice::print("computing checksums of " + byte_text(reader.total_bytes()) + " of inputs");
  const std::string job = job_text(settings, *tokenizer, reader);
  if (!progress.has_finished_files() && !progress.begins(job)) require_no_results();
  prepare_progress(progress, job, outputs, settings.force);
  remove_temporaries(outputs);
  print_finished_files(progress, outputs);

  auto streams = make_streams(settings, *tokenizer, progress, outputs);
  TokenizeRun run(settings, *tokenizer, reader, streams);
  const TokenizeCounts counts = run.run();
  reader.check_unchanged();
  if (counts.bad_lines > 0) {
    Notice::warn(skipped_lines_text(counts.bad_lines, run.first_bad_line()));
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (streams[i]->tokens() > 0) continue;
    fail("no document is left for " + outputs[i].string() + ": " + std::to_string(counts.read) +
             " read, " + std::to_string(counts.empty) + " empty",
         more_documents_hint(settings, reader, outputs));
  }
  std::vector<std::vector<Shard>> shards;
  for (const auto& stream : streams) {
    stream->finish(counts.read);
    shards.push_back(stream->shards());
  }
  write_file(sidecar_of(settings.out), sidecar_text(job, counts, outputs, shards));
  progress.remove();
  print_summary(counts, outputs, shards);
}

}  // namespace llmc
