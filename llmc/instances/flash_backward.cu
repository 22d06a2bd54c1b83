// Instantiates the backward pass of flash attention; see instances.h.
#include "llmc/instances/instances.h"

namespace llmc {
LLMC_ALL_DTYPES(LLMC_FLASH_BACKWARD, )
}  // namespace llmc
