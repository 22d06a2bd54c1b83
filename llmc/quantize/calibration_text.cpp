#include "llmc/quantize/calibration_text.h"

#include <cstddef>

#include "llmc/io/data/compressed_file.h"
#include "llmc/io/data/data_sources.h"
#include "llmc/io/data/token_source.h"
#include "llmc/io/data/tokenize_text.h"

namespace llmc {

std::vector<std::int32_t> calibration_tokens(const std::string& file, BinFormat format,
                                             const Tokenizer& tokenizer) {
  if (!is_token_file(file)) return tokenize_text(TextInput(file).text(), file, tokenizer);
  const TokenSource source =
      SourceReader(tokenizer, {.bin = format}).read({{file}, {}}, "--calibrate").front();
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(source.size()));
  source.copy(0, source.size(), tokens.data());
  return tokens;
}

}  // namespace llmc
