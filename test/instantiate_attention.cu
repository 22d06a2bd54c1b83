// Instantiates standard attention and the KV-cache ops for all tests; see instantiations.h.
#include "test/instantiations.h"

namespace llmc {
LLMC_ALL_DTYPES(LLMC_OTHER_ATTENTION, )
}  // namespace llmc
