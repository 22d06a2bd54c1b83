// Kinds of words that users type without a flag. Settings rows use them to suggest the flag
// (`accepts_bare_word` in setting.h).
#pragma once

#include <string>

namespace llmc {

// A text or token file: an existing file, or a name or pattern with an extension of such files.
bool is_data_word(const std::string& word);

// A directory with a model, such as a checkpoint.
bool is_model_directory(const std::string& word);

// A model of infer_gpt2: an existing directory, or a file or path that looks like a model.
bool is_model_word(const std::string& word);

// "d12", a size of --model.
bool is_size_name(const std::string& word);

}  // namespace llmc
