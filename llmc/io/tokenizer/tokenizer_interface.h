// What every tokenizer does. The kinds there are, and the one way to choose among them, are in
// tokenizer.h.
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

// A token that stands for no text of its own, and how it is spelled out.
struct SpecialToken {
  std::string text;
  std::int32_t id;
};

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

  // The same, but where the text spells out a special token, that token: the longest of those that
  // begin at the same place. For prompts, whose writer may mean it; never for documents.
  std::vector<std::int32_t> encode_with_special(std::string_view text) const;

  // What encode_with_special looks for, by id.
  virtual std::vector<SpecialToken> special_tokens() const { return {}; }

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
  // `token` as an index.
  std::size_t checked(std::int32_t token) const {
    if (token < 0 || token >= vocabulary_size()) {
      fail("token " + std::to_string(token) + " is outside the vocabulary of " +
           std::to_string(vocabulary_size()) + " tokens of the tokenizer " + name());
    }
    return static_cast<std::size_t>(token);
  }
};

inline std::vector<std::int32_t> Tokenizer::encode_with_special(std::string_view text) const {
  const std::vector<SpecialToken> special = special_tokens();
  std::array<bool, 256> begins{};
  for (const SpecialToken& token : special)
    begins[static_cast<unsigned char>(token.text[0])] = true;
  std::vector<std::int32_t> tokens;
  const auto add_plain = [&](std::string_view part) {
    const std::vector<std::int32_t> ids = encode(part);
    tokens.insert(tokens.end(), ids.begin(), ids.end());
  };
  std::size_t plain = 0;  // where what is not encoded yet begins
  for (std::size_t at = 0; at < text.size();) {
    const SpecialToken* found = nullptr;
    if (begins[static_cast<unsigned char>(text[at])]) {
      for (const SpecialToken& token : special) {
        const bool longer = found == nullptr || token.text.size() > found->text.size();
        if (longer && text.substr(at).starts_with(token.text)) found = &token;
      }
    }
    if (found == nullptr) {
      ++at;
      continue;
    }
    add_plain(text.substr(plain, at - plain));
    tokens.push_back(found->id);
    plain = at += found->text.size();
  }
  add_plain(text.substr(plain));
  return tokens;
}

}  // namespace llmc
