// One call of a communicator: its kind, its number and its operand. Ranks compare their calls, so
// that ranks which run different collectives report this instead of waiting forever.
#pragma once

#include <cstdint>
#include <string>

#include "llmc/device/dtype.h"

namespace llmc {

enum class CommKind : std::int32_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  barrier,
  message  // send and receive
};
inline constexpr int kCommKinds = 6;

const char* kind_name(CommKind kind);

// Types of elements. Sums are defined for all but byte.
enum class Element : std::int32_t { fp32, bf16, fp16, int64, byte };

std::int64_t element_size(Element element);

const char* element_name(Element element);

template <class T>
extern const Element kElementOf;
template <>
inline constexpr Element kElementOf<float> = Element::fp32;
template <>
inline constexpr Element kElementOf<bf16> = Element::bf16;
template <>
inline constexpr Element kElementOf<fp16> = Element::fp16;
template <>
inline constexpr Element kElementOf<std::int64_t> = Element::int64;
template <>
inline constexpr Element kElementOf<unsigned char> = Element::byte;

struct CommCall {
  std::int64_t number = 0;  // of this communicator's collectives, or of the messages of two ranks
  CommKind kind = CommKind::barrier;
  Element element = Element::byte;
  std::int64_t count = 0;  // elements of the whole operand
  std::int64_t root = 0;   // of a broadcast

  bool operator==(const CommCall&) const = default;

  // "all-gather 17 of 4096 fp32"
  std::string text() const;
};

// Throws if another rank of the group makes another call.
void require_same_call(const CommCall& mine, int rank, const CommCall& other, int other_rank);

}  // namespace llmc
