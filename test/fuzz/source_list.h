// Fuzz target for the values of --train and --val. No file of these names exists.
#pragma once

#include <cctype>

#include "llmc/io/data/source_list.h"
#include "test/fuzz/fuzz.h"

namespace llmc_fuzz {

inline void use_source_list(const Folder& folder, const llmc::SourceList& list) {
  expect(!list.names.empty(), "a list has a source");
  if (list.weights) {
    expect(list.weights->sources() == std::ssize(list.names), "each source has a weight");
    expect((*list.weights)[1'000'000'007].source < std::ssize(list.names), "samples have a source");
  }
  for (const std::string& name : list.names) {
    expect(!name.empty(), "a source has a name");
    if (name.find('/') != name.npos) continue;
    error_message("--train", [&] { llmc::files_of_source(folder.file(name), "--train"); });
  }
}

inline void source_list(std::string_view input) {
  static const Folder folder;
  const std::string text(input.substr(0, input.find('\0')));  // an argument ends at NUL
  error_message("--val", [&] { llmc::parse_source_list(text, "--val", false); });
  // Skips weights with many digits: they make an order of up to a million places, which is correct
  // but slow.
  int digits = 0;
  for (const char c : text) {
    digits = std::isdigit(static_cast<unsigned char>(c)) != 0 ? digits + 1 : 0;
    if (digits > 3) return;
  }
  error_message("--train",
                [&] { use_source_list(folder, llmc::parse_source_list(text, "--train", true)); });
}

}  // namespace llmc_fuzz
