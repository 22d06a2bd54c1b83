#include "test/ptx/contraction.h"

#include <map>

namespace llmc_ptx {

namespace {

// The statement that writes a register; several: none of them counts.
using Writers = std::map<std::string, int>;
constexpr int kSeveral = -1;

Writers find_writers(const std::vector<Use>& uses) {
  Writers writers;
  for (std::size_t s = 0; s < uses.size(); ++s) {
    for (const std::string& name : uses[s].writes) {
      const auto [entry, is_new] = writers.try_emplace(name, static_cast<int>(s));
      if (!is_new) entry->second = kSeveral;
    }
  }
  return writers;
}

// Whether a register or number has the same value at both statements of a basic block.
bool is_unchanged(const std::string& operand, const Writers& writers, int first, int second) {
  const auto entry = writers.find(operand);
  if (entry == writers.end()) return true;
  return entry->second != kSeveral && (entry->second < first || entry->second > second);
}

}  // namespace

std::vector<std::optional<FusableProduct>> find_fusable_products(const Function& function,
                                                                 const ControlFlow& flow,
                                                                 const std::vector<Use>& uses) {
  const Writers writers = find_writers(uses);
  std::vector<std::optional<FusableProduct>> products(uses.size());
  for (std::size_t s = 0; s < uses.size(); ++s) {
    const Statement& sum = function.statements[s];
    if (sum.form != "add.f32" && sum.form != "sub.f32") continue;
    const int at = static_cast<int>(s);
    for (int k = 1; k <= 2 && !products[s]; ++k) {
      const auto writer = writers.find(sum.operands[static_cast<std::size_t>(k)]);
      if (writer == writers.end() || writer->second == kSeveral || writer->second >= at) continue;
      const Statement& product = function.statements[static_cast<std::size_t>(writer->second)];
      if (product.form != "mul.f32" || !product.predicate.empty()) continue;
      if (flow.block_of(writer->second) != flow.block_of(at)) continue;
      const std::string &a = product.operands[1], &b = product.operands[2];
      if (is_unchanged(a, writers, writer->second, at) &&
          is_unchanged(b, writers, writer->second, at)) {
        products[s] = FusableProduct{k, {a, b}};
      }
    }
  }
  return products;
}

}  // namespace llmc_ptx
