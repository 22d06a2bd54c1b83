// The instruction set of a host build, and its library of matrix products.
#pragma once

#include <string>

#include "llmc/device/host/matrix_library.h"

namespace llmc {

// The instruction sets beyond the base of the processor that the compiler may use.
inline std::string target_text() {
  std::string text = "host";
#if defined(__x86_64__)
  text += " x86-64";
#elif defined(__aarch64__)
  text += " aarch64";
#endif
#ifdef __AVX2__
  text += ", AVX2";
#endif
#ifdef __FMA__
  text += ", FMA";
#endif
#ifdef __AVX512F__
  text += ", AVX-512";
#endif
#ifdef __ARM_FEATURE_SVE
  text += ", SVE";
#endif
  return text;
}

inline std::string compute_libraries_text() {
  return host::matrix_library_text();
}

}  // namespace llmc
