// WikiText's texts are split into words, with spaces around punctuation ("co @-@ star ( 1 @,@ 000 )
// 's"). A model of ordinary text is scored on ordinary text, so these functions reassemble it
// ("co-star (1,000)'s"). Radford et al. (2019, section 3.1) do so with "invertible de-tokenizers"
// of their own. The rules here are ours and approximate: single quotes and slashes are guesses, and
// what WikiText removed does not come back (`<unk>` replaces rare words in WikiText-2 and -103).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace llmc {

// Number of words, which are runs of bytes other than ASCII white space.
std::int64_t count_words(std::string_view text);

// The text before WikiText's tokenizer, as nearly as the rules can restore it. Lines stay lines.
std::string detokenize_wikitext(std::string_view text);

}  // namespace llmc
