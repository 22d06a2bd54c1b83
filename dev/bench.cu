// A benchmark: checks the cases of ops and, on a GPU, times them. README.md explains its output.
// The build includes a list of ops first (LLMC_OPS, see the Makefile): bench_NAME has one op.
#include "dev/bench.h"

namespace {

void run_cases(llmc_dev::OpRunner& runner) {
#define LLMC_RUN_CASES(op) llmc_dev::op::cases(runner);
  LLMC_OPS(LLMC_RUN_CASES)
#undef LLMC_RUN_CASES
}

}  // namespace

int main(int argc, char** argv) {
  return llmc_dev::bench_main(argc, argv, "checks and times the kernels of an op", run_cases);
}
