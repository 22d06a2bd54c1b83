// Instantiates the model, its training state and the decoder; see instances.h.
#include "llmc/instances/instances.h"

namespace llmc {
LLMC_ALL_DTYPES(LLMC_MODEL, )
}  // namespace llmc
