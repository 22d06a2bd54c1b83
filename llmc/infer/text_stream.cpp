#include "llmc/infer/text_stream.h"

namespace llmc {

std::string TextStream::push(std::int32_t token) {
  // The text of a token can depend on the token before it: tokens that are words get a space in
  // between.
  const std::int32_t pair[] = {last_, token};
  const std::string prefix = tokenizer_.decode({pair, 1});
  last_ = token;
  return utf8_.push(tokenizer_.decode(pair).substr(prefix.size()));
}

}  // namespace llmc
