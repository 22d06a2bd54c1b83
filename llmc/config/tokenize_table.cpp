#include "llmc/config/tokenize_table.h"

#include <filesystem>

#include "llmc/base/threads.h"
#include "llmc/config/choices.h"
#include "llmc/config/fill_settings.h"
#include "llmc/io/data/token_file.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

namespace llmc {

std::string TokenizeProgram::contradiction(const TokenizeRequest& r) {
  if (r.decode.value_or(false)) return {};
  if (!r.out) return "--out is required (unless --decode is given)";
  for (const auto& path : {r.out, r.val}) {
    if (path && std::filesystem::path(*path).extension() != ".bin") {
      return "the token file \"" + *path + "\" does not end in .bin";
    }
  }
  if (r.dedup_threshold && r.dedup != Dedup::near) return "--dedup-threshold needs --dedup near";
  if (r.val && (*r.val_fraction <= 0 || *r.val_fraction >= 1)) {
    return "--val-fraction must be above 0 and below 1";
  }
  return {};
}

namespace {

Settings<TokenizeProgram> file_rows() {
  return {
      {.flag = "inputs",
       .field = [](auto& s) -> decltype(auto) { return (s.inputs); },
       .unit = "IN",
       .help =
           "text files (.txt), JSON lines (.jsonl), also compressed (.gz, .zst), and pipes (- is "
           "stdin); token files (.bin) with --decode",
       .special = {.required = true}},
      {.flag = "--tokenizer",
       .field = [](auto& s) -> decltype(auto) { return (s.tokenizer); },
       .unit = "NAME|DIR",
       .help =
           "bytes, gpt2 (an installed vocabulary of GPT-2), words:FILE, a tokenizer.json, or a "
           "directory that contains tokenizer.json, or encoder.json and vocab.bpe, or vocab.json "
           "and merges.txt",
       .quantity = "tokenizer",
       .special = {.required = true}},
      {.flag = "--out",
       .field = [](auto& s) -> decltype(auto) { return (s.out); },
       .unit = "OUT",
       .help = "token file to write (.bin); with --decode, a text file or JSON lines (.jsonl)",
       .fallback = "with --decode: stdout",
       .special = {.synonym = "-o"}},
      {.flag = "--force",
       .field = [](auto& s) -> decltype(auto) { return (s.force); },
       .help = "replace existing files, and discard an unfinished run with other settings",
       .quantity = "overwriting"},
      {.flag = "--bin-format",
       .field = [](auto& s) -> decltype(auto) { return (s.bin_format); },
       .help = "format of the token files of --decode: llmc has a header; nanogpt has none, only "
               "16-bit tokens",
       .fallback = SettingValue("llmc"),
       .required_flags = {"--decode"},
       .quantity = "format of token files"},
      {.flag = "--decode",
       .field = [](auto& s) -> decltype(auto) { return (s.decode); },
       .help = "convert token files back to text; other flags than --tokenizer, --out, --field, "
               "--bin-format and --force are errors",
       .quantity = "decoding"},
  };
}

Settings<TokenizeProgram> document_rows() {
  return {
      {.flag = "--format",
       .field = [](auto& s) -> decltype(auto) { return (s.format); },
       .help = "format of the inputs; auto selects it by file name, and is txt for a pipe",
       .fallback = SettingValue("auto"),
       .excluded_flags = {"--decode"},
       .quantity = "document format"},
      {.flag = "--field",
       .field = [](auto& s) -> decltype(auto) { return (s.field); },
       .unit = "KEY",
       .help = "key of the text in each JSON object",
       .fallback = SettingValue("text"),
       .quantity = "text field"},
      {.flag = "--split-on",
       .field = [](auto& s) -> decltype(auto) { return (s.split_on); },
       .unit = "LINE",
       .help = "line that separates the documents of a text file; '' is an empty line",
       .fallback = "each file is one document",
       .excluded_flags = {"--decode"},
       .special = {.may_be_empty = true},
       .check =
           [](const std::string& line) {
             const bool is_one_line = line.find('\n') == line.npos;
             return std::string(is_one_line ? "" : "must be one line, without a line break");
           }},
      {.flag = "--skip-bad-lines",
       .field = [](auto& s) -> decltype(auto) { return (s.skip_bad_lines); },
       .help = "skip and count lines of JSON that are invalid or have no text in --field; without "
               "this flag they are errors",
       .excluded_flags = {"--decode"},
       .quantity = "skipping bad lines"},
      {.flag = "--no-end-of-text",
       .field = [](auto& s) -> decltype(auto) { return (s.no_end_of_text); },
       .help = "write no <|endoftext|>; without this flag one precedes each document",
       .excluded_flags = {"--decode"}},
      {.flag = "--dedup",
       .field = [](auto& s) -> decltype(auto) { return (s.dedup); },
       .help = "drop repeated documents: those with the same bytes as an earlier one (exact), or "
               "also those with nearly the same words (near)",
       .fallback = SettingValue("none"),
       .excluded_flags = {"--decode"}},
      {.flag = "--dedup-threshold",
       .field = [](auto& s) -> decltype(auto) { return (s.dedup_threshold); },
       .unit = "X",
       .help = "minimum Jaccard index of two near duplicates, computed on their sets of five "
               "consecutive words",
       .fallback = 0.8,
       .range = between(0.1, 1),
       .excluded_flags = {"--decode"}},
  };
}

Settings<TokenizeProgram> shard_rows() {
  return {
      {.flag = "--shard-tokens",
       .field = [](auto& s) -> decltype(auto) { return (s.shard_tokens); },
       .unit = "TOKENS",
       .help = "maximum number of tokens per file; a longer output is split into OUT_000000.bin, "
               "OUT_000001.bin, ...",
       .fallback = 100'000'000,
       .range = between(1, static_cast<double>(kTokenFileMaxTokens)),
       .excluded_flags = {"--decode"}},
      {.flag = "--val",
       .field = [](auto& s) -> decltype(auto) { return (s.val); },
       .unit = "OUT",
       .help = "token file for the documents of the validation set",
       .required_flags = {"--val-fraction"},
       .excluded_flags = {"--decode"},
       .quantity = "validation text"},
      {.flag = "--val-fraction",
       .field = [](auto& s) -> decltype(auto) { return (s.val_fraction); },
       .unit = "FRACTION",
       .help = "fraction of the documents that go to --val, selected by a hash of their content",
       .range = between(0, 1),
       .required_flags = {"--val"}},
      {.flag = "--threads",
       .field = [](auto& s) -> decltype(auto) { return (s.threads); },
       .unit = "THREADS",
       .help = "number of worker threads; does not change the result",
       .fallback = {"all processors", [](const auto&) { return available_processors(); }},
       .range = between(1, 4096),
       .excluded_flags = {"--decode"}},
  };
}

}  // namespace

const Settings<TokenizeProgram>& TokenizeProgram::settings() {
  static const Settings<TokenizeProgram> table = [] {
    Settings<TokenizeProgram> all;
    add_group(all, "Files", file_rows());
    add_group(all, "Documents", document_rows());
    add_group(all, "Output", shard_rows());
    return all;
  }();
  return table;
}

TokenizeConfig resolve(const TokenizeRequest& request) {
  TokenizeConfig config = fill_settings<TokenizeProgram>(TokenizeProgram::settings(), request, {});
  config.separator = request.split_on;
  return config;
}

}  // namespace llmc
