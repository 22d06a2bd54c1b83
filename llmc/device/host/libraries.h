// The instruction set of a host build, and its BLAS.
#pragma once

#include <cblas.h>

#include <string>

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

// OpenBLAS describes itself as "OpenBLAS 0.3.21 DYNAMIC_ARCH ...".
inline std::string compute_libraries_text() {
  const std::string text = openblas_get_config();
  const std::size_t name_end = text.find(' ');
  if (name_end == text.npos) return "OpenBLAS";
  return text.substr(0, text.find(' ', name_end + 1));
}

}  // namespace llmc
