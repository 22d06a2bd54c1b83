// The flags of tokenize, from one table: what --help prints is what the parser knows.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "llmc/config/command_line.h"
#include "llmc/config/tokenize_settings.h"
#include "llmc/io/data/token_file.h"

namespace llmc {

namespace command_line_detail {

// Returns --decode, which excludes the flags that only tokenizing has.
inline CLI::Option* add_file_flags(CLI::App& app, TokenizeSettings& s) {
  const std::string group = "Files";
  app.add_option("inputs", s.inputs, "texts (.txt) and JSON lines (.jsonl); .bin with --decode")
      ->type_name("IN")
      ->required()
      ->group(group);
  app.add_option("--tokenizer", s.tokenizer,
                 "bytes, words:FILE, or a directory with the files of GPT-2's tokenizer")
      ->type_name("NAME|DIR")
      ->required()
      ->group(group);
  app.add_option("-o,--out", s.out,
                 "token file to write; with --decode a text, or JSON lines (.jsonl) [stdout]")
      ->type_name("OUT")
      ->group(group);
  app.add_flag("--force", s.force, "replace what is there")->group(group);
  return app.add_flag("--decode", s.decode, "token files back into text")
      ->option_text("with --tokenizer, --out, --field and --force alone")
      ->group(group);
}

inline void add_document_flags(CLI::App& app, TokenizeSettings& s, CLI::Option* decode) {
  const std::string group = "Documents";
  using Kind = DocumentFormat::Kind;
  const std::map<std::string, Kind> kinds = {
      {"auto", Kind::by_name}, {"txt", Kind::text}, {"jsonl", Kind::json_lines}};
  app.add_option_function<std::string>(
         "--format", [kinds, &s](const std::string& name) { s.format.kind = kinds.at(name); },
         "of the inputs: auto, by name; txt; jsonl [auto]")
      ->check(CLI::IsMember({"auto", "txt", "jsonl"}))
      ->type_name("NAME")
      ->excludes(decode)
      ->group(group);
  app.add_option("--field", s.format.field, "of each JSON object: the text")
      ->type_name("NAME")
      ->capture_default_str()
      ->group(group);
  app.add_option_function<std::string>(
         "--split-on",
         [&s](const std::string& line) {
           if (line.find('\n') != line.npos) {
             throw CLI::ValidationError("--split-on", "is one line, without a line break in it");
           }
           s.format.separator = line;
         },
         "a line that stands between the documents of a text; '': an empty line [a file is one "
         "document]")
      ->type_name("LINE")
      ->excludes(decode)
      ->group(group);
  app.add_flag_callback(
         "--no-end-of-text", [&s] { s.end_of_text = false; },
         "no <|endoftext|>; without this flag it stands before each document")
      ->excludes(decode)
      ->group(group);
  app.add_option("--dedup", s.dedup,
                 "drop documents that came before: with the same bytes (exact), or nearly the same "
                 "words too (near)")
      ->check(CLI::IsMember({"none", "exact", "near"}))
      ->type_name("NAME")
      ->capture_default_str()
      ->excludes(decode)
      ->group(group);
  app.add_option(
         "--dedup-threshold", s.dedup_threshold,
         "documents are nearly the same from this Jaccard index of their sets of five words on")
      ->check(between(0.1, 1.0))
      ->type_name("X")
      ->capture_default_str()
      ->excludes(decode)
      ->group(group);
}

inline void add_shard_flags(CLI::App& app, TokenizeSettings& s, CLI::Option* decode) {
  const std::string group = "Output";
  const auto most = static_cast<double>(kTokenFileMost);
  app.add_option("--shard-tokens", s.shard_tokens,
                 "more tokens than this go to files OUT_000000.bin, OUT_000001.bin, ... of so many")
      ->check(at_least(std::int64_t{1}))
      ->check(between(1, most))
      ->type_name("N")
      ->capture_default_str()
      ->excludes(decode)
      ->group(group);
  auto* val = app.add_option("--val", s.val, "token file for documents held out for validation")
                  ->type_name("OUT")
                  ->excludes(decode)
                  ->group(group);
  auto* fraction = app.add_option("--val-fraction", s.val_fraction,
                                  "share of documents held out, chosen by their content")
                       ->check(between(0, 1))
                       ->type_name("X")
                       ->needs(val)
                       ->group(group);
  val->needs(fraction);
  app.add_option("--threads", s.threads,
                 "that work; they do not change the result [all processors]")
      ->check(at_least(std::int64_t{1}))
      ->check(between(1, 4096))
      ->type_name("N")
      ->excludes(decode)
      ->group(group);
}

// What is wrong with flags that are right one by one; empty: nothing.
inline std::string contradiction(const TokenizeSettings& s) {
  if (s.decode) return {};
  if (s.out.empty()) return "--out is required (unless --decode is given)";
  for (const std::string& path : {s.out, s.val}) {
    if (!path.empty() && std::filesystem::path(path).extension() != ".bin") {
      return "the token file \"" + path + "\" does not end in .bin";
    }
  }
  if (s.dedup != "near" && s.dedup_threshold != TokenizeSettings().dedup_threshold) {
    return "--dedup-threshold needs --dedup near";
  }
  if (!s.val.empty() && (s.val_fraction <= 0 || s.val_fraction >= 1)) {
    return "--val-fraction must lie between 0 and 1";
  }
  return {};
}

}  // namespace command_line_detail

// Fills `settings`. A value: the program ends at once with that exit code (help was asked for, or
// the flags are wrong, which has been said on stderr).
inline std::optional<int> parse_command_line(int argc, char** argv, TokenizeSettings& settings) {
  using namespace command_line_detail;
  CLI::App app{
      "Turns texts into token files (.bin) for training, and back. A run that was interrupted goes "
      "on when it is started again with the same flags.",
      "tokenize"};
  add_common_flags(app);
  CLI::Option* decode = add_file_flags(app, settings);
  add_document_flags(app, settings, decode);
  add_shard_flags(app, settings, decode);
  app.final_callback([&] {
    const std::string wrong = contradiction(settings);
    if (!wrong.empty()) throw CLI::ValidationError(wrong);
  });
  return parse_flags(app, argc, argv, {"--split-on"});
}

}  // namespace llmc
