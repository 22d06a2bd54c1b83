#include "llmc/io/data/text_notices.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
#include <system_error>
#include <utility>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/base/lines.h"
#include "llmc/base/notice.h"
#include "llmc/io/data/compressed_file.h"
#include "llmc/io/data/text_encoding.h"
#include "llmc/io/tokenizer/tokenizer_interface.h"

namespace llmc {

namespace {

constexpr std::size_t kExaminedBytes = std::size_t{1} << 24;  // from the start of each text

bool is_json_object(std::string_view line) {
  const std::size_t begin = line.find_first_not_of(" \t\r");
  if (begin == line.npos || line[begin] != '{') return false;
  try {
    return parse_json(line, "a line").is_object();
  } catch (const Error&) {
    return false;
  }
}

// Whether the first two lines that are not blank are JSON objects, or the only one.
bool looks_like_json_lines(std::string_view text) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  Lines lines(text);
  if (!lines.next_filled() || !is_json_object(lines.line())) return false;
  return !lines.next_filled() || lines.end() == text.size() || is_json_object(lines.line());
}

// Whether most lines of the start of a text end in \r\n.
bool has_windows_lines(std::string_view text) {
  std::int64_t lines = 0, windows_lines = 0;
  text = text.substr(0, std::size_t{1} << 16);
  for (std::size_t at = 0; (at = text.find('\n', at)) != text.npos; ++at) {
    ++lines;
    windows_lines += at > 0 && text[at - 1] == '\r' ? 1 : 0;
  }
  return windows_lines * 2 > lines;
}

// The occurrences of <|endoftext|> in a text that is split at `separator`.
struct SpelledEnds {
  std::int64_t count = 0;
  bool inside_lines = false;  // some have other characters on their line
};

SpelledEnds spelled_ends(std::string_view text, const std::optional<std::string>& separator) {
  SpelledEnds ends;
  for (std::size_t at = 0; (at = text.find(kEndOfText, at)) != text.npos;) {
    const bool begins_line = at == 0 || text[at - 1] == '\n';
    at += kEndOfText.size();
    std::string_view rest = text.substr(at, 2);
    if (rest.starts_with('\r')) rest.remove_prefix(1);
    const bool is_line = begins_line && (rest.empty() || rest.starts_with('\n'));
    if (is_line && separator == kEndOfText) continue;
    ++ends.count;
    ends.inside_lines = ends.inside_lines || !is_line;
  }
  return ends;
}

}  // namespace

void TextNotices::Texts::add(const std::string& path, std::int64_t occurrences) {
  if (files++ == 0) first = path;
  count += occurrences;
}

std::string TextNotices::Texts::names() const {
  if (files == 1) return first;
  return first + " and " + std::to_string(files - 1) +
         (files == 2 ? " other file" : " other files");
}

void TextNotices::examine(std::string_view text, const std::string& path,
                          const DocumentFormat& format) {
  warn_about_encoding(text, path, format.kind == DocumentFormat::Kind::json_lines);
  if (format.kind != DocumentFormat::Kind::text) return;
  const std::string_view start = text.substr(0, kExaminedBytes);
  if (looks_like_json_lines(start)) return json_lines_.add(path, 1);
  if (const SpelledEnds ends = spelled_ends(start, format.separator); ends.count > 0) {
    end_of_text_.add(path, ends.count);
    end_of_text_.is_sampled = end_of_text_.is_sampled || start.size() < text.size();
    end_of_text_.inside_lines = end_of_text_.inside_lines || ends.inside_lines;
  }
  if (has_windows_lines(start)) windows_lines_.add(path, 1);
}

void TextNotices::examine_file(const std::string& path, const DocumentFormat& format) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return;
  MappedFile file;
  std::string unpacked;
  try {
    file = MappedFile(std::filesystem::path(path));
    if (compression_of(file.bytes()) != Compression::none) {
      decompress(file.bytes(), path, [&](std::span<const std::byte> piece) {
        unpacked.append(reinterpret_cast<const char*>(piece.data()), piece.size());
        return unpacked.size() <= kExaminedBytes;
      });
    }
  } catch (const Error&) {
    return;
  }
  const auto bytes = file.bytes();
  const bool is_compressed = compression_of(bytes) != Compression::none;
  examine(is_compressed
              ? std::string_view(unpacked)
              : std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()),
          path, format);
}

void TextNotices::print() {
  if (json_lines_.files > 0) {
    Notice::warn("warning: " + json_lines_.names() +
                 (json_lines_.files == 1 ? " looks like JSON lines but is read as a text"
                                         : " look like JSON lines but are read as texts") +
                 ", with keys and quotes: " + advice_.json_lines);
  }
  if (end_of_text_.files > 0) {
    const std::string marker(kEndOfText);
    std::string text = "warning: " + end_of_text_.names() + ": " + marker + " is spelled out " +
                       (end_of_text_.is_sampled ? "at least " : "") +
                       std::to_string(end_of_text_.count) +
                       (end_of_text_.count == 1 ? " time" : " times") +
                       " and stays ordinary text: " + advice_.end_of_text;
    if (end_of_text_.inside_lines) {
      text += " (some are inside lines: sed 's/" + marker +
              "/\\n&\\n/g' puts each on a line of "
              "its own)";
    }
    Notice::warn(text);
  }
  if (windows_lines_.files > 0) {
    Notice::warn("warning: " + windows_lines_.names() +
                 (windows_lines_.files == 1 ? " has" : " have") +
                 " line ends of Windows (\\r\\n), whose \\r become tokens: remove them with "
                 "sed -i 's/\\r$//'");
  }
  json_lines_ = end_of_text_ = windows_lines_ = {};
}

}  // namespace llmc
