// Matrix products by oneDNN, versions 2 and 3. Interface: matrix_library.h.
//
// fp32 products use its sgemm. bf16 products use its matmul primitive: compiled code for one set of
// sizes and strides, which takes from 0.2 ms to several milliseconds to create. Each thread keeps
// the primitives that it has used.
//
// This uses the C interface: the C++ one takes more than a second to compile in every file.
//
// The environment variable ONEDNN_MAX_CPU_ISA limits the instruction set.
#pragma once

#include <oneapi/dnnl/dnnl.h>
#include <oneapi/dnnl/dnnl_debug.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
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

inline void check_onednn(dnnl_status_t status, const char* action) {
  if (status == dnnl_success) return;
  fail(std::string("oneDNN: cannot ") + action + ": " + dnnl_status2str(status));
}

// Whether oneDNN uses the instruction sets of `isa` here. Its constants are sets of bits.
inline bool has_isa(dnnl_cpu_isa_t isa) {
  static const unsigned available = static_cast<unsigned>(dnnl_get_effective_cpu_isa());
  return (available & static_cast<unsigned>(isa)) == static_cast<unsigned>(isa);
}

// oneDNN also multiplies bf16 with plain AVX-512, but not faster than fp32.
inline bool multiplies_bf16() {
  return has_isa(dnnl_cpu_isa_avx512_core_bf16);
}

// Measured with versions 2.6 and 3.2 and checked by test_host_matrix_library.cpp. The AVX-512 sgemm
// does not cut k up to 384; the AVX2 one does. bf16 products of dense matrices keep their sums
// apart from c for every k; the kernels for matrices with gaps do not.
template <class T>
bool adds_finished_sums(const ProductSizes& s) {
  constexpr std::int64_t kUncutDepth = 384;
  if constexpr (std::is_same_v<T, bf16>) return multiplies_bf16() && s.is_dense() && !s.transpose_a;
  return has_isa(dnnl_cpu_isa_avx512_core) && s.k <= kUncutDepth;
}

// The AVX2 sgemm does not copy small operands. If rows are a multiple of 4 KiB apart, they evict
// each other from the caches, which halves the speed.
inline bool is_slow_stride(std::int64_t elements) {
  static const bool copies = has_isa(dnnl_cpu_isa_avx512_core);
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
  check_onednn(dnnl_sgemm(s.transpose_a ? 'T' : 'N', s.transpose_b ? 'T' : 'N', s.m, s.n, s.k, 1.0f,
                          a, s.lda, b, s.ldb, accumulate ? 1.0f : 0.0f, c, s.ldc),
               "multiply fp32 matrices");
}

// Objects of the library with their owners.
template <auto destroy>
struct OnednnDeleter {
  template <class T>
  void operator()(T* object) const {
    destroy(object);
  }
};
template <class T, auto destroy>
using OnednnOwner = std::unique_ptr<T, OnednnDeleter<destroy>>;
using OnednnEngine = OnednnOwner<dnnl_engine, dnnl_engine_destroy>;
using OnednnStream = OnednnOwner<dnnl_stream, dnnl_stream_destroy>;
using OnednnMemory = OnednnOwner<dnnl_memory, dnnl_memory_destroy>;
using OnednnAttributes = OnednnOwner<dnnl_primitive_attr, dnnl_primitive_attr_destroy>;
using OnednnPostOps = OnednnOwner<dnnl_post_ops, dnnl_post_ops_destroy>;
using OnednnDescription = OnednnOwner<dnnl_primitive_desc, dnnl_primitive_desc_destroy>;
using OnednnPrimitive = OnednnOwner<dnnl_primitive, dnnl_primitive_destroy>;

// The object that create(&object, arguments...) makes; `action` is for the error.
template <class Owner, class Create, class... Arguments>
Owner make_onednn(const char* action, Create create, Arguments... arguments) {
  typename Owner::pointer object = nullptr;
  check_onednn(create(&object, arguments...), action);
  return Owner(object);
}

// These three differ between versions 2 and 3: layouts of matrices with two strides, the
// description of c = a b, and adding to c.
#if DNNL_VERSION_MAJOR >= 3
using OnednnLayout = OnednnOwner<dnnl_memory_desc, dnnl_memory_desc_destroy>;

inline OnednnLayout matrix_layout(const dnnl_dims_t& sizes, dnnl_data_type_t type,
                                  const dnnl_dims_t& strides) {
  return make_onednn<OnednnLayout>("describe a matrix", dnnl_memory_desc_create_with_strides, 2,
                                   sizes, type, strides);
}

inline OnednnDescription describe_product(dnnl_engine_t engine, const OnednnLayout& a,
                                          const OnednnLayout& b, const OnednnLayout& bias,
                                          const OnednnLayout& c,
                                          const_dnnl_primitive_attr_t attributes) {
  return make_onednn<OnednnDescription>("multiply bf16 matrices", dnnl_matmul_primitive_desc_create,
                                        engine, a.get(), b.get(),
                                        const_dnnl_memory_desc_t(bias.get()), c.get(), attributes);
}

inline dnnl_status_t append_sum(dnnl_post_ops_t operations) {
  return dnnl_post_ops_append_sum(operations, 1.0f, 0, dnnl_data_type_undef);
}
#else
using OnednnLayout = std::unique_ptr<dnnl_memory_desc_t>;

inline OnednnLayout matrix_layout(const dnnl_dims_t& sizes, dnnl_data_type_t type,
                                  const dnnl_dims_t& strides) {
  auto layout = std::make_unique<dnnl_memory_desc_t>();
  check_onednn(dnnl_memory_desc_init_by_strides(layout.get(), 2, sizes, type, strides),
               "describe a matrix");
  return layout;
}

inline OnednnDescription describe_product(dnnl_engine_t engine, const OnednnLayout& a,
                                          const OnednnLayout& b, const OnednnLayout& bias,
                                          const OnednnLayout& c,
                                          const_dnnl_primitive_attr_t attributes) {
  dnnl_matmul_desc_t product;
  check_onednn(dnnl_matmul_desc_init(&product, a.get(), b.get(), bias.get(), c.get()),
               "describe a product");
  return make_onednn<OnednnDescription>("multiply bf16 matrices", dnnl_primitive_desc_create,
                                        &product, attributes, engine, nullptr);
}

inline dnnl_status_t append_sum(dnnl_post_ops_t operations) {
  return dnnl_post_ops_append_sum(operations, 1.0f);
}
#endif

// bf16 products of one thread.
class Bf16Products {
 public:
  static Bf16Products& of_this_thread() {
    static thread_local Bf16Products products;
    return products;
  }

  // c is fp32, or bf16 with `rounded`. `bias` (n) is null or added to every row.
  void multiply(const ProductSizes& sizes, const bf16* a, const bf16* b, const bf16* bias,
                bool accumulate, bool rounded, void* c) {
    const Product& product = find({sizes, accumulate, rounded, bias != nullptr});
    if (product.scratch_bytes > scratch_.size()) scratch_.resize(product.scratch_bytes);
    set_data(product.a, const_cast<bf16*>(a));
    set_data(product.b, const_cast<bf16*>(b));
    set_data(product.c, c);
    set_data(product.scratch, scratch_.data());
    if (bias != nullptr) set_data(product.bias, const_cast<bf16*>(bias));
    const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, product.a.get()},
                                         {DNNL_ARG_WEIGHTS, product.b.get()},
                                         {DNNL_ARG_DST, product.c.get()},
                                         {DNNL_ARG_SCRATCHPAD, product.scratch.get()},
                                         {DNNL_ARG_BIAS, product.bias.get()}};
    const auto count = static_cast<int>(std::size(arguments)) - (bias != nullptr ? 0 : 1);
    check_onednn(dnnl_primitive_execute(product.primitive.get(), stream_.get(), count, arguments),
                 "multiply bf16 matrices");
    check_onednn(dnnl_stream_wait(stream_.get()), "wait for a product");
  }

 private:
  struct Key {
    ProductSizes sizes;
    bool accumulate, rounded, has_bias;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    std::size_t operator()(const Key& key) const {
      const ProductSizes& s = key.sizes;
      std::size_t hash = (s.transpose_a ? 1 : 0) + (s.transpose_b ? 2 : 0) +
                         (key.accumulate ? 4 : 0) + (key.rounded ? 8 : 0) + (key.has_bias ? 16 : 0);
      for (const std::int64_t n : {s.m, s.n, s.k, s.lda, s.ldb, s.ldc}) {
        hash = hash * 0x9e3779b97f4a7c15u + static_cast<std::size_t>(n);
      }
      return hash;
    }
  };
  struct Product {
    OnednnPrimitive primitive;
    OnednnMemory a, b, c, scratch, bias;
    std::size_t scratch_bytes = 0;
  };
  // Prompts of different lengths have different sizes, so the number of primitives has a limit.
  static constexpr std::size_t kMaxProducts = 1024;

  const Product& find(const Key& key) {
    const auto entry = products_.find(key);
    if (entry != products_.end()) return entry->second;
    use_one_library_thread();
    if (products_.size() >= kMaxProducts) products_.clear();
    return products_.emplace(key, create(key)).first->second;
  }

  static void set_data(const OnednnMemory& memory, void* data) {
    check_onednn(dnnl_memory_set_data_handle(memory.get(), data), "name the data of a matrix");
  }

  static OnednnLayout layout(std::int64_t rows, std::int64_t columns, bool transposed,
                             std::int64_t ld, dnnl_data_type_t type) {
    return matrix_layout({rows, columns}, type, {transposed ? 1 : ld, transposed ? ld : 1});
  }

  OnednnMemory memory(const OnednnLayout::element_type* layout) const {
    return make_onednn<OnednnMemory>("describe a matrix", dnnl_memory_create, layout, engine_.get(),
                                     nullptr);
  }

  static OnednnAttributes attributes(bool accumulate) {
    auto result = make_onednn<OnednnAttributes>("choose attributes", dnnl_primitive_attr_create);
    check_onednn(dnnl_primitive_attr_set_scratchpad_mode(result.get(), dnnl_scratchpad_mode_user),
                 "choose the scratch memory");
    if (!accumulate) return result;
    const auto operations = make_onednn<OnednnPostOps>("choose a sum", dnnl_post_ops_create);
    check_onednn(append_sum(operations.get()), "choose a sum");
    check_onednn(dnnl_primitive_attr_set_post_ops(result.get(), operations.get()), "choose a sum");
    return result;
  }

  Product create(const Key& key) const {
    const ProductSizes& s = key.sizes;
    const OnednnLayout a = layout(s.m, s.k, s.transpose_a, s.lda, dnnl_bf16);
    const OnednnLayout b = layout(s.k, s.n, s.transpose_b, s.ldb, dnnl_bf16);
    const OnednnLayout c = layout(s.m, s.n, false, s.ldc, key.rounded ? dnnl_bf16 : dnnl_f32);
    const OnednnLayout bias =
        key.has_bias ? layout(1, s.n, false, s.n, dnnl_bf16) : OnednnLayout(nullptr);
    const OnednnDescription description =
        describe_product(engine_.get(), a, b, bias, c, attributes(key.accumulate).get());
    const auto scratch =
        dnnl_primitive_desc_query_md(description.get(), dnnl_query_scratchpad_md, 0);
    return {
        make_onednn<OnednnPrimitive>("create a product", dnnl_primitive_create, description.get()),
        memory(a.get()),
        memory(b.get()),
        memory(c.get()),
        memory(scratch),
        key.has_bias ? memory(bias.get()) : nullptr,
        dnnl_memory_desc_get_size(scratch)};
  }

  OnednnEngine engine_ =
      make_onednn<OnednnEngine>("use the CPU", dnnl_engine_create, dnnl_cpu, std::size_t{0});
  OnednnStream stream_ = make_onednn<OnednnStream>(
      "create a stream", dnnl_stream_create, engine_.get(), unsigned{dnnl_stream_default_flags});
  std::unordered_map<Key, Product, Hash> products_;
  std::vector<char> scratch_;
};

inline void multiply(const ProductSizes& sizes, const bf16* a, const bf16* b, bool accumulate,
                     float* c) {
  Bf16Products::of_this_thread().multiply(sizes, a, b, nullptr, accumulate, false, c);
}

inline void multiply_rounded(const ProductSizes& sizes, const bf16* a, const bf16* b,
                             const bf16* bias, bf16* c) {
  Bf16Products::of_this_thread().multiply(sizes, a, b, bias, false, true, c);
}

// The newest instruction set that oneDNN uses here; ONEDNN_MAX_CPU_ISA can limit it.
inline const char* isa_text() {
  if (has_isa(dnnl_cpu_isa_avx512_core_amx)) return " (AMX)";
  if (has_isa(dnnl_cpu_isa_avx512_core_bf16)) return " (AVX-512 bf16)";
  if (has_isa(dnnl_cpu_isa_avx512_core)) return " (AVX-512)";
  return has_isa(dnnl_cpu_isa_avx2) ? " (AVX2)" : "";
}

// The library, its version and its instruction set.
inline std::string matrix_library_text() {
  const dnnl_version_t& version = *dnnl_version();
  return "oneDNN " + std::to_string(version.major) + "." + std::to_string(version.minor) + "." +
         std::to_string(version.patch) + isa_text();
}

}  // namespace llmc::host
