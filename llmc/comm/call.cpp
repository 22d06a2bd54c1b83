#include "llmc/comm/call.h"

#include "llmc/base/error.h"

namespace llmc {

const char* kind_name(CommKind kind) {
  constexpr const char* kNames[kCommKinds] = {"all-reduce", "reduce-scatter", "all-gather",
                                              "broadcast",  "barrier",        "message"};
  return kNames[static_cast<int>(kind)];
}

std::int64_t element_size(Element element) {
  constexpr std::int64_t kSizes[] = {4, 2, 2, 8, 1};
  return kSizes[static_cast<int>(element)];
}

const char* element_name(Element element) {
  constexpr const char* kNames[] = {"fp32", "bf16", "fp16", "int64", "bytes"};
  return kNames[static_cast<int>(element)];
}

std::string CommCall::text() const {
  std::string text = std::string(kind_name(kind)) + " " + std::to_string(number);
  if (count > 0) text += " of " + std::to_string(count) + " " + element_name(element);
  if (kind == CommKind::broadcast) text += " from rank " + std::to_string(root);
  return text;
}

void require_same_call(const CommCall& mine, int rank, const CommCall& other, int other_rank) {
  if (mine == other) return;
  fail("ranks of a group make different calls: rank " + std::to_string(rank) + " " + mine.text() +
       ", rank " + std::to_string(other_rank) + " " + other.text());
}

}  // namespace llmc
