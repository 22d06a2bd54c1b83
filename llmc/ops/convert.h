// Conversion of arrays between dtypes, for example master weights to working weights.
#pragma once

#include "llmc/device/device.h"

namespace llmc {

// out[i] = inp[i] for i < n, rounded to nearest even if To is the narrower type. Both pointers are
// aligned to 16 bytes; the arrays do not overlap.
template <class To, class From>
void convert(To* out, const From* inp, std::int64_t n, Stream& stream);

}  // namespace llmc
