// The rows of infer_gpt2's table, by their headings in --help.
#pragma once

#include "llmc/config/setting.h"

namespace llmc {
struct InferProgram;
}

namespace llmc::infer_detail {

// infer_generation_rows.cpp: the model, the text, and how it is generated.
Settings<InferProgram> text_rows();
Settings<InferProgram> generation_rows();
Settings<InferProgram> sampling_rows();
Settings<InferProgram> penalty_rows();

// infer_run_rows.cpp: the device, the output and the commands.
Settings<InferProgram> device_rows();
Settings<InferProgram> output_rows();
Settings<InferProgram> evaluation_rows();
Settings<InferProgram> bench_rows();

}  // namespace llmc::infer_detail
