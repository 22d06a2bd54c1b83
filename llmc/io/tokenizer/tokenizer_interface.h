// The interface of all tokenizers. tokenizer.h selects one by name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace llmc {

// The text that stands for the token between documents.
inline constexpr std::string_view kEndOfText = "<|endoftext|>";

// A token that a text is searched for before any other step, and its spelling.
struct AddedToken {
  std::string text;
  std::int32_t id;
  // It encodes no ordinary text; otherwise it does, wherever it is spelled out.
  bool special = true;
  // It takes the white space before or after it.
  bool strips_left = false, strips_right = false;
  // It remains text next to a character of a word (word_characters.h).
  bool single_word = false;
  // It is searched for after the other kind, between the tokens of that.
  bool is_second = false;
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
  virtual std::vector<std::int32_t> encode_with_special(std::string_view text) const;

  // The tokens that encode_with_special recognises before it encodes, sorted by id.
  virtual std::vector<AddedToken> added_tokens() const { return {}; }

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
  std::size_t checked_index(std::int32_t token) const;
};

}  // namespace llmc
