// The inputs of a generation: the tokenizer that belongs to the weights, and the prompt in its
// tokens. Every error names the flag.
#pragma once

#include <cstdint>
#include <istream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "llmc/config/infer_settings.h"
#include "llmc/config/model_config.h"
#include "llmc/io/tokenizer/tokenizer_interface.h"

namespace llmc {

// The config of --model, with --adapter merged, and the tokenizer.
struct ModelFiles {
  ModelConfig config{};
  std::unique_ptr<Tokenizer> tokenizer{};
  // The tokens that end a text: those of the model (read_end_tokens), otherwise the tokenizer's
  // end-of-text token, if it has one. The first one is also the token between documents.
  std::vector<std::int32_t> end_tokens{};

  std::optional<std::int32_t> end_of_text() const {
    return end_tokens.empty() ? std::nullopt : std::optional(end_tokens.front());
  }
};

// Reads them. --model must be a path of find_pretrained(). Throws if the two do not belong
// together.
ModelFiles read_model_files(const InferConfig& settings);

// --prompt, or all of `input` if --prompt is "-".
std::string prompt_text(const InferConfig& settings, std::istream& input);

// The tokens of a prompt: at least one, and fewer than the model's context so that at least one can
// follow. An empty text becomes the end-of-text token. Errors name the prompt as `source`; for the
// flag --prompt they are usage errors.
std::vector<std::int32_t> prompt_tokens(const std::string& text, const Tokenizer& tokenizer,
                                        std::optional<std::int32_t> end_of_text,
                                        std::int64_t context,
                                        const std::string& source = "--prompt");

// Removes the oldest tokens of a prompt that does not leave room for one token in the context, and
// returns their number.
std::int64_t drop_oldest_tokens(std::vector<std::int32_t>& tokens, std::int64_t context);

}  // namespace llmc
