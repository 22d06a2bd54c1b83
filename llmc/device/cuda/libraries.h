// The GPU architectures of a CUDA build, and its libraries.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <string>

namespace llmc {

inline std::string target_text() {
  std::string text = "CUDA for compute capability ";
  for (const int architecture : {__CUDA_ARCH_LIST__}) {  // such as 800, 900
    if (text.back() != ' ') text += ", ";
    text += std::to_string(architecture / 100) + "." + std::to_string(architecture / 10 % 10);
  }
  return text;
}

// The version of CUDA is that of the toolkit; cuBLASLt is the library that is loaded.
inline std::string compute_libraries_text() {
  const auto number = [](std::size_t n) { return std::to_string(n); };
  const std::size_t cublas = cublasLtGetVersion();
  return "CUDA " + number(CUDART_VERSION / 1000) + "." + number(CUDART_VERSION / 10 % 100) +
         ", cuBLASLt " + number(cublas / 10000) + "." + number(cublas / 100 % 100) + "." +
         number(cublas % 100);
}

}  // namespace llmc
