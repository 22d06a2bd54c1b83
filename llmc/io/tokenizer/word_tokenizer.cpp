#include "llmc/io/tokenizer/word_tokenizer.h"

#include <algorithm>
#include <utility>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/lines.h"
#include "llmc/base/utf8.h"

namespace llmc {

WordTokenizer::WordTokenizer(const std::filesystem::path& path)
    : source_(path.string()), name_("words:" + source_) {
  const std::string list = read_file(path);
  require(!list.empty(), source_ + " is empty", kWordList);
  for (Lines lines(list); lines.next();) {
    std::string_view word = lines.line();
    if (word.ends_with('\r')) word.remove_suffix(1);  // a file with the line ends of Windows
    add(word);
  }
}

WordTokenizer::WordTokenizer(const std::vector<std::string>& words, std::string source,
                             std::string name)
    : source_(std::move(source)), name_(std::move(name)) {
  require(!words.empty(), source_ + " has no words", kWordList);
  for (const std::string& word : words) add(word);
}

std::vector<std::int32_t> WordTokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> tokens;
  std::size_t begin = text.find_first_not_of(kSpace);
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find_first_of(kSpace, begin), text.size());
    const auto entry = ids_.find(text.substr(begin, end - begin));
    if (entry == ids_.end()) fail_unknown(text, begin, end);
    tokens.push_back(entry->second);
    begin = text.find_first_not_of(kSpace, end);
  }
  return tokens;
}

std::string WordTokenizer::decode(std::span<const std::int32_t> tokens) const {
  std::string text;
  for (const std::int32_t token : tokens) {
    const std::string& word = words_[checked_index(token)];
    if (!text.empty()) text += ' ';
    text += word;
  }
  return text;
}

std::optional<std::int32_t> WordTokenizer::end_of_text() const {
  const auto entry = ids_.find(kEndOfText);
  if (entry == ids_.end()) return std::nullopt;
  return entry->second;
}

void WordTokenizer::add(std::string_view word) {
  const std::string line = source_ + ", line " + std::to_string(words_.size() + 1) + ": ";
  require(!word.empty(), line + "the line is empty", kWordList);
  if (word.find_first_of(kSpace) != word.npos) {
    fail(line + "\"" + printable(word) + "\" contains white space", std::string(kWordList));
  }
  if (!is_utf8(word)) {
    fail(line + "\"" + printable(word) + "\" is not UTF-8", std::string(kWordList));
  }
  if (!ids_.emplace(word, static_cast<std::int32_t>(words_.size())).second) {
    fail(line + "the word \"" + printable(word) + "\" is repeated", std::string(kWordList));
  }
  words_.emplace_back(word);
}

void WordTokenizer::fail_unknown(std::string_view text, std::size_t begin, std::size_t end) const {
  const auto line =
      std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(begin), '\n') + 1;
  fail("line " + std::to_string(line) + ": the word \"" +
           printable(text.substr(begin, end - begin)) + "\" is not in the word list " + source_,
       "separate all words by white space, and punctuation too");
}

}  // namespace llmc
