// The interface of all tokenizers. tokenizer.h selects one by name.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/base/error.h"

namespace llmc {

// The text that stands for the token between documents.
inline constexpr std::string_view kEndOfText = "<|endoftext|>";

// A token that encodes no ordinary text, and its spelling.
struct SpecialToken {
  std::string text;
  std::int32_t id;
};

// A small file: its name, without a directory, and its content.
struct TextFile {
  std::string name, text;
};

// Immutable: any number of threads may use one instance at the same time.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Ids are 0 .. vocabulary_size() - 1.
  virtual std::int64_t vocabulary_size() const = 0;

  // Whether encode() and decode() work. They throw if only the number of tokens is known.
  virtual bool has_text() const { return true; }

  // Returns the tokens of a text, which may contain any bytes. Never returns end_of_text(), even if
  // the text spells it out: a document cannot end itself. The exception is a word list, in which
  // end-of-text is a word like any other.
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;

  // Like encode(), but a special token that the text spells out becomes that token. If several
  // begin at the same place, the longest one is used. For prompts, which may contain special tokens
  // on purpose; never for documents.
  std::vector<std::int32_t> encode_with_special(std::string_view text) const;

  // The tokens that encode_with_special recognises, sorted by id.
  virtual std::vector<SpecialToken> special_tokens() const { return {}; }

  // Returns the bytes that these tokens stand for. They are not always valid UTF-8: a character can
  // span several tokens, and some of these may be missing here. Throws for an id outside the
  // vocabulary.
  virtual std::string decode(std::span<const std::int32_t> tokens) const = 0;

  // The token between documents, if the tokenizer has one.
  virtual std::optional<std::int32_t> end_of_text() const = 0;

  // The argument of make_tokenizer that creates this tokenizer.
  virtual std::string name() const = 0;

  // The files from which transformers' AutoTokenizer and make_tokenizer create a tokenizer with the
  // same tokens. Empty if the tokenizer cannot be written in this form.
  virtual std::vector<TextFile> files() const { return {}; }

 protected:
  // Returns `token` as an index. Throws if it is outside the vocabulary.
  std::size_t checked_index(std::int32_t token) const {
    if (token < 0 || token >= vocabulary_size()) {
      fail("token " + std::to_string(token) + " is outside the vocabulary of " +
           std::to_string(vocabulary_size()) + " tokens of the tokenizer " + name());
    }
    return static_cast<std::size_t>(token);
  }
};

inline std::vector<std::int32_t> Tokenizer::encode_with_special(std::string_view text) const {
  const std::vector<SpecialToken> special = special_tokens();
  std::array<bool, 256> can_begin{};
  for (const SpecialToken& token : special)
    can_begin[static_cast<unsigned char>(token.text[0])] = true;
  std::vector<std::int32_t> tokens;
  const auto add_plain = [&](std::string_view part) {
    const std::vector<std::int32_t> ids = encode(part);
    tokens.insert(tokens.end(), ids.begin(), ids.end());
  };
  std::size_t plain_begin = 0;  // start of the text that is not encoded yet
  for (std::size_t at = 0; at < text.size();) {
    const SpecialToken* match = nullptr;
    if (can_begin[static_cast<unsigned char>(text[at])]) {
      for (const SpecialToken& token : special) {
        const bool is_longer = match == nullptr || token.text.size() > match->text.size();
        if (is_longer && text.substr(at).starts_with(token.text)) match = &token;
      }
    }
    if (match == nullptr) {
      ++at;
      continue;
    }
    add_plain(text.substr(plain_begin, at - plain_begin));
    tokens.push_back(match->id);
    plain_begin = at += match->text.size();
  }
  add_plain(text.substr(plain_begin));
  return tokens;
}

}  // namespace llmc
