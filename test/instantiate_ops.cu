// Instantiates the other ops for all tests; see instantiations.h.
#include "test/instantiations.h"

namespace llmc {
LLMC_ALL_DTYPES(LLMC_ROW_OPS, )
LLMC_ALL_DTYPES(LLMC_OTHER_OPS, )
}  // namespace llmc
