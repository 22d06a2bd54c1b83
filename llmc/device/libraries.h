// The target that a program was built for and the libraries that it computes with, for --version:
//
//   std::string target_text();             "CUDA for compute capability 8.0, 9.0"
//   std::string compute_libraries_text();  "CUDA 13.0, cuBLASLt 13.1.0"
#pragma once

#include "llmc/device/target.h"

#ifdef __CUDACC__
#include "llmc/device/cuda/libraries.h"
#else
#include "llmc/device/host/libraries.h"
#endif
