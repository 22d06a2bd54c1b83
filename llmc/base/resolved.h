// Groups of settings are templates over the wrapper of their members: std::optional for the flags
// that the user set, Resolved for the final values of a run.
#pragma once

namespace llmc {

template <class T>
using Resolved = T;

}  // namespace llmc
