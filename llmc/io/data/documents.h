// Reads documents, one after another, from text files, JSON lines and pipes, which may be
// compressed (compressed_file.h).
//
// Files and copies of pipes are mapped and documents are views of them, so no whole file needs to
// be in memory. A file must not be truncated while it is read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/io/data/input_file.h"

namespace llmc {

struct DocumentFormat {
  enum class Kind { by_name, text, json_lines };
  // by_name: .txt is a text, .jsonl are JSON lines, also before .gz or .zst; a pipe with another
  // name is a text
  Kind kind = Kind::by_name;
  std::string field = "text";            // key of the text in each JSON object
  std::optional<std::string> separator;  // line between two documents of a text; none: one document
};

// The lines of JSON lines that are no documents, and were skipped.
struct SkippedLines {
  std::int64_t count = 0;
  std::int64_t first = 0;  // line of the file

  void add(std::int64_t line) {
    if (count++ == 0) first = line;
  }
};

// The warning about skipped lines; `first` is "FILE:LINE".
std::string skipped_lines_text(std::int64_t count, const std::string& first);

// A document and its place in a file.
struct Document {
  std::string_view bytes;  // view of the file: the text, or a line with a JSON object
  std::size_t input = 0;   // index of the file
  std::int64_t line = 1;   // line of the file where it begins
  bool is_json = false;
};

// Returns the text under format.field of the JSON object in a line. Errors call the line
// `location`. Throws if the line is not valid JSON in UTF-8, if it is not an object, or if the
// field is missing or not a string.
std::string json_document(std::string_view line, const std::string& location,
                          const DocumentFormat& format);

// The documents of several inputs, in order.
class DocumentReader {
 public:
  // `names` are files and pipes that check_pipes accepts; "-" is stdin. Pipes are copied to
  // `copy_directory`. Throws an error that names the input if an input is missing or of an unknown
  // kind, or if all inputs are empty.
  DocumentReader(const std::vector<std::string>& names, DocumentFormat format,
                 const std::filesystem::path& copy_directory = ".");

  // Sets `document` to the next document, which may be empty (JSON only). Returns false at the end
  // of the last file.
  bool next(Document& document);

  // Returns the text of a document: its bytes, or the field of its JSON object, which is then
  // stored in `storage`. Any number of threads may call this. Throws as json_document does; errors
  // name file and line.
  std::string_view text_of(const Document& document, std::string& storage) const;

  // "FILE:LINE".
  std::string place(const Document& document) const {
    return paths_[document.input] + ":" + std::to_string(document.line);
  }

  const std::vector<InputFile>& inputs() const { return inputs_; }

  // How an input is read: its kind is not by_name.
  DocumentFormat format_of(std::size_t input) const {
    return {.kind = kinds_[input], .field = format_.field, .separator = format_.separator};
  }

  // Whether an input is a plain text.
  bool has_text() const;

  // "FILE is empty", or "FILE has no documents" if it has only blank JSON lines. Otherwise "".
  std::string empty_reason(std::size_t input) const;

  std::string_view text_of_input(std::size_t input) const;
  std::int64_t total_bytes() const { return total_; }

  // Bytes of all files before the next document.
  std::int64_t bytes_read() const { return earlier_bytes_ + static_cast<std::int64_t>(position_); }

  // Releases the pages of all documents read so far; touching them again re-reads them from disk.
  void release_read();

  // Throws if a file was written or replaced since it was opened.
  void check_unchanged() const;

 private:
  using Kind = DocumentFormat::Kind;

  Kind kind_of(const std::string& path) const;

  // Opens the pipes last, so that an error in a file's name is reported before a long copy.
  void open_inputs(const std::filesystem::path& copy_directory);

  // Releases the pages that contain bytes begin .. end - 1.
  void release(std::size_t input, std::size_t begin, std::size_t end) const;

  // Returns the line at position_, without its line break, and moves position_ past it.
  std::string_view take_line(std::string_view file);

  // Returns false for a line of white space, which is not a document.
  bool next_line(std::string_view file, Document& document);

  // Reads up to the next separator. Line breaks inside belong to the document.
  bool next_text(std::string_view file, Document& document);

  std::vector<std::string> paths_;
  DocumentFormat format_;
  std::vector<Kind> kinds_;
  std::vector<InputFile> inputs_;
  std::int64_t total_ = 0;
  std::size_t input_ = 0;           // file of the next document, which begins at byte position_
  std::int64_t earlier_bytes_ = 0;  // bytes of earlier files
  std::size_t position_ = 0;
  std::int64_t line_ = 1;
  std::size_t released_input_ = 0;  // pages before byte released_bytes_ of this file are released
  std::size_t released_bytes_ = 0;
};

}  // namespace llmc
