// Dtypes of tensors in files, with the names that safetensors uses.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/device/dtype.h"

namespace llmc {

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian");

// Same order as kTensorDtypes.
enum class TensorDtype {
  f64,
  f32,
  f16,
  bf16,
  f8_e5m2,
  f8_e4m3,
  i64,
  i32,
  i16,
  i8,
  u64,
  u32,
  u16,
  u8,
  boolean
};

struct TensorDtypeInfo {
  std::string_view name;
  std::int64_t bytes;
};

inline constexpr std::array<TensorDtypeInfo, 15> kTensorDtypes = {{{"F64", 8},
                                                                   {"F32", 4},
                                                                   {"F16", 2},
                                                                   {"BF16", 2},
                                                                   {"F8_E5M2", 1},
                                                                   {"F8_E4M3", 1},
                                                                   {"I64", 8},
                                                                   {"I32", 4},
                                                                   {"I16", 2},
                                                                   {"I8", 1},
                                                                   {"U64", 8},
                                                                   {"U32", 4},
                                                                   {"U16", 2},
                                                                   {"U8", 1},
                                                                   {"BOOL", 1}}};

inline std::string tensor_dtype_name(TensorDtype dtype) {
  return std::string(kTensorDtypes[static_cast<std::size_t>(dtype)].name);
}

// Bytes of one element.
inline std::int64_t tensor_dtype_bytes(TensorDtype dtype) {
  return kTensorDtypes[static_cast<std::size_t>(dtype)].bytes;
}

std::optional<TensorDtype> find_tensor_dtype(std::string_view name);

// Returns the dtype in which a file stores an engine dtype.
TensorDtype tensor_dtype(Dtype dtype);

// Sets dst[i] to the i-th element of `src` as float: exact for F32, BF16 and F16, rounded to
// nearest for F64. Returns false and writes nothing for other dtypes. `src` need not be aligned.
bool convert_to_float(TensorDtype dtype, std::span<const std::byte> src, float* dst);

// ---- shapes --------------------------------------------------------------------------------

using Shape = std::vector<std::int64_t>;

// "(2, 3)"; "()" for a single number.
std::string shape_text(const Shape& shape);

// Returns a·b, or nothing if the product needs more than 63 bits. Both must be at least 0.
std::optional<std::int64_t> checked_product(std::int64_t a, std::int64_t b);

// Returns the number of elements, or nothing if a size is negative or the product needs more than
// 63 bits.
std::optional<std::int64_t> checked_count(const Shape& shape);

// A tensor as the header of a file describes it.
struct TensorHeader {
  std::string name;
  TensorDtype dtype = TensorDtype::f32;
  Shape shape;

  bool operator==(const TensorHeader&) const = default;
};

// Returns the size of a tensor in bytes. Throws for an impossible shape.
std::int64_t tensor_bytes(const TensorHeader& tensor);

}  // namespace llmc
