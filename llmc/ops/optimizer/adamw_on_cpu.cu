#include <algorithm>
#include <cstddef>
#include <iterator>
#include <type_traits>
#include <vector>

#include "llmc/device/device.h"
#include "llmc/ops/instantiate.h"
#include "llmc/ops/optimizer/adamw_on_cpu.h"

namespace llmc {

namespace {

// Elements that a thread updates at a time: few enough for all threads to end at about the same
// time.
constexpr std::int64_t kCpuRange = std::int64_t{1} << 14;
template <class T>
constexpr int kCpuVector = 64 / static_cast<int>(sizeof(T));  // as in kernels of the host

template <class T, class Rounding>
void update_range(const AdamWArrays<T>& arrays, std::int64_t first, const AdamWStep& step,
                  const OptimizerState& state, const Rounding& rounding) {
  const std::int64_t end = std::min(arrays.n, first + kCpuRange);
  for (std::int64_t i = first; i < end; i += kCpuVector<T>) {
    update_elements<kCpuVector<T>>(arrays, i, step, state, rounding);
  }
}

}  // namespace

template <class T>
void adamw_on_cpu(const std::vector<AdamWPart<T>>& parts, const OptimizerOptions& options,
                  double learning_rate, const OptimizerState& state, WorkerPool& pool) {
  if (state.finite == 0) return;
  struct Range {
    const AdamWPart<T>& part;
    std::int64_t first;
  };
  std::vector<Range> ranges;
  for (const AdamWPart<T>& part : parts) {
    if (part.rounding) part.rounding->check("adamw_on_cpu");
    for (std::int64_t i = 0; i < part.arrays.n; i += kCpuRange) ranges.push_back({part, i});
  }
  pool.run(std::ssize(ranges), [&](std::int64_t index) {
    const auto& [part, first] = ranges[static_cast<std::size_t>(index)];
    const AdamWStep step = make_adamw_step(options, learning_rate, part.use_weight_decay);
    if constexpr (!std::is_same_v<T, float>) {
      if (part.rounding) return update_range(part.arrays, first, step, state, *part.rounding);
    }
    update_range(part.arrays, first, step, state, NearestRounding{});
  });
}

LLMC_INSTANTIATE(adamw_on_cpu)

}  // namespace llmc
