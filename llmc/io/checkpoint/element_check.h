// Checks of the elements of a tensor: one pass, which the compiler computes in SIMD. All floats of
// models and checkpoints are read by read_floats().
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <source_location>
#include <span>
#include <string>

#include "llmc/base/error.h"
#include "llmc/base/number_text.h"
#include "llmc/io/checkpoint/tensor_dtype.h"

namespace llmc {

// An element of a tensor that is not allowed.
class ElementError : public Error {
 public:
  ElementError(const std::string& problem, const std::string& hint)
      : Error(problem, hint, std::source_location::current()), problem_(problem) {}

  // The text without the hint.
  const std::string& problem() const { return problem_; }

 private:
  std::string problem_;
};

inline constexpr auto is_not_finite = [](float x) {
  return !(std::fabs(x) < std::numeric_limits<float>::infinity());
};
inline constexpr auto is_negative = [](float x) { return x < 0; };
inline constexpr auto is_not_positive_and_finite = [](float x) {
  return !(x > 0 && x < std::numeric_limits<float>::infinity());
};

// The hint of errors about weights and moments that are not finite.
inline constexpr const char* kDivergedHint = "use a checkpoint from before the training diverged";

// Returns the index of the first value for which is_wrong(value) is true; nothing if there is none.
template <class IsWrong>
std::optional<std::int64_t> find_element(std::span<const float> values, const IsWrong& is_wrong) {
  constexpr std::size_t kPiece = 1024;  // a loop without an early exit is vectorised
  for (std::size_t first = 0; first < values.size(); first += kPiece) {
    const auto piece = values.subspan(first, std::min(kPiece, values.size() - first));
    std::uint32_t any = 0;
    for (const float value : piece) any |= is_wrong(value) ? 1u : 0u;
    if (any == 0) continue;
    const auto position = std::ranges::find_if(piece, is_wrong) - piece.begin();
    return static_cast<std::int64_t>(first) + position;
  }
  return std::nullopt;
}

// "[3, 17]": an element of a tensor as Python indexes it, by its index in the flat tensor.
std::string element_text(const Shape& shape, std::int64_t index);

// Throws an ElementError for the first value for which is_wrong(value) is true, such as "LABEL:
// element [3, 17] is nan, not finite". `problem` is the text after the value; label() returns the
// name of the tensor of this shape. The values are those of a part of it, of which value i is
// element index(i) of the flat tensor.
template <class Index, class IsWrong, class Label>
void check_part(std::span<const float> values, const Shape& shape, const Index& index,
                const IsWrong& is_wrong, const std::string& problem, const Label& label,
                const std::string& hint) {
  const std::optional<std::int64_t> wrong = find_element(values, is_wrong);
  if (!wrong) return;
  throw ElementError(label() + ": element " + element_text(shape, index(*wrong)) + " is " +
                         number_text("%g", values[static_cast<std::size_t>(*wrong)]) + ", " +
                         problem,
                     hint);
}

// The same for all elements of a tensor.
template <class IsWrong, class Label>
void check_elements(std::span<const float> values, const Shape& shape, const IsWrong& is_wrong,
                    const std::string& problem, const Label& label, const std::string& hint) {
  check_part(values, shape, std::identity(), is_wrong, problem, label, hint);
}

// Sets dst to the elements of a tensor of a file as float (convert_to_float).
// for_each_piece(use) calls use(bytes) for consecutive pieces of whole elements. Throws if the
// dtype cannot be converted, or if an element is not finite. label() returns the name of the file
// and of the tensor.
// `index` as in check_part().
template <class Pieces, class Label, class Index = std::identity>
void read_float_pieces(TensorDtype dtype, const Shape& shape, const Pieces& for_each_piece,
                       float* dst, const Label& label, const Index& index = {}) {
  std::size_t count = 0;
  for_each_piece([&](std::span<const std::byte> bytes) {
    if (!convert_to_float(dtype, bytes, dst + count)) {
      fail(label() + " has dtype " + tensor_dtype_name(dtype), "allowed: F32, BF16, F16 or F64");
    }
    count += bytes.size() / static_cast<std::size_t>(tensor_dtype_bytes(dtype));
  });
  const bool rounded = dtype == TensorDtype::f64;  // large numbers become infinite
  check_part({dst, count}, shape, index, is_not_finite,
             rounded ? "not finite in fp32" : "not finite", label, kDivergedHint);
}
// The same for bytes in memory.
template <class Label, class Index = std::identity>
void read_floats(TensorDtype dtype, const Shape& shape, std::span<const std::byte> bytes,
                 float* dst, const Label& label, const Index& index = {}) {
  read_float_pieces(
      dtype, shape, [&](const auto& use) { use(bytes); }, dst, label, index);
}

}  // namespace llmc
