// Fuzz target for labelled texts: JSON lines, or two files with one text per line.
#pragma once

#include "llmc/io/data/labelled_texts.h"
#include "test/fuzz/fuzz.h"

namespace llmc_fuzz {

inline void labelled_texts(std::string_view input) {
  static const Folder folder;
  std::string source;
  if (take_choice(input, 2) == 0) {
    source = folder.write("x.jsonl", input);
  } else {
    const auto files = parts(input, 2);
    source = "a=" + folder.write("a.txt", files[0]) + ",b=" + folder.write("b.txt", files[1]);
  }
  is_rejected(folder.path(), [&] {
    const llmc::LabelledTexts texts = llmc::read_labelled_texts(source, "labels");
    expect(texts.texts.size() == texts.labels.size(), "each text has a label");
    expect(texts.label_names.size() > 1, "there are two classes");
    for (std::size_t i = 0; i < texts.texts.size(); ++i) {
      expect(!texts.texts[i].empty(), "a text is not empty");
      expect(texts.labels[i] >= 0 && texts.labels[i] < std::ssize(texts.label_names),
             "a label is the number of a class");
    }
  });
}

}  // namespace llmc_fuzz
