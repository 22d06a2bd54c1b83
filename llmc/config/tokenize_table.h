// The table of all settings of tokenize, in the order of --help.
#pragma once

#include <filesystem>
#include <string>

#include "llmc/base/threads.h"
#include "llmc/config/fill_settings.h"
#include "llmc/config/setting.h"
#include "llmc/config/tokenize_settings.h"
#include "llmc/io/data/token_file.h"

// A row names only the columns it needs, which causes this warning. (Default member initializers
// would prevent it, but they crash g++ 12.)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

namespace llmc {

struct TokenizeProgram {
  using Request = TokenizeRequest;
  using Config = TokenizeConfig;
  struct Facts {};

  static constexpr const char* kName = "tokenize";
  static constexpr const char* kDescription =
      "Turns texts into token files (.bin) for training, and back. A run that was interrupted "
      "continues if it is started again with the same flags.";
  static const Settings<TokenizeProgram>& settings();

  // Returns an error for a combination of flags that are valid one by one, or an empty text.
  static std::string contradiction(const TokenizeRequest& r) {
    if (r.decode.value_or(false)) return {};
    if (!r.out) return "--out is required (unless --decode is given)";
    for (const auto& path : {r.out, r.val}) {
      if (path && std::filesystem::path(*path).extension() != ".bin") {
        return "the token file \"" + *path + "\" does not end in .bin";
      }
    }
    if (r.dedup_threshold && r.dedup != Dedup::near) return "--dedup-threshold needs --dedup near";
    if (r.val && (*r.val_fraction <= 0 || *r.val_fraction >= 1)) {
      return "--val-fraction must lie between 0 and 1";
    }
    return {};
  }
};

namespace tokenize_detail {

inline Settings<TokenizeProgram> file_rows() {
  return {
      {.flag = "inputs",
       .field = [](auto& s) -> decltype(auto) { return (s.inputs); },
       .unit = "IN",
       .help = "texts (.txt) and JSON lines (.jsonl); .bin with --decode",
       .required = true},
      {.flag = "--tokenizer",
       .field = [](auto& s) -> decltype(auto) { return (s.tokenizer); },
       .unit = "NAME|DIR",
       .help = "bytes, words:FILE, or a directory with the files of GPT-2's tokenizer",
       .quantity = "tokenizer",
       .required = true},
      {.flag = "--out",
       .field = [](auto& s) -> decltype(auto) { return (s.out); },
       .unit = "OUT",
       .help = "token file to write; with --decode a text, or JSON lines (.jsonl)",
       .fallback = "stdout, with --decode",
       .synonym = "-o"},
      {.flag = "--force",
       .field = [](auto& s) -> decltype(auto) { return (s.force); },
       .help = "replace existing files",
       .quantity = "overwriting"},
      {.flag = "--decode",
       .field = [](auto& s) -> decltype(auto) { return (s.decode); },
       .help = "turn token files back into text; allows only --tokenizer, --out, --field and "
               "--force",
       .quantity = "decoding"},
  };
}

inline Settings<TokenizeProgram> document_rows() {
  return {
      {.flag = "--format",
       .field = [](auto& s) -> decltype(auto) { return (s.format); },
       .help = "format of the inputs; auto: by file name",
       .fallback = SettingValue("auto"),
       .excludes = {"--decode"},
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
       .help = "line between the documents of a text; '': an empty line",
       .fallback = "a file is one document",
       .excludes = {"--decode"},
       .may_be_empty = true,
       .check =
           [](const std::string& line) {
             const bool one = line.find('\n') == line.npos;
             return std::string(one ? "" : "is one line, without a line break in it");
           }},
      {.flag = "--no-end-of-text",
       .field = [](auto& s) -> decltype(auto) { return (s.no_end_of_text); },
       .help = "write no <|endoftext|>; without this flag one precedes each document",
       .excludes = {"--decode"}},
      {.flag = "--dedup",
       .field = [](auto& s) -> decltype(auto) { return (s.dedup); },
       .help = "drop documents that came before: with the same bytes (exact), or also with nearly "
               "the same words (near)",
       .fallback = SettingValue("none"),
       .excludes = {"--decode"}},
      {.flag = "--dedup-threshold",
       .field = [](auto& s) -> decltype(auto) { return (s.dedup_threshold); },
       .unit = "X",
       .help = "smallest Jaccard index of the sets of five words of two near duplicates",
       .fallback = 0.8,
       .range = between(0.1, 1),
       .excludes = {"--decode"}},
  };
}

inline Settings<TokenizeProgram> shard_rows() {
  return {
      {.flag = "--shard-tokens",
       .field = [](auto& s) -> decltype(auto) { return (s.shard_tokens); },
       .unit = "TOKENS",
       .help = "more tokens than this go to files OUT_000000.bin, OUT_000001.bin, ... of this size",
       .fallback = 100'000'000,
       .range = between(1, static_cast<double>(kTokenFileMost)),
       .excludes = {"--decode"}},
      {.flag = "--val",
       .field = [](auto& s) -> decltype(auto) { return (s.val); },
       .unit = "OUT",
       .help = "token file for documents held out for validation",
       .needs = {"--val-fraction"},
       .excludes = {"--decode"},
       .quantity = "validation text"},
      {.flag = "--val-fraction",
       .field = [](auto& s) -> decltype(auto) { return (s.val_fraction); },
       .unit = "FRACTION",
       .help = "share of documents held out, chosen by their content",
       .range = between(0, 1),
       .needs = {"--val"}},
      {.flag = "--threads",
       .field = [](auto& s) -> decltype(auto) { return (s.threads); },
       .unit = "THREADS",
       .help = "worker threads; they do not change the result",
       .fallback = {"all processors", [](const auto&) { return available_processors(); }},
       .range = between(1, 4096),
       .excludes = {"--decode"}},
  };
}

}  // namespace tokenize_detail

inline const Settings<TokenizeProgram>& TokenizeProgram::settings() {
  static const Settings<TokenizeProgram> table = [] {
    Settings<TokenizeProgram> all;
    add_group(all, "Files", tokenize_detail::file_rows());
    add_group(all, "Documents", tokenize_detail::document_rows());
    add_group(all, "Output", tokenize_detail::shard_rows());
    return all;
  }();
  return table;
}

inline TokenizeConfig resolve(const TokenizeRequest& request) {
  TokenizeConfig config = fill_settings<TokenizeProgram>(TokenizeProgram::settings(), request, {});
  config.separator = request.split_on;
  return config;
}

}  // namespace llmc

#pragma GCC diagnostic pop
