// Instantiates the products and the attention of generation for all tests; see instantiations.h.
#include "test/instantiations.h"

namespace llmc {
LLMC_ALL_DTYPES(LLMC_GENERATION, )
LLMC_HALF_DTYPES(LLMC_LOGITS, )
}  // namespace llmc
