#include "llmc/io/data/documents.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <utility>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/io/data/compressed_file.h"
#include "llmc/io/data/packed_kind.h"

namespace llmc {

namespace {

std::string document_text(std::string_view line, const std::string& location,
                          const DocumentFormat& format) {
  const Json json = parse_json(line, location);
  require(json.is_object(), location + " is not a JSON object",
          "put one JSON object on each line of a .jsonl file");
  const Json* value = json_member(json, format.field);
  if (value == nullptr) {
    std::string names;
    for (const auto& [name, other] : json.items()) names += (names.empty() ? "" : ", ") + name;
    fail(location + " has no field \"" + printable(format.field) + "\"" +
             (names.empty() ? " (it is empty)" : " (it has: " + printable(names) + ")"),
         "set " + quantity("text field") + " to the field that holds the text");
  }
  return json_text(*value, location + ": the field \"" + printable(format.field) + "\"");
}

}  // namespace

std::string json_document(std::string_view line, const std::string& location,
                          const DocumentFormat& format) {
  try {
    return document_text(line, location, format);
  } catch (const Error& error) {
    const std::string text = error.marked_text();
    const bool has_hint = text.find("\n  hint: ") != text.npos;
    fail(text + (has_hint ? "; or " : "\n  hint: ") + "skip lines that are no documents with " +
         quantity("skipping bad lines"));
  }
}

std::string skipped_lines_text(std::int64_t count, const std::string& first) {
  return "warning: " + std::to_string(count) +
         (count == 1 ? " line that is no document was skipped: "
                     : " lines that are no documents were skipped; the first is ") +
         first;
}

namespace {

// The kind of a file that is no text (packed_kind.h), or an empty text.
std::string packed_kind_of(const std::string& path) {
  try {
    std::array<std::byte, 16> start{};
    const std::size_t size = read_some(open_for_reading(path), start, path);
    return packed_kind({reinterpret_cast<const char*>(start.data()), size}, path);
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

DocumentReader::DocumentReader(const std::vector<std::string>& names, DocumentFormat format,
                               const std::filesystem::path& copy_directory)
    : format_(std::move(format)) {
  for (const std::string& name : names) paths_.push_back(input_path(name));
  for (const std::string& path : paths_) kinds_.push_back(kind_of(path));
  open_inputs(copy_directory);
  for (const InputFile& input : inputs_) {
    const auto bytes = input.bytes();
    if (bytes.empty()) continue;
    ::madvise(const_cast<std::byte*>(bytes.data()), bytes.size(), MADV_SEQUENTIAL);
    total_ += static_cast<std::int64_t>(bytes.size());
  }
  std::size_t num_empty = 0;
  while (num_empty < inputs_.size() && !empty_reason(num_empty).empty()) ++num_empty;
  if (num_empty < inputs_.size()) return;
  fail(num_empty == 1 ? empty_reason(0) : "all " + std::to_string(num_empty) + " inputs are empty",
       "give a file with at least one document");
}

bool DocumentReader::next(Document& document) {
  while (input_ < inputs_.size()) {
    const std::string_view file = text_of_input(input_);
    if (position_ < file.size()) {
      document.input = input_;
      document.line = line_;
      document.is_json = kinds_[input_] == DocumentFormat::Kind::json_lines;
      if (document.is_json ? next_line(file, document) : next_text(file, document)) return true;
      continue;
    }
    ++input_;
    earlier_bytes_ += std::ssize(file);
    position_ = 0;
    line_ = 1;
  }
  return false;
}

std::string_view DocumentReader::text_of(const Document& document, std::string& storage) const {
  if (!document.is_json) return document.bytes;
  storage = json_document(document.bytes, place(document), format_);
  return storage;
}

bool DocumentReader::has_text() const {
  return std::ranges::find(kinds_, Kind::text) != kinds_.end();
}

std::string DocumentReader::empty_reason(std::size_t input) const {
  const std::string_view text = text_of_input(input);
  if (text.empty()) return paths_[input] + " is empty";
  if (kinds_[input] != Kind::json_lines || text.find_first_not_of(" \t\r\n") != text.npos)
    return {};
  return paths_[input] + " has no documents";
}

std::string_view DocumentReader::text_of_input(std::size_t input) const {
  const auto bytes = inputs_[input].bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void DocumentReader::release_read() {
  for (; released_input_ < input_; ++released_input_, released_bytes_ = 0) {
    release(released_input_, released_bytes_, inputs_[released_input_].bytes().size());
  }
  if (input_ < inputs_.size()) release(input_, released_bytes_, position_);
  released_bytes_ = position_;
}

void DocumentReader::check_unchanged() const {
  for (const InputFile& input : inputs_) input.check_unchanged();
}

DocumentReader::Kind DocumentReader::kind_of(const std::string& path) const {
  if (format_.kind != Kind::by_name) return format_.kind;
  const std::string extension = std::filesystem::path(uncompressed_name(path)).extension().string();
  if (extension == ".txt") return Kind::text;
  if (extension == ".jsonl") return Kind::json_lines;
  if (is_pipe(path) || is_descriptor_path(path)) return Kind::text;
  if (const std::string kind = packed_kind_of(path); !kind.empty()) {
    fail(path + " is not a text: it is " + kind);
  }
  fail(path + " is neither .txt nor .jsonl",
       extension == ".bin" ? "turn token files into text with " + quantity("decoding")
                           : "set " + quantity("document format") + " for files of other names");
}

void DocumentReader::open_inputs(const std::filesystem::path& copy_directory) {
  inputs_.resize(paths_.size());
  for (const bool pipes : {false, true}) {
    for (std::size_t i = 0; i < paths_.size(); ++i) {
      if (is_pipe(paths_[i]) == pipes) inputs_[i] = InputFile(paths_[i], copy_directory);
    }
  }
}

void DocumentReader::release(std::size_t input, std::size_t begin, std::size_t end) const {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t from = begin / page * page;
  auto* data = const_cast<std::byte*>(inputs_[input].bytes().data());
  if (end > from) ::madvise(data + from, end - from, MADV_DONTNEED);
}

std::string_view DocumentReader::take_line(std::string_view file) {
  const auto* begin = file.data() + position_;
  const auto* end = static_cast<const char*>(std::memchr(begin, '\n', file.size() - position_));
  const auto length =
      end == nullptr ? file.size() - position_ : static_cast<std::size_t>(end - begin);
  position_ += length + (end == nullptr ? 0 : 1);
  ++line_;
  std::string_view line(begin, length);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

bool DocumentReader::next_line(std::string_view file, Document& document) {
  document.bytes = take_line(file);
  return document.bytes.find_first_not_of(" \t\r") != std::string_view::npos;
}

bool DocumentReader::next_text(std::string_view file, Document& document) {
  const std::size_t begin = position_;
  std::size_t end = file.size();
  if (!format_.separator) {
    position_ = file.size();
  } else {
    for (bool is_separator = false; position_ < file.size() && !is_separator;) {
      const std::size_t line_begin = position_;
      is_separator = take_line(file) == *format_.separator;
      if (is_separator) end = line_begin;
    }
  }
  document.bytes = file.substr(begin, end - begin);
  // No document ends at a separator that begins the file or directly follows another separator.
  return end > begin;
}

}  // namespace llmc
