#include "llmc/comm/comm_choice.h"

#include <algorithm>

namespace llmc {

std::string missing_gpu_text(const std::vector<std::string>& gpus) {
  for (auto gpu = gpus.begin(); gpu != gpus.end(); ++gpu) {
    const std::string rank = std::to_string(gpu - gpus.begin());
    if (gpu->empty()) return "rank " + rank + " has no GPU";
    const auto first = std::find(gpus.begin(), gpu, *gpu);
    if (first != gpu)
      return "ranks " + std::to_string(first - gpus.begin()) + " and " + rank + " share a GPU";
  }
  return "";
}

}  // namespace llmc
