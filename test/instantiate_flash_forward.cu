// Instantiates the forward pass of flash attention for all tests; see instantiations.h.
#include "test/instantiations.h"

namespace llmc {
LLMC_ALL_DTYPES(LLMC_FLASH_FORWARD, )
}  // namespace llmc
