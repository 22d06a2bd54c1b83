// Matrix products by oneDNN, versions 2 and 3. Interface: matrix_library.h.
//
// fp32 products use its sgemm. bf16 products use its matmul primitive: compiled code for one set of
// sizes and strides, which takes from 0.2 ms to several milliseconds to create. Each thread keeps
// the primitives that it has used.
//
// The environment variable ONEDNN_MAX_CPU_ISA limits the instruction set.
#pragma once

#include <cstddef>
#include <functional>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/device/dtype.h"
#include "llmc/device/host/matrix_product.h"

#if DNNL_CPU_RUNTIME == DNNL_RUNTIME_OMP
extern "C" void omp_set_num_threads(int threads);  // clang has no omp.h without its OpenMP package
#elif DNNL_CPU_RUNTIME != DNNL_RUNTIME_SEQ
#error "oneDNN must be built with OpenMP, as in Debian and Ubuntu, or without threads"
#endif

namespace llmc::host {

// Whether oneDNN uses the instruction sets of `isa` here. Its constants are sets of bits.
inline bool has_isa(dnnl::cpu_isa isa) {
  static const unsigned available = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  return (available & static_cast<unsigned>(isa)) == static_cast<unsigned>(isa);
}

// oneDNN also multiplies bf16 with plain AVX-512, but not faster than fp32.
inline bool multiplies_bf16() {
  return has_isa(dnnl::cpu_isa::avx512_core_bf16);
}

// Measured with versions 2.6 and 3.2 and checked by test_host_matrix_library.cpp. The AVX-512 sgemm
// does not cut k up to 384; the AVX2 one does. bf16 products of dense matrices keep their sums
// apart from c for every k; the kernels for matrices with gaps do not.
template <class T>
bool adds_finished_sums(const ProductSizes& s) {
  constexpr std::int64_t kUncutDepth = 384;
  if constexpr (std::is_same_v<T, bf16>) return multiplies_bf16() && s.is_dense() && !s.transpose_a;
  return has_isa(dnnl::cpu_isa::avx512_core) && s.k <= kUncutDepth;
}

// The AVX2 sgemm does not copy small operands. If rows are a multiple of 4 KiB apart, they evict
// each other from the caches, which halves the speed.
inline bool is_slow_stride(std::int64_t elements) {
  static const bool copies = has_isa(dnnl::cpu_isa::avx512_core);
  return !copies && elements % 1024 == 0;
}

// OpenMP keeps the number of threads per calling thread.
inline void use_one_library_thread() {
#if DNNL_CPU_RUNTIME == DNNL_RUNTIME_OMP
  static thread_local const bool single_threaded = (omp_set_num_threads(1), true);
  static_cast<void>(single_threaded);
#endif
}

inline void multiply(const ProductSizes& s, const float* a, const float* b, bool accumulate,
                     float* c) {
  use_one_library_thread();
  const dnnl_status_t status =
      dnnl_sgemm(s.transpose_a ? 'T' : 'N', s.transpose_b ? 'T' : 'N', s.m, s.n, s.k, 1.0f, a,
                 s.lda, b, s.ldb, accumulate ? 1.0f : 0.0f, c, s.ldc);
  if (status != dnnl_success) fail("oneDNN: sgemm failed with status " + std::to_string(status));
}

// bf16 products of one thread.
class Bf16Products {
 public:
  static Bf16Products& of_this_thread() {
    static thread_local Bf16Products products;
    return products;
  }

  void multiply(const ProductSizes& sizes, const bf16* a, const bf16* b, bool accumulate,
                float* c) {
    Product& product = find({sizes, accumulate});
    product.a.set_data_handle(const_cast<bf16*>(a));
    product.b.set_data_handle(const_cast<bf16*>(b));
    product.c.set_data_handle(c);
    if (product.scratch_bytes > scratch_.size()) scratch_.resize(product.scratch_bytes);
    product.scratch.set_data_handle(scratch_.data());
    product.primitive.execute(stream_, product.arguments);
    stream_.wait();
  }

 private:
  struct Key {
    ProductSizes sizes;
    bool accumulate;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    std::size_t operator()(const Key& key) const {
      const ProductSizes& s = key.sizes;
      std::size_t hash =
          (s.transpose_a ? 1 : 0) + (s.transpose_b ? 2 : 0) + (key.accumulate ? 4 : 0);
      for (const std::int64_t n : {s.m, s.n, s.k, s.lda, s.ldb, s.ldc}) {
        hash = hash * 0x9e3779b97f4a7c15u + static_cast<std::size_t>(n);
      }
      return hash;
    }
  };
  struct Product {
    dnnl::matmul primitive;
    dnnl::memory a, b, c, scratch;
    std::size_t scratch_bytes = 0;
    std::unordered_map<int, dnnl::memory> arguments;
  };
  // Prompts of different lengths have different sizes, so the number of primitives has a limit.
  static constexpr std::size_t kMaxProducts = 1024;

  Product& find(const Key& key) {
    const auto entry = products_.find(key);
    if (entry != products_.end()) return entry->second;
    use_one_library_thread();
    if (products_.size() >= kMaxProducts) products_.clear();
    try {
      return products_.emplace(key, create(key)).first->second;
    } catch (const dnnl::error& error) {
      fail(std::string("oneDNN: no bf16 product: ") + error.what());
    }
  }

  static dnnl::memory::desc matrix(std::int64_t rows, std::int64_t columns, bool transposed,
                                   std::int64_t ld, dnnl::memory::data_type type) {
    return {
        {rows, columns}, type, transposed ? dnnl::memory::dims{1, ld} : dnnl::memory::dims{ld, 1}};
  }

  Product create(const Key& key) const {
    using Type = dnnl::memory::data_type;
    const ProductSizes& s = key.sizes;
    const auto a = matrix(s.m, s.k, s.transpose_a, s.lda, Type::bf16);
    const auto b = matrix(s.k, s.n, s.transpose_b, s.ldb, Type::bf16);
    const auto c = matrix(s.m, s.n, false, s.ldc, Type::f32);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (key.accumulate) {
      dnnl::post_ops sum;
      sum.append_sum(1.0f);
      attributes.set_post_ops(sum);
    }
#if DNNL_VERSION_MAJOR >= 3
    const dnnl::matmul::primitive_desc description(engine_, a, b, c, attributes);
#else
    const dnnl::matmul::primitive_desc description({a, b, c}, attributes, engine_);
#endif
    Product product;
    product.primitive = dnnl::matmul(description);
    product.a = dnnl::memory(a, engine_, nullptr);
    product.b = dnnl::memory(b, engine_, nullptr);
    product.c = dnnl::memory(c, engine_, nullptr);
    product.scratch = dnnl::memory(description.scratchpad_desc(), engine_, nullptr);
    product.scratch_bytes = description.scratchpad_desc().get_size();
    product.arguments = {{DNNL_ARG_SRC, product.a},
                         {DNNL_ARG_WEIGHTS, product.b},
                         {DNNL_ARG_DST, product.c},
                         {DNNL_ARG_SCRATCHPAD, product.scratch}};
    return product;
  }

  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::unordered_map<Key, Product, Hash> products_;
  std::vector<char> scratch_;
};

inline void multiply(const ProductSizes& sizes, const bf16* a, const bf16* b, bool accumulate,
                     float* c) {
  Bf16Products::of_this_thread().multiply(sizes, a, b, accumulate, c);
}

inline std::string matrix_library_text() {
  const dnnl_version_t& version = *dnnl_version();
  return "oneDNN " + std::to_string(version.major) + "." + std::to_string(version.minor) + "." +
         std::to_string(version.patch);
}

}  // namespace llmc::host
