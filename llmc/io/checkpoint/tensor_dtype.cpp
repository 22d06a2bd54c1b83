#include "llmc/io/checkpoint/tensor_dtype.h"

#include <cstring>

#include "llmc/base/error.h"
#include "llmc/base/file.h"

namespace llmc {

std::optional<TensorDtype> find_tensor_dtype(std::string_view name) {
  for (std::size_t i = 0; i < kTensorDtypes.size(); ++i) {
    if (kTensorDtypes[i].name == name) return static_cast<TensorDtype>(i);
  }
  return std::nullopt;
}

TensorDtype tensor_dtype(Dtype dtype) {
  switch (dtype) {
    case Dtype::bf16:
      return TensorDtype::bf16;
    case Dtype::fp16:
      return TensorDtype::f16;
    default:
      return TensorDtype::f32;
  }
}

bool convert_to_float(TensorDtype dtype, std::span<const std::byte> src, float* dst) {
  const auto each = [&]<class Stored>(Stored, auto&& convert) {
    for (std::size_t i = 0; i < src.size() / sizeof(Stored); ++i) {
      Stored value;
      std::memcpy(&value, src.data() + i * sizeof(Stored), sizeof value);
      dst[i] = convert(value);
    }
    return true;
  };
  switch (dtype) {
    case TensorDtype::f32:
      if (!src.empty()) std::memcpy(dst, src.data(), src.size());
      return true;
    case TensorDtype::bf16:
      return each(std::uint16_t{}, [](std::uint16_t bits) { return to_float(bf16{bits}); });
    case TensorDtype::f16:
      return each(std::uint16_t{}, [](std::uint16_t bits) { return to_float(fp16{bits}); });
    case TensorDtype::f64:
      return each(double{}, [](double value) { return static_cast<float>(value); });
    default:
      return false;
  }
}

// ---- shapes --------------------------------------------------------------------------------

std::string shape_text(const Shape& shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i != 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + ")";
}

std::optional<std::int64_t> checked_product(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

std::optional<std::int64_t> checked_count(const Shape& shape) {
  std::optional<std::int64_t> count = 1;
  for (const std::int64_t size : shape) {
    if (size < 0) return std::nullopt;
    count = checked_product(*count, size);
    if (!count) return std::nullopt;
  }
  return count;
}

std::int64_t tensor_bytes(const TensorHeader& tensor) {
  const auto count = checked_count(tensor.shape);
  const auto bytes =
      count ? checked_product(*count, tensor_dtype_bytes(tensor.dtype)) : std::nullopt;
  if (!bytes)
    fail("tensor " + printable(tensor.name) + ": impossible shape " + shape_text(tensor.shape));
  return *bytes;
}

}  // namespace llmc
