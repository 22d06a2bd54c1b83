// Reads the lists of added tokens in the files of a tokenizer.
#pragma once

#include <cstdint>
#include <filesystem>

#include "llmc/io/tokenizer/bpe_vocabulary.h"
#include "llmc/io/tokenizer/json_section.h"

namespace llmc {

namespace bpe {

// Reads an added token. Without "normalized", a special one is searched for first.
AddedToken added_token(const JsonSection& token, std::int64_t id);

// An added token that the vocabulary does not have gets the next free id, in the order of the list:
// `tokenizers` reads files so. The two ids differ if those of the file have gaps or another order;
// a notice reports this.
void close_gaps(BpeListing& listing);

// Reads the added tokens of a pair of files, as transformers does: those of added_tokens_decoder in
// tokenizer_config.json, or else those of added_tokens.json. The latter states only ids: special
// are tokens named <...> and those with a role ("pad_token") in tokenizer_config.json or
// special_tokens_map.json.
void list_added_of_pair(const std::filesystem::path& directory, BpeListing& listing);

}  // namespace bpe

}  // namespace llmc
