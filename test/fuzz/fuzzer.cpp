// One libFuzzer program with all targets. It runs the target named by its own file name (argv[0]);
// under any other name it prints the names of the targets.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>

#include "test/fuzz/targets.h"

namespace {

const llmc_fuzz::Target* target = nullptr;

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char*** argv) {
  const std::string name = std::filesystem::path((*argv)[0]).filename().string();
  target = std::ranges::find(llmc_fuzz::kTargets, name, &llmc_fuzz::Target::name);
  if (target != llmc_fuzz::kTargets.end()) return 0;
  for (const llmc_fuzz::Target& item : llmc_fuzz::kTargets) std::puts(item.name.data());
  std::exit(0);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // Processor time: libFuzzer's own limit also counts the time spent waiting for a processor.
  const std::clock_t begin = std::clock();
  target->run({reinterpret_cast<const char*>(data), size});
  llmc_fuzz::expect(std::clock() - begin < 2 * CLOCKS_PER_SEC,
                    "an input takes less than 2 s of processor time");
  return 0;
}
