#include "llmc/io/data/text_encoding.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "llmc/base/error.h"
#include "llmc/base/notice.h"
#include "llmc/base/utf8.h"
#include "llmc/io/data/packed_kind.h"

namespace llmc {

namespace {

// Counts of bytes in the samples of a text.
struct ByteCounts {
  std::size_t bytes = 0;
  std::array<std::size_t, 4> nul = {};  // NUL bytes by their position modulo 4
  std::size_t control = 0;              // other control characters that plain texts do not have
  std::size_t broken = 0;               // bytes that belong to no UTF-8 character
  std::size_t broken_c1 = 0;   // those from 0x80 to 0x9f, which are letters in Windows-1252
  std::size_t characters = 0;  // UTF-8 characters of several bytes

  std::size_t all_nul() const { return nul[0] + nul[1] + nul[2] + nul[3]; }
};

// Adds the bytes begin .. end - 1 of a text. `begin` is a multiple of 4.
void count_bytes(ByteCounts& counts, std::string_view text, std::size_t begin, std::size_t end) {
  counts.bytes += end - begin;
  for (std::size_t i = begin; i < end; ++i) {
    const auto byte = static_cast<std::uint8_t>(text[i]);
    if (byte == 0) ++counts.nul[i % 4];
    counts.control += byte > 0 && byte < 32 && (byte < 8 || byte > 13) && byte != 27 ? 1 : 0;
  }
  std::string_view rest = text.substr(begin, end - begin);
  if (begin > 0) {  // the sample may begin inside a character
    for (int i = 0; i < 3 && !rest.empty() && (rest[0] & 0xc0) == 0x80; ++i) rest.remove_prefix(1);
  }
  while (!rest.empty()) {
    const Utf8Start start = utf8_start(rest);
    if (start.kind == Utf8Start::Kind::cut) break;
    if (start.kind == Utf8Start::Kind::broken) {
      counts.broken += start.length;
      counts.broken_c1 += static_cast<std::uint8_t>(rest[0]) < 0xa0 ? 1 : 0;
    } else {
      counts.characters += start.length > 1 ? 1 : 0;
    }
    rest.remove_prefix(start.length);
  }
}

// Counts the first 64 KiB and 16 samples of 4 KiB from the rest of the text.
ByteCounts sample_bytes(std::string_view text) {
  constexpr std::size_t kHead = std::size_t{1} << 16, kSample = std::size_t{1} << 12, kSamples = 16;
  ByteCounts counts;
  count_bytes(counts, text, 0, std::min(kHead, text.size()));
  if (text.size() < kHead + kSamples * kSample) {
    if (text.size() > kHead) count_bytes(counts, text, kHead, text.size());
    return counts;
  }
  const std::size_t distance = (text.size() - kHead) / kSamples;
  for (std::size_t i = 0; i < kSamples; ++i) {
    const std::size_t begin = (kHead + i * distance) / 4 * 4;
    count_bytes(counts, text, begin, begin + kSample);
  }
  return counts;
}

std::string convert_hint(const std::string& encoding) {
  return ": its bytes are used as they are; convert it with iconv -f " + encoding + " -t UTF-8";
}

}  // namespace

std::string encoding_problem(std::string_view text) {
  using namespace std::string_view_literals;
  const ByteCounts counts = sample_bytes(text);
  const std::size_t nul = counts.all_nul();
  if (counts.broken == 0 && nul * 5 < counts.bytes + 1) return {};
  const auto likely = [](const char* name, const char* iconv_name) {
    return std::string("looks like ") + name + convert_hint(iconv_name);
  };
  const bool is_wide = nul * 3 > counts.bytes * 2;  // three of four bytes are NUL
  const std::size_t odd = counts.nul[1] + counts.nul[3], even = nul - odd;
  if (text.starts_with("\xff\xfe\0\0"sv) || (is_wide && counts.nul[0] * 10 < nul)) {
    return likely("UTF-32 (little endian)", "UTF-32LE");
  }
  if (text.starts_with("\0\0\xfe\xff"sv) || (is_wide && counts.nul[3] * 10 < nul)) {
    return likely("UTF-32 (big endian)", "UTF-32BE");
  }
  const bool has_pattern = nul * 5 >= counts.bytes && !is_wide;
  if (text.starts_with("\xff\xfe") || (has_pattern && even * 10 < nul)) {
    return likely("UTF-16 (little endian)", "UTF-16LE");
  }
  if (text.starts_with("\xfe\xff") || (has_pattern && odd * 10 < nul)) {
    return likely("UTF-16 (big endian)", "UTF-16BE");
  }
  if (nul * 5 >= counts.bytes) return "has many NUL bytes: it is damaged, or not a text";
  if ((counts.control + nul) * 20 > counts.bytes) return "looks like binary data, not like a text";
  if (counts.characters >= counts.broken) {
    return "has bytes that are not UTF-8: they are used as they are; remove them with "
           "iconv -f UTF-8 -t UTF-8 -c";
  }
  return counts.broken_c1 > 0 ? likely("Windows-1252", "WINDOWS-1252")
                              : likely("Latin-1 (ISO 8859-1)", "ISO-8859-1");
}

void warn_about_encoding(std::string_view text, const std::string& path, bool is_json) {
  std::string problem = encoding_problem(text);
  if (problem.empty()) return;
  const std::string kind = packed_kind(text, path);
  if (!kind.empty()) fail(path + " is not a text: it is " + kind);
  if (is_json) {
    for (const std::string phrase :
         {"its bytes are used as they are; ", "they are used as they are; "}) {
      const std::size_t at = problem.find(phrase);
      if (at != problem.npos) problem.erase(at, phrase.size());
    }
  }
  Notice::warn("warning: " + path + " " + problem);
}

}  // namespace llmc
