// Instantiates the model, its training state and the decoder for all tests; see instantiations.h.
#include "test/instantiations.h"

namespace llmc {
LLMC_ALL_DTYPES(LLMC_MODEL, )
}  // namespace llmc
