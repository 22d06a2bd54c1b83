// What --train and --val are given. No file of these names is there.
#pragma once

#include "llmc/io/source_list.h"
#include "test/fuzz/fuzz.h"

namespace llmc_fuzz {

inline void source_list(std::string_view input) {
  static const Folder folder;
  const std::string text(input.substr(0, input.find('\0')));  // as an argument ends
  refusal("--train", [&] {
    const llmc::SourceList list = llmc::parse_source_list(text, "--train", true);
    expect(!list.names.empty(), "there is a source");
    if (list.weights) {
      expect(list.weights->sources() == std::ssize(list.names), "a weight for each source");
      (*list.weights)[1'000'000'007];
    }
    for (const std::string& name : list.names) {
      expect(!name.empty(), "a source has a name");
      if (name.find('/') != name.npos) continue;
      refusal("--train", [&] { llmc::files_of_source(folder.file(name), "--train"); });
    }
  });
  refusal("--val", [&] { llmc::parse_source_list(text, "--val", false); });
}

}  // namespace llmc_fuzz
