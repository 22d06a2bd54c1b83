// Fuzz target for Megatron-LM's index next to its tokens. The first byte is the length of the token
// file, and the rest is the index. If the rest does not begin with an M, the target inserts the
// magic number and version before it.
#pragma once

#include "llmc/io/data/megatron_file.h"
#include "test/fuzz/fuzz.h"

namespace llmc_fuzz {

inline void megatron(std::string_view input) {
  static const Folder folder;
  static std::size_t length = 0;  // bytes of data.bin
  const std::string prefix = folder.file("data");
  const std::size_t bytes = take_choice(input, 256);
  if (bytes != length || length == 0) folder.write("data.bin", std::string(bytes, '\1'));
  length = bytes;
  std::string start;
  if (!input.starts_with('M')) {
    start = std::string(llmc::megatron_detail::kMagic) + std::string("\1\0\0\0\0\0\0\0", 8);
  }
  folder.write("data.idx", start.append(input));
  is_rejected(prefix, [&] {
    const llmc::MegatronTokens data = llmc::read_megatron_file(prefix);
    expect(data.tokens.size() * llmc::token_bytes(data.type) == static_cast<std::int64_t>(bytes),
           "the tokens fill the file");
    std::int64_t expected = 0;
    for (std::int64_t i = 0; i < llmc::token_bytes(data.type); ++i) expected = expected << 8 | 1;
    for (std::int64_t i = 0; i < data.tokens.size(); ++i) {
      expect(data.tokens.stored(i) == expected, "tokens have the values in the file");
    }
    std::int64_t previous = -1;
    for (const std::int64_t position : data.document_starts) {
      expect(position > previous && position < data.tokens.size(), "document starts ascend");
      previous = position;
    }
    expect(!data.document_starts.empty() && data.document_starts[0] == 0,
           "the first document begins at 0");
  });
}

}  // namespace llmc_fuzz
