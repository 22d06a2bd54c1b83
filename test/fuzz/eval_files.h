// Fuzz target for the examples of LAMBADA and HellaSwag. The first byte selects the task.
#pragma once

#include "llmc/eval/eval_files.h"
#include "test/fuzz/fuzz.h"

namespace llmc_fuzz {

inline void eval_files(std::string_view input) {
  static const Folder folder;
  const bool lambada = take_choice(input, 2) == 0;
  const std::string path = folder.write("examples", input);
  is_rejected(path, [&] {
    if (lambada) {
      for (const llmc::LambadaExample& example : llmc::read_lambada(path)) {
        expect(example.word.size() > 1 && !example.context.empty(), "a word follows a context");
      }
    } else {
      for (const llmc::HellaSwagExample& example : llmc::read_hellaswag(path)) {
        expect(example.label < example.endings.size(), "the label is the index of an ending");
      }
    }
  });
}

}  // namespace llmc_fuzz
