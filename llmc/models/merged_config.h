// The config of a model with a merged adapter. An adapter may make a classifier of a language
// model.
#pragma once

#include <filesystem>

#include "llmc/io/checkpoint/huggingface_config.h"

namespace llmc {

// The config of the model that load_merged_weights() loads: that of `base`, and the labels of the
// adapter if it has a classifier; an empty path is no adapter.
//
// The names of these labels are those in a config.json next to the adapter, else those of the base
// model, if they are as many; otherwise LABEL_0, LABEL_1, ... The pad token comes from the same
// files, else it is the end-of-text token of the base model. Throws if the adapter does not fit the
// base model, or if both are classifiers with other numbers of labels.
HuggingFaceConfig read_merged_config(const std::filesystem::path& base,
                                     const std::filesystem::path& adapter);

}  // namespace llmc
