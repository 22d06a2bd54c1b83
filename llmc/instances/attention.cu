// Instantiates standard attention and the KV-cache ops; see instances.h.
#include "llmc/instances/instances.h"

namespace llmc {
LLMC_ALL_DTYPES(LLMC_OTHER_ATTENTION, )
}  // namespace llmc
