// The texts of operands in their parts.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace llmc_ptx {

// An operand of an address: "[%rd1+8]".
struct Address {
  std::string base;
  std::int64_t offset = 0;
};

inline Address split_address(const std::string& text) {
  const std::string inner = text.substr(1, text.size() - 2);
  const std::size_t plus = inner.find('+');
  if (plus == std::string::npos) return {inner, 0};
  return {inner.substr(0, plus), std::stoll(inner.substr(plus + 1), nullptr, 0)};
}

// "{%f1,%f2}" and "%r1|%p1" in their registers.
inline void flatten(const std::string& operand, std::vector<std::string>& out) {
  if (operand.empty() || operand[0] == '[') return out.push_back(operand);
  std::string word;
  for (const char c : operand) {
    if (c == ',' || c == '|') {
      out.push_back(std::exchange(word, ""));
    } else if (c != '{' && c != '}') {
      word += c;
    }
  }
  out.push_back(word);
}

}  // namespace llmc_ptx
