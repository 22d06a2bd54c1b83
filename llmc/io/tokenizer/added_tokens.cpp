#include "llmc/io/tokenizer/added_tokens.h"

#include <array>
#include <cstddef>
#include <string>

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

// One search for some of the tokens.
class Search {
 public:
  explicit Search(std::vector<const AddedToken*> tokens) : tokens_(std::move(tokens)) {
    for (const AddedToken* token : tokens_)
      can_begin_[static_cast<unsigned char>(token->text[0])] = true;
  }

  void run(std::string_view text, const AddedTokenUses& uses) const {
    std::size_t plain_begin = 0;  // the text from here on has not been used
    for (std::size_t at = 0; at < text.size();) {
      const AddedToken* const match = longest_at(text.substr(at));
      if (match == nullptr) {
        ++at;
        continue;
      }
      const std::string_view plain = text.substr(plain_begin, at - plain_begin);
      const std::string_view before =
          plain.substr(0, plain.size() - (match->strips_left ? spaces_at_end(plain) : 0));
      if (!before.empty()) uses.text(before);
      uses.token(*match);
      at += match->text.size();
      if (match->strips_right) at += spaces_at_begin(text.substr(at));
      plain_begin = at;
    }
    if (plain_begin < text.size()) uses.text(text.substr(plain_begin));
  }

 private:
  const AddedToken* longest_at(std::string_view text) const {
    if (!can_begin_[static_cast<unsigned char>(text[0])]) return nullptr;
    const AddedToken* match = nullptr;
    for (const AddedToken* token : tokens_) {
      const bool is_longer = match == nullptr || token->text.size() > match->text.size();
      if (is_longer && text.starts_with(token->text)) match = token;
    }
    return match;
  }

  std::vector<const AddedToken*> tokens_;
  std::array<bool, 256> can_begin_{};
};

}  // namespace

void split_added_tokens(std::string_view text, const std::vector<AddedToken>& tokens,
                        const std::function<bool(const AddedToken&)>& selects,
                        const AddedTokenUses& uses) {
  std::vector<const AddedToken*> first, second;
  for (const AddedToken& token : tokens) {
    if (selects(token)) (token.is_second ? second : first).push_back(&token);
  }
  const Search between(second);
  Search(first).run(
      text, {.text = [&](std::string_view part) { between.run(part, uses); }, .token = uses.token});
}

}  // namespace llmc
