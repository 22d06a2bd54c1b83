// Megatron-LM's token files. PREFIX.bin holds only the tokens. PREFIX.idx holds the type of the
// tokens and where sequences and documents begin:
//
//   bytes 0-8     "MMIDIDX\0\0"
//         9-16    version, 1                                             64-bit
//         17      type of the tokens: 1 to 5 are uint8, int8, int16, int32 and int64, 8 is uint16;
//                 6 and 7 are float64 and float32, which are no tokens
//         18-25   S, the number of sequences                             64-bit
//         26-33   D, the number of documents, plus 1                     64-bit
//         then    S lengths of sequences, in tokens                      int32
//                 S positions of sequences in PREFIX.bin, in bytes       int64
//                 D sequence numbers: document d is [d] .. [d + 1] - 1   int64
//
// All integers are little-endian. The reader trusts none of them: sequences must follow each other
// without gap or overlap and fill PREFIX.bin. Document boundaries must not descend and must cover
// all sequences.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/io/data/token_file.h"

namespace llmc {

struct MegatronTokens {
  TokenData tokens;                           // mapped
  TokenType type = TokenType::uint16;         // type of the tokens in the file
  std::vector<std::int64_t> document_starts;  // ascending positions in `tokens`; the first is 0
};

namespace megatron_detail {

inline constexpr std::string_view kMagic("MMIDIDX\0\0", 9);

}  // namespace megatron_detail

// Returns the tokens of `prefix`.bin, mapped: they are read from disk at first use. Throws an error
// that names the file and what is wrong with it.
MegatronTokens read_megatron_file(const std::string& prefix);

}  // namespace llmc
