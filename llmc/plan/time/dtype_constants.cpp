#include "llmc/plan/time/dtype_constants.h"

#include <utility>

#include "llmc/base/error.h"

namespace llmc {

void set_dtype(Machine& machine, Software& software, Dtype dtype) {
  software.weight_bytes = static_cast<double>(element_bytes(dtype));
  if (dtype != Dtype::fp32) return;
  require(machine.peak_flops_fp32 > 0, machine.name + ": peak_flops_fp32 is missing",
          "choose --dtype bf16, or add the constant to the machine file");
  machine.peak_flops = machine.peak_flops_fp32;
}

StepPredictor predictor_in(Dtype dtype, Machine machine, Software software) {
  set_dtype(machine, software, dtype);
  return {std::move(machine), std::move(software)};
}

}  // namespace llmc
