// One program for libFuzzer with all targets: it runs the one it is called by the name of
// (argv[0]), and called by any other name prints them.

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
  for (const llmc_fuzz::Target& one : llmc_fuzz::kTargets) std::puts(one.name.data());
  std::exit(0);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // Time on the processor: libFuzzer's own limit also counts the wait for one.
  const std::clock_t begin = std::clock();
  target->run({reinterpret_cast<const char*>(data), size});
  llmc_fuzz::expect(std::clock() - begin < 2 * CLOCKS_PER_SEC, "an input takes less than 2 s");
  return 0;
}
