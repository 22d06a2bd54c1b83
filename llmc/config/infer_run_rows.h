// The rows of infer_gpt2's table for the device, the output and the commands.
#pragma once

#include <string>
#include <vector>

#include "llmc/config/infer_settings.h"
#include "llmc/config/infer_values.h"
#include "llmc/config/setting.h"

namespace llmc {
struct InferProgram;
}

namespace llmc::infer_detail {

// The rows; their texts and rules are in infer_run_rows.cpp.
Settings<InferProgram> device_rows();
Settings<InferProgram> output_rows();
Settings<InferProgram> evaluation_rows();
Settings<InferProgram> bench_rows();

}  // namespace llmc::infer_detail
