// One token per word of a list, for languages with few words such as the built-in toy language.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "llmc/base/file.h"
#include "llmc/base/lines.h"
#include "llmc/base/utf8.h"
#include "llmc/io/tokenizer/tokenizer_files.h"
#include "llmc/io/tokenizer/tokenizer_interface.h"

namespace llmc {

class WordTokenizer : public Tokenizer {
 public:
  // Reads a file with one word per line, in UTF-8, without white space or duplicates. The id of a
  // word is its line number, counted from 0. Throws an error that names the file and the line.
  explicit WordTokenizer(const std::filesystem::path& path)
      : source_(path.string()), name_("words:" + source_) {
    const std::string list = read_file(path);
    require(!list.empty(), source_ + " is empty", kWordList);
    for (Lines lines(list); lines.next();) add(lines.line());
  }

  // Uses these words. Errors call the list `source`; `name` is the argument of make_tokenizer.
  WordTokenizer(const std::vector<std::string>& words, std::string source, std::string name)
      : source_(std::move(source)), name_(std::move(name)) {
    require(!words.empty(), source_ + " has no words", kWordList);
    for (const std::string& word : words) add(word);
  }
  WordTokenizer(const std::vector<std::string>& words, const std::string& source)
      : WordTokenizer(words, source, "words:" + source) {}

  std::int64_t vocabulary_size() const override { return static_cast<std::int64_t>(words_.size()); }

  // Words are separated by white space (kWordSpace). Throws if a word is not in the list; the error
  // names the word and its line.
  std::vector<std::int32_t> encode(std::string_view text) const override {
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

  // Joins the words with single spaces.
  std::string decode(std::span<const std::int32_t> tokens) const override {
    std::string text;
    for (const std::int32_t token : tokens) {
      const std::string& word = words_[checked_index(token)];
      if (!text.empty()) text += ' ';
      text += word;
    }
    return text;
  }

  // The id of the word "<|endoftext|>", if the list has it.
  std::optional<std::int32_t> end_of_text() const override {
    const auto entry = ids_.find(kEndOfText);
    if (entry == ids_.end()) return std::nullopt;
    return entry->second;
  }

  std::string name() const override { return name_; }
  std::vector<TextFile> files() const override { return word_files(words_); }

 private:
  static constexpr std::string_view kSpace = kWordSpace;
  static constexpr std::string_view kWordList =
      "write one word on each line, in UTF-8, without white space or repetition";

  // Transparent hash: a view of a text can be looked up without a copy.
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view word) const {
      return std::hash<std::string_view>()(word);
    }
  };

  void add(std::string_view word) {
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

  [[noreturn]] void fail_unknown(std::string_view text, std::size_t begin, std::size_t end) const {
    const auto line =
        std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(begin), '\n') + 1;
    fail("line " + std::to_string(line) + ": the word \"" +
             printable(text.substr(begin, end - begin)) + "\" is not in the word list " + source_,
         "separate all words by white space, and punctuation too");
  }

  std::string source_;
  std::string name_;
  std::vector<std::string> words_;
  std::unordered_map<std::string, std::int32_t, Hash, std::equal_to<>> ids_;
};

}  // namespace llmc
