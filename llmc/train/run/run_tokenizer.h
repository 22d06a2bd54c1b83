// Chooses the tokenizer of a run on texts and token files.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "llmc/config/train_settings.h"
#include "llmc/io/tokenizer/tokenizer_interface.h"
#include "llmc/train/run/starting_weights.h"

namespace llmc {

// The tokenizer of --tokenizer. Without that flag: the one whose files are next to the weights;
// else that of the resumed run; else only token ids, if all data are token files; else bytes.
// `request`: flags that are typed or recorded. `typed`: --tokenizer if it is typed.
std::unique_ptr<Tokenizer> make_run_tokenizer(const Request& request,
                                              const std::optional<std::string>& typed,
                                              const std::optional<StartingWeights>& weights);

}  // namespace llmc
