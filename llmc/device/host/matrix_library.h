// The library that multiplies matrices on the host, chosen here and nowhere else: oneDNN on x86-64,
// OpenBLAS on other processors, where the oneDNN of Debian and Ubuntu has no fast fp32 product.
//
// Every function computes in the calling thread alone. The caller distributes tiles of a product
// over the executor's threads (ops/gemm/gemm_host.h): threads of a library spin for a while after
// every product and would compete with the executor's threads for the same cores.
//
// Interface:
// - multiply(sizes, a, b, accumulate, c): c = op(a) op(b), added to c if `accumulate`. a and b are
//   both fp32, or both bf16 if multiplies_bf16(); c is fp32.
// - multiply_rounded(sizes, a, b, bias, c): if multiplies_bf16(), c = op(a) op(b), rounded once.
//   `bias` (n) is null or added to every row before. All are bf16.
// - multiplies_bf16(): true if bf16 products use instructions of the CPU for bf16.
// - adds_finished_sums<T>(sizes): true if `accumulate` adds the finished sums over k to c: then c
//   has the bits of a product that is stored and added. Otherwise the library may add to c after
//   every slice of k.
// - is_slow_stride(elements): true if fp32 products are slow with this distance between rows.
// - matrix_library_text(): name and version (oneDNN: and instruction set), for --version.
#pragma once

#if defined(__x86_64__)
#include "llmc/device/host/matrix_onednn.h"
#else
#include "llmc/device/host/matrix_openblas.h"
#endif
