// Instantiates the products and the attention of generation; see instances.h.
#include "llmc/instances/instances.h"

namespace llmc {
LLMC_ALL_DTYPES(LLMC_GENERATION, )
LLMC_HALF_DTYPES(LLMC_LOGITS, )
}  // namespace llmc
