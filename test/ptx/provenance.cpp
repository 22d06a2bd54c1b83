#include "test/ptx/provenance.h"

#include <string_view>

#include "test/ptx/operands.h"

namespace llmc_ptx {

namespace {

// Which operands of a form may be a pointer that its result points with: all, the last one (the
// addend of a product), none, or a pointer that comes from memory.
enum class Sources { all, addend, none, memory };

Sources sources_of(std::string_view form) {
  const auto is_any = [&](std::initializer_list<std::string_view> prefixes) {
    for (const std::string_view prefix : prefixes) {
      if (form.starts_with(prefix)) return true;
    }
    return false;
  };
  if (is_any({"mov.u64", "mov.b64", "mov.s64", "cvta.", "add.s64", "add.u64", "sub.s64", "sub.u64",
              "selp.b64", "selp.u64", "selp.s64", "and.b64", "or.b64"}))
    return Sources::all;
  if (is_any({"mad.wide.", "mad.lo.s64", "mad.lo.u64"})) return Sources::addend;
  if (is_any({"ld.", "shfl.", "atom."})) return Sources::memory;
  return Sources::none;
}

class Finder {
 public:
  Finder(const Function& function, const std::map<std::string, std::int64_t>& addresses)
      : function_(function), addresses_(addresses) {}

  std::map<std::string, Roots> run() {
    for (bool changed = true; changed;) {
      changed = false;
      for (const Statement& statement : function_.statements) changed = pass(statement) || changed;
    }
    return std::move(roots_);
  }

 private:
  // Includes the roots of a statement in those of its result; false if that is nothing new.
  bool pass(const Statement& statement) {
    if (statement.operands.size() < 2) return false;
    const std::string& result = statement.operands[0];
    const auto width = function_.registers.find(result);
    if (width == function_.registers.end() || width->second != Width::bits64) return false;
    Roots all = roots_[result];
    all.include(roots_of(statement));
    Roots& known = roots_[result];
    if (all == known) return false;
    known = all;
    return true;
  }

  Roots roots_of(const Statement& statement) const {
    const std::vector<std::string>& operands = statement.operands;
    if (statement.form.starts_with("ld.param.")) {
      if (const std::int64_t word = parameter_word(operands[1]); word >= 0) {
        Roots roots;
        roots.add_word(word);
        return roots;
      }
    }
    Roots roots;
    switch (sources_of(statement.form)) {
      case Sources::memory:
        return Roots::unknown();
      case Sources::none:
        return roots;
      case Sources::addend:
        return of(operands.back());
      case Sources::all:
        for (std::size_t i = 1; i < operands.size(); ++i) roots.include(of(operands[i]));
        return roots;
    }
    return roots;
  }

  // A pair of registers may be halves of a pointer.
  Roots of(const std::string& operand) const {
    if (operand[0] == '{') return Roots::unknown();
    const auto entry = roots_.find(operand);
    return entry == roots_.end() ? Roots() : entry->second;
  }

  // The offset of "[parameter+8]" in the parameters; -1 for another address.
  std::int64_t parameter_word(const std::string& operand) const {
    const Address address = split_address(operand);
    const auto entry = addresses_.find(address.base);
    if (entry == addresses_.end()) return -1;
    const std::int64_t word = entry->second + address.offset;
    return word % 8 == 0 && word + 8 <= Roots::kMostBytes ? word : -1;
  }

  const Function& function_;
  const std::map<std::string, std::int64_t>& addresses_;
  std::map<std::string, Roots> roots_;
};

}  // namespace

void Roots::add_word(std::int64_t offset) {
  words_.set(static_cast<std::size_t>(offset / 8));
}

std::vector<std::int64_t> Roots::offsets() const {
  std::vector<std::int64_t> offsets;
  if (is_unknown()) return offsets;
  for (std::size_t i = 0; i < words_.size(); ++i) {
    if (words_[i]) offsets.push_back(static_cast<std::int64_t>(i) * 8);
  }
  return offsets;
}

std::map<std::string, Roots> find_roots(const Function& function,
                                        const std::map<std::string, std::int64_t>& addresses) {
  return Finder(function, addresses).run();
}

}  // namespace llmc_ptx
