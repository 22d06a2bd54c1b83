// The settings of train_gpt2: the task of a model, and the labelled texts or conversations for it.
#pragma once

#include <optional>
#include <string>

#include "llmc/base/resolved.h"
#include "llmc/config/choices.h"
#include "llmc/config/setting.h"

namespace llmc {

template <template <class> class Value>
struct TaskSettings {
  Value<Task> kind;
  Value<std::string> classes;  // LABEL=FILE,... (labelled_texts.h); empty: --train has labels
  Value<std::string> test;     // evaluated at the end; empty: a part of the training data, or none
  Value<std::string> split;    // parts of the training data (hashed_split.h)
  Value<std::string> message_template;  // of a message (conversations.h)
};

// The rows; their texts and rules are in train_task_settings.cpp.
struct TrainProgram;
Settings<TrainProgram> task_rows();

// Whether the flags name data to train on.
template <class Request>
bool names_training_data(const Request& request) {
  return request.data.train.has_value() || request.task.classes.has_value();
}

// For the rows of flags that other settings contradict.
void check_eval_batches(const Resolution<TrainProgram>& r);
void check_keep_best_by(const Resolution<TrainProgram>& r);

}  // namespace llmc
