#include "llmc/instances/instances.h"

namespace llmc {
LLMC_MODEL(, float)
LLMC_MODEL(, bf16)
LLMC_MODEL(, fp16)
}  // namespace llmc
