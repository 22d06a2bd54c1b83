// Megabytes of text per second that a tokenizer encodes and decodes on one core. Times are CPU time
// of this process, the best of several runs, so other programs disturb them little.
//
//     make build/host/bench_tokenizer
//     build/host/bench_tokenizer TOKENIZER FILE...      (TOKENIZER as for train_gpt2)
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <exception>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/base/file.h"
#include "llmc/base/signal_request.h"
#include "llmc/base/standard_output.h"
#include "llmc/io/tokenizer/gpt2_splitter.h"
#include "llmc/io/tokenizer/tokenizer.h"

namespace {

template <class Action>
double best_seconds(int runs, Action&& action) {
  double best = std::numeric_limits<double>::infinity();
  for (int run = 0; run < runs; ++run) {
    const std::clock_t start = std::clock();
    action();
    best = std::min(best, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  }
  return best;
}

void measure(const llmc::Tokenizer& tokenizer, const std::string& path) {
  constexpr int kRuns = 9;
  const std::string text = llmc::read_file(path);
  std::vector<std::int32_t> tokens;
  std::string back;
  std::size_t pieces = 0;
  const llmc::Gpt2Splitter splitter;
  const double encode = best_seconds(kRuns, [&] { tokens = tokenizer.encode(text); });
  const double decode = best_seconds(kRuns, [&] { back = tokenizer.decode(tokens); });
  const double split =
      best_seconds(kRuns, [&] { splitter.split(text, [&](std::string_view) { ++pieces; }); });
  const double megabytes = static_cast<double>(text.size()) / 1e6;
  std::printf("%-44s %8.2f %9zu %8.1f %8.1f %8.1f  %s\n", path.c_str(), megabytes, tokens.size(),
              megabytes / encode, megabytes / decode, megabytes / split,
              back == text ? "OK" : "FAIL: decoding gives another text");
}

}  // namespace

int main(int count, char** arguments) {
  llmc::SignalRequest::start_thread("bench_tokenizer");
  if (count < 3) {
    std::fprintf(stderr, "usage: %s TOKENIZER FILE...\n", arguments[0]);
    return 2;
  }
  try {
    std::unique_ptr<llmc::Tokenizer> tokenizer;
    const double load = best_seconds(3, [&] { tokenizer = llmc::make_tokenizer(arguments[1]); });
    std::printf("%s: loaded in %.3f s, %lld tokens\n", arguments[1], load,
                static_cast<long long>(tokenizer->vocabulary_size()));
    std::printf("%-44s %8s %9s %8s %8s %8s\n", "file", "MB", "tokens", "encode", "decode", "split");
    for (int i = 2; i < count; ++i) measure(*tokenizer, arguments[i]);
    std::printf("encode, decode and split (GPT-2's pattern alone): MB per second on one core\n");
    llmc::flush_stdout();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
