// Reads texts with one label each, to train and evaluate a classifier.
//
// A source is one of
// - FILE.jsonl, or a pattern of such files: one object per line, {"text": "...", "label": 1}. All
//   labels are integers, or all are strings. Other fields are ignored.
// - LABEL=FILE[,LABEL=FILE...]: one text on each line of a file; a FILE may be a pattern. A comma,
//   a colon or a backslash in a name follows a backslash.
// Files may be compressed.
//
// Classes are numbered from 0. Integers are class numbers, without gaps, and their names are those
// of transformers: LABEL_0, LABEL_1, ... Strings are numbered in the order of their bytes, labels
// of a list in its order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "llmc/io/data/hashed_split.h"

namespace llmc {

struct LabelledTexts {
  std::string source;                    // for errors
  std::vector<std::string> texts;        // none is empty or has only white space
  std::vector<std::int32_t> labels;      // class of each text
  std::vector<std::string> label_names;  // name of each class
  // Number of different texts that have several labels; not counted for the parts of a split.
  std::int64_t num_contradictions = 0;
};

// `known_names` are the classes of a model or of the training data. If it is not empty, these are
// the classes: a label must be one of the names or the number of one, and some may have no text.
// Otherwise at least two classes need a text.
//
// Warns once if equal texts have several labels. Throws an error that names the file, the line, the
// problem and what is allowed; errors of the list name `flag`.
LabelledTexts read_labelled_texts(const std::string& source, const std::string& flag,
                                  const std::vector<std::string>& known_names = {});

struct LabelledSplit {
  LabelledTexts train, validation, test;
};

// Each part keeps the order of the texts and all classes. Equal texts are in the same part. Throws
// if a part with a fraction above 0 is empty, or if a class has no text for training.
LabelledSplit split_labelled_texts(const LabelledTexts& texts, const SplitFractions& fractions);

}  // namespace llmc
