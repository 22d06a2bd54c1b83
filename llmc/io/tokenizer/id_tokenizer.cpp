#include "llmc/io/tokenizer/id_tokenizer.h"

#include "llmc/base/error.h"

namespace llmc {

IdTokenizer::IdTokenizer(std::int64_t vocabulary_size) : vocabulary_size_(vocabulary_size) {
  require(vocabulary_size >= 1, "a vocabulary of " + std::to_string(vocabulary_size) + " tokens",
          "at least 1");
}

std::optional<std::int32_t> IdTokenizer::end_of_text() const {
  if (vocabulary_size_ != kGpt2Vocabulary) return std::nullopt;
  return static_cast<std::int32_t>(kGpt2Vocabulary - 1);
}

void IdTokenizer::fail_without_text() {
  fail("a text needs a " + quantity("tokenizer") + ": only token ids are known",
       "choose the " + quantity("tokenizer") + " that the token files were made with");
}

}  // namespace llmc
