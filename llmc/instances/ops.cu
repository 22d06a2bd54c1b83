// Instantiates the other ops; see instances.h.
#include "llmc/instances/instances.h"

namespace llmc {
LLMC_ALL_DTYPES(LLMC_ROW_OPS, )
LLMC_ALL_DTYPES(LLMC_OTHER_OPS, )
}  // namespace llmc
