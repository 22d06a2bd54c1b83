// What every tokenizer does. The kinds there are, and the one way to choose among them, are in
// tokenizer.h.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/device/error.h"

namespace llmc {

// The text that stands for the token between documents.
inline constexpr std::string_view kEndOfText = "<|endoftext|>";

// A small file: its name, without a folder, and all that is in it.
struct TextFile {
  std::string name, text;
};

// Unchanging once made: any number of threads may use one at the same time.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Ids are 0 .. vocabulary_size() - 1.
  virtual std::int64_t vocabulary_size() const = 0;

  // The tokens of a text, which may hold any bytes. Never gives end_of_text(), not even for a text
  // that spells it out: a document cannot end itself. (Words of a list are the exception: there it
  // is a word as any other.)
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;

  // The bytes that these tokens stand for. Not always valid UTF-8: a character can be spread over
  // tokens of which some are missing here. Throws for an id outside the vocabulary.
  virtual std::string decode(std::span<const std::int32_t> tokens) const = 0;

  // The token between documents, where there is one.
  virtual std::optional<std::int32_t> end_of_text() const = 0;

  // What make_tokenizer is given to make this one.
  virtual std::string name() const = 0;

  // The files from which transformers' AutoTokenizer, and make_tokenizer, make a tokenizer that
  // gives the same tokens. Empty where there is no such form.
  virtual std::vector<TextFile> files() const { return {}; }

 protected:
  std::size_t checked(std::int32_t token) const {
    if (token < 0 || token >= vocabulary_size()) {
      fail("token " + std::to_string(token) + " is outside the vocabulary of " +
           std::to_string(vocabulary_size()) + " tokens of the tokenizer " + name());
    }
    return static_cast<std::size_t>(token);
  }
};

}  // namespace llmc
