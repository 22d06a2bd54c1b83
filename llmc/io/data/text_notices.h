// Finds texts that are probably meant to be read in another way, from samples of their bytes: JSON
// lines that are read as a text, texts that spell out <|endoftext|>, and line ends of Windows.
//
// Such texts train without an error, on useless tokens. A program examines all of them and then
// prints one warning per kind. Texts that are not UTF-8 are reported one by one (text_encoding.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "llmc/io/data/documents.h"

namespace llmc {

// The remedies, as imperatives that name the program's flag.
struct TextAdvice {
  std::string json_lines = "convert them to a text first";
  std::string end_of_text = "split the text there first";
};

class TextNotices {
 public:
  explicit TextNotices(TextAdvice advice) : advice_(std::move(advice)) {}

  // Examines a text that is read in `format`, whose kind is not by_name. Throws if the file is of a
  // kind that is no text, such as Parquet.
  void examine(std::string_view text, const std::string& path, const DocumentFormat& format);

  // The same for a file that has not been read. A part of it is read and, if it is compressed,
  // unpacked. Errors of reading, and pipes, are left to the code that reads the text.
  void examine_file(const std::string& path, const DocumentFormat& format);

  // Prints the warnings, and forgets the texts.
  void print();

 private:
  // The texts with one problem.
  struct Texts {
    std::int64_t files = 0;
    std::string first;        // path of the first one
    std::int64_t count = 0;   // occurrences in all of them
    bool is_sampled = false;  // more may be in the parts that were not read
    bool inside_lines = false;

    void add(const std::string& path, std::int64_t occurrences);
    // "a.txt", "a.txt and 2 more files".
    std::string names() const;
  };

  TextAdvice advice_;
  Texts json_lines_, end_of_text_, windows_lines_;
};

}  // namespace llmc
