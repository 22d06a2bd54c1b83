// Fuzz target for the cache of a text's tokens. The input is the note in the header (version, key,
// checksums of the text and of the tokens), then the tokens. A token checksum of 0 is replaced by
// the correct one. No input causes an error: the reader returns a reason for a cache that it cannot
// use.
#pragma once

#include "llmc/io/data/token_cache.h"
#include "test/fuzz/fuzz.h"

namespace llmc_fuzz {

inline void token_cache(std::string_view input) {
  using llmc::token_cache_detail::Note;
  static const Folder folder;
  const std::string said = take(input, sizeof(Note));
  Note note;
  std::memcpy(&note, said.data(), sizeof note);
  if (note.tokens == 0) note.tokens = llmc::checksum_of(input);
  llmc::TokenFileHeader header{llmc::kTokenFileMagic, llmc::kTokenFileVersion,
                               static_cast<std::int32_t>(input.size() / 2)};
  std::memcpy(header.data() + llmc::kTokenFileNote, &note, sizeof note);
  std::string whole(sizeof header, '\0');
  std::memcpy(whole.data(), header.data(), sizeof header);
  const std::string path = folder.write("a.cache.bin", whole.append(input));
  std::string why;
  const Note want{.key = note.key, .input = 1};
  const auto tokens = llmc::token_cache_detail::read_cache(path, want, why);
  expect(tokens.has_value() == why.empty(), "a cache is used, or there is a reason");
  if (tokens) {
    expect(note.input == 1 && note.tokens == llmc::checksum_of(input) &&
               tokens->size() * 2 == std::ssize(input),
           "what is used is whole");
  }
}

}  // namespace llmc_fuzz
