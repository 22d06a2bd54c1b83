// Which pointers among a kernel's parameters an address comes from. An access is then valid only in
// the tensors to which these pointers point.
#pragma once

#include <bitset>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "test/ptx/source.h"

namespace llmc_ptx {

// Words of 8 bytes of the parameters from which a value may come. Values whose source is unknown,
// such as pointers in memory, have all of them.
class Roots {
 public:
  static constexpr std::int64_t kMostBytes = 2048;

  static Roots unknown() {
    Roots roots;
    roots.words_.set();
    return roots;
  }
  bool is_unknown() const { return words_.all(); }
  void add_word(std::int64_t offset);
  void include(const Roots& other) { words_ |= other.words_; }
  // Offsets in the parameters.
  std::vector<std::int64_t> offsets() const;
  bool operator==(const Roots&) const = default;

 private:
  std::bitset<kMostBytes / 8> words_;
};

// The roots of each register of 64 bits of a function without calls. `addresses`: of its
// parameters.
std::map<std::string, Roots> find_roots(const Function& function,
                                        const std::map<std::string, std::int64_t>& addresses);

}  // namespace llmc_ptx
