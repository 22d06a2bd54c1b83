// The tokens of a calibration text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "llmc/io/data/token_file.h"
#include "llmc/io/tokenizer/tokenizer_interface.h"

namespace llmc {

// Reads a text, or the tokens of a token file. Errors name the flag --calibrate or the file.
std::vector<std::int32_t> calibration_tokens(const std::string& file, BinFormat format,
                                             const Tokenizer& tokenizer);

}  // namespace llmc
