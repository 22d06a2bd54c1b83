// The rows of infer_gpt2's table for the model, the prompts and the generation of text.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "llmc/config/bare_words.h"
#include "llmc/config/infer_settings.h"
#include "llmc/config/infer_values.h"
#include "llmc/config/setting.h"

namespace llmc {
struct InferProgram;
}

namespace llmc::infer_detail {

// The rows; their texts and rules are in infer_generation_rows.cpp.
Settings<InferProgram> text_rows();
Settings<InferProgram> generation_rows();
Settings<InferProgram> sampling_rows();
Settings<InferProgram> penalty_rows();

}  // namespace llmc::infer_detail
