// Fuzz target for the cache of a text's tokens. The input is the note in the header (version, key,
// checksums of the text and of the tokens), then the tokens. A token checksum of 0 is replaced by
// the correct one. No input causes an error: the reader returns a reason for a cache that it cannot
// use.
#pragma once

#include <cstddef>

#include "llmc/io/data/token_cache.h"
#include "test/fuzz/fuzz.h"

namespace llmc_fuzz {

inline void token_cache(std::string_view input) {
  using llmc::token_cache_detail::Note;
  static const Folder folder;
  const std::string bytes = take(input, offsetof(Note, skipped));
  Note note;
  std::memcpy(&note, bytes.data(), bytes.size());
  if (note.tokens == 0) note.tokens = llmc::checksum_of(input);
  llmc::TokenFileHeader header{llmc::kTokenFileMagic, llmc::kTokenFileVersion,
                               static_cast<std::int32_t>(input.size() / 2)};
  std::memcpy(header.data() + llmc::kTokenFileNote, &note, sizeof note);
  std::string file(sizeof header, '\0');
  std::memcpy(file.data(), header.data(), sizeof header);
  const std::string path = folder.write("a.cache.bin", file.append(input));
  std::string reason;
  Note expected{.key = note.key, .input = 1};
  const auto tokens = llmc::token_cache_detail::read_cache(path, expected, reason);
  expect(tokens.has_value() == reason.empty(), "an unused cache has a reason");
  if (tokens) {
    expect(note.input == 1 && note.tokens == llmc::checksum_of(input) &&
               tokens->size() * 2 == std::ssize(input),
           "a cache that is used is complete");
  }
}

}  // namespace llmc_fuzz
