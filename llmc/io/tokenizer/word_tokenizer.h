// One token per word of a list, for languages with few words such as the built-in toy language.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "llmc/io/tokenizer/tokenizer_files.h"
#include "llmc/io/tokenizer/tokenizer_interface.h"

namespace llmc {

class WordTokenizer : public Tokenizer {
 public:
  // Reads a file with one word per line, in UTF-8, without white space or duplicates. The id of a
  // word is its line number, counted from 0. Throws an error that names the file and the line.
  explicit WordTokenizer(const std::filesystem::path& path);

  // Uses these words. Errors call the list `source`; `name` is the argument of make_tokenizer.
  WordTokenizer(const std::vector<std::string>& words, std::string source, std::string name);
  WordTokenizer(const std::vector<std::string>& words, const std::string& source)
      : WordTokenizer(words, source, "words:" + source) {}

  std::int64_t vocabulary_size() const override { return static_cast<std::int64_t>(words_.size()); }

  // Words are separated by white space (kWordSpace). Throws if a word is not in the list; the error
  // names the word and its line.
  std::vector<std::int32_t> encode(std::string_view text) const override;

  // Joins the words with single spaces.
  std::string decode(std::span<const std::int32_t> tokens) const override;

  // The id of the word "<|endoftext|>", if the list has it.
  std::optional<std::int32_t> end_of_text() const override;

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

  void add(std::string_view word);

  [[noreturn]] void fail_unknown(std::string_view text, std::size_t begin, std::size_t end) const;

  std::string source_;
  std::string name_;
  std::vector<std::string> words_;
  std::unordered_map<std::string, std::int32_t, Hash, std::equal_to<>> ids_;
};

}  // namespace llmc
