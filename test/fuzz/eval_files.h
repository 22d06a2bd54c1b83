// Fuzz target for the examples of LAMBADA, HellaSwag and RACE. The first byte selects the task.
#pragma once

#include "llmc/eval/eval_files.h"
#include "test/fuzz/fuzz.h"

namespace llmc_fuzz {

inline void eval_files(std::string_view input) {
  static const Folder folder;
  const auto task = take_choice(input, 3);
  const std::string path = folder.write("examples", input);
  is_rejected(path, [&] {
    if (task == 0) {
      for (const llmc::LambadaExample& example : llmc::read_lambada(path)) {
        expect(example.word.size() > 1 && !example.context.empty(), "a word follows a context");
      }
    } else if (task == 1) {
      for (const llmc::HellaSwagExample& example : llmc::read_hellaswag(path)) {
        expect(example.label < example.endings.size(), "the label is the index of an ending");
      }
    } else {
      for (const llmc::RaceExample& example : llmc::read_race(path)) {
        expect(example.answer < 4 && example.options.size() == 4, "the answer is one of four");
      }
    }
  });
}

}  // namespace llmc_fuzz
