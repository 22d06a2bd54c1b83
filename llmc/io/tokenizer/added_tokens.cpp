#include "llmc/io/tokenizer/added_tokens.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string>

#include "llmc/io/tokenizer/word_characters.h"

namespace llmc {

namespace {

// The characters with the property White_Space of Unicode, in UTF-8.
constexpr std::array<std::string_view, 25> kSpaces = {
    "\t",           "\n",           "\v",           "\f",           "\r",           " ",
    "\xC2\x85",     "\xC2\xA0",     "\xE1\x9A\x80", "\xE2\x80\x80", "\xE2\x80\x81", "\xE2\x80\x82",
    "\xE2\x80\x83", "\xE2\x80\x84", "\xE2\x80\x85", "\xE2\x80\x86", "\xE2\x80\x87", "\xE2\x80\x88",
    "\xE2\x80\x89", "\xE2\x80\x8A", "\xE2\x80\xA8", "\xE2\x80\xA9", "\xE2\x80\xAF", "\xE2\x81\x9F",
    "\xE3\x80\x80"};

// The number of bytes of white space at the end, or at the beginning, of a text.
std::size_t spaces_at_end(std::string_view text) {
  std::size_t size = 0;
  for (bool grows = true; grows;) {
    grows = false;
    for (const std::string_view space : kSpaces) {
      if (!text.substr(0, text.size() - size).ends_with(space)) continue;
      size += space.size();
      grows = true;
    }
  }
  return size;
}
std::size_t spaces_at_begin(std::string_view text) {
  std::size_t size = 0;
  for (bool grows = true; grows;) {
    grows = false;
    for (const std::string_view space : kSpaces) {
      if (!text.substr(size).starts_with(space)) continue;
      size += space.size();
      grows = true;
    }
  }
  return size;
}

using Selection = std::function<bool(const AddedToken&)>;

// One search for some of the tokens.
class Search {
 public:
  Search(std::vector<const AddedToken*> tokens, const Selection& selects) : selects_(selects) {
    // At each place the longest token is the first one that matches.
    std::ranges::sort(tokens, std::greater(), [](const AddedToken* t) { return t->text.size(); });
    for (const AddedToken* token : tokens) {
      of_byte_[static_cast<unsigned char>(token->text[0])].push_back(token);
      selects_any_ = selects_any_ || selects_(*token);
      if (token->single_word && !words_.has_value()) words_.emplace();
    }
  }

  void run(std::string_view text, const AddedTokenUses& uses) const {
    std::size_t plain_begin = 0;  // the text from here on has not been used
    for (std::size_t at = 0; selects_any_ && at < text.size();) {
      const AddedToken* const match = longest_at(text.substr(at));
      if (match == nullptr) {
        ++at;
        continue;
      }
      // The search continues after the text of the token, also if the token is not selected or
      // strips more. So a token that begins with the stripped white space is found too.
      const std::size_t end = at + match->text.size();
      if (selects_(*match) && !is_in_word(*match, text.substr(0, at), text.substr(end))) {
        std::size_t begin = at, stop = end;
        if (match->strips_left)
          begin = std::max(plain_begin, at - spaces_at_end(text.substr(0, at)));
        if (match->strips_right) stop += spaces_at_begin(text.substr(end));
        if (begin > plain_begin) uses.text(text.substr(plain_begin, begin - plain_begin));
        // Nothing is left of white space that the token before has stripped.
        if (begin < stop) uses.token(*match);
        plain_begin = stop;
      }
      at = end;
    }
    if (plain_begin < text.size()) uses.text(text.substr(plain_begin));
  }

 private:
  const AddedToken* longest_at(std::string_view text) const {
    for (const AddedToken* token : of_byte_[static_cast<unsigned char>(text[0])]) {
      if (text.starts_with(token->text)) return token;
    }
    return nullptr;
  }

  // Whether a token that must be a word of its own is part of a longer one.
  bool is_in_word(const AddedToken& token, std::string_view before, std::string_view after) const {
    return token.single_word && (words_->ends(before) || words_->begins(after));
  }

  const Selection& selects_;
  std::array<std::vector<const AddedToken*>, 256> of_byte_;  // by their first byte
  bool selects_any_ = false;
  std::optional<WordCharacters> words_;  // if a token has single_word
};

}  // namespace

void split_added_tokens(std::string_view text, const std::vector<AddedToken>& tokens,
                        const std::function<bool(const AddedToken&)>& selects,
                        const AddedTokenUses& uses) {
  std::vector<const AddedToken*> first, second;
  for (const AddedToken& token : tokens) {
    (token.is_second ? second : first).push_back(&token);
  }
  const Search between(second, selects);
  Search(first, selects)
      .run(text,
           {.text = [&](std::string_view part) { between.run(part, uses); }, .token = uses.token});
}

}  // namespace llmc
