// main() of a benchmark.
#pragma once

#include <cstdio>
#include <exception>
#include <string>

#include "dev/harness/session.h"
#include "llmc/base/signal_request.h"
#include "llmc/base/standard_output.h"
#include "llmc/device/select.h"

namespace llmc_dev {

// main() of a benchmark. A CUDA build without a GPU exec()s the host build next to it.
inline int bench_main(int argc, char** argv, const char* about, void (*cases)(OpRunner&)) {
  const std::string program = argc > 0 ? argv[0] : "bench";
  llmc::SignalRequest::start_thread(program);
  try {
    const Options options =
        parse_options(argc, argv, llmc::kCudaTarget ? BenchShapes::gpt2 : BenchShapes::small);
    if (options.help) {
      llmc::print_text(program + ": " + about + "\n" + kOptionsHelp);
      return 0;
    }
    llmc::select_device("auto", argv);
    Bench bench(options);
    cases(bench);
    llmc::flush_stdout();
    if (options.list) return 0;
    if (bench.report().empty()) {
      throw UsageError("--filter matches no line; --list prints all lines");
    }
    bench.report().finish();
    llmc::flush_stdout();
    return bench.report().failed() == 0 ? 0 : 1;
  } catch (const UsageError& error) {
    std::fprintf(stderr, "%s: %s\n", program.c_str(), error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", program.c_str(), error.what());
    return 1;
  }
}

}  // namespace llmc_dev
