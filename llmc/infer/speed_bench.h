// `infer_gpt2 bench`: the speed of prompts and of generated tokens.
//
//   prompt    time to read prompts of N tokens, one per sequence
//   generate  mean time of the N steps after a prompt of one token
//   step      time of a step at one position of the cache. Figures at short contexts alone are too
//             good, because the cache that a step reads grows with the position
//
// A step must read all weights once and the cache of every sequence. The bytes of that, divided by
// the time, are its GB/s; its share of the bandwidth of a copy in the same process is the memory
// bandwidth utilisation.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "llmc/base/json.h"
#include "llmc/base/number_text.h"
#include "llmc/base/standard_output.h"
#include "llmc/config/infer_settings.h"
#include "llmc/config/infer_values.h"
#include "llmc/device/replay.h"
#include "llmc/infer/batch_model.h"
#include "llmc/infer/load_engine.h"
#include "llmc/model/engine.h"
#include "llmc/model/pretrained.h"

namespace llmc {

// A row of the table. Times are of one repetition, divided by its tokens of all sequences.
struct BenchResult {
  std::string test{};
  std::int64_t batch = 0, tokens = 0, position = 0;
  std::vector<double> microseconds{};  // per token, one per repetition
  double bytes = 0;                    // that must be read, per token; 0: not limited by memory

  double mean() const {
    double sum = 0;
    for (const double x : microseconds) sum += x;
    return sum / static_cast<double>(microseconds.size());
  }
  // Standard deviation of the repetitions; 0 for one.
  double stddev() const {
    double sum = 0;
    for (const double x : microseconds) sum += (x - mean()) * (x - mean());
    const auto n = static_cast<double>(microseconds.size());
    return n > 1 ? std::sqrt(sum / (n - 1)) : 0;
  }
  double gigabytes_per_second() const { return 1e-3 * bytes / mean(); }
};

namespace speed_bench_detail {

using Clock = std::chrono::steady_clock;

inline double microseconds_of(Stream& stream, const std::function<void()>& work) {
  stream.synchronize();
  const auto start = Clock::now();
  work();
  stream.synchronize();
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

// Bytes read and written per second by a copy of 256 MiB, in GB/s: the best of five.
inline double copy_gigabytes_per_second(Stream& stream) {
  constexpr std::int64_t kBytes = std::int64_t{1} << 28;
  const Buffer<unsigned char> from(kBytes), to(kBytes);
  fill_zero(from.data(), kBytes, stream);
  fill_zero(to.data(), kBytes, stream);
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    const double time =
        microseconds_of(stream, [&] { copy_on_device(to.data(), from.data(), kBytes, stream); });
    best = std::max(best, 2e-3 * static_cast<double>(kBytes) / time);
  }
  return best;
}

// The steps of one batch size.
template <class T, class KV>
class BatchBench {
 public:
  BatchBench(const InferConfig& settings, const Gpt2Config& config, std::int64_t batch)
      : settings_(settings),
        batch_(batch),
        engine_(config, {.B = 1, .T = 1, .training = false}),
        model_(engine_.runner().model(), engine_.context(),
               {.slots = batch, .capacity = config.context, .chunk = settings.chunk},
               engine_.memory()) {
    engine_.memory().reserve("batch", token_, batch);
    engine_.memory().reserve("batch", position_, batch);
    load_engine(engine_, settings.model);
    model_.clear();
    fill_zero(token_.data, batch, stream());
    for (std::int64_t i = 0; i < config.context; ++i) {
      ids_.push_back(static_cast<std::int32_t>(i * 7919 % config.vocabulary));
    }
  }

  std::vector<BenchResult> run() {
    std::vector<BenchResult> results;
    const std::int64_t context = model_.config().context;
    for (const std::int64_t n : whole_numbers(settings_.prompt_tokens)) {
      if (n < context) results.push_back(prompt(n));
    }
    for (const std::int64_t n : whole_numbers(settings_.gen_tokens)) {
      if (n < context) results.push_back(generate(n));
    }
    for (const std::int64_t position : whole_numbers(settings_.positions)) {
      if (position < context) results.push_back(step(position));
    }
    return results;
  }

 private:
  Stream& stream() { return model_.stream(); }

  // Writes the cache of all sequences up to `length`.
  void read_prompts(std::int64_t length) {
    const std::int64_t chunk = model_.shape().chunk;
    for (std::int64_t b = 0; b < batch_; ++b) {
      for (std::int64_t first = 0; first < length; first += chunk) {
        const std::int64_t count = std::min(chunk, length - first);
        model_.read_prompts({{b, first,
                              std::span<const std::int32_t>(ids_).subspan(
                                  static_cast<std::size_t>(first), static_cast<std::size_t>(count)),
                              first + count == length}});
      }
    }
  }

  void step_at(std::int64_t position) {
    const std::vector<std::int32_t> positions(static_cast<std::size_t>(batch_),
                                              static_cast<std::int32_t>(position));
    copy_to_device(position_.data, positions.data(), batch_, stream());
    step_.run(stream(), [this] { model_.step(token_, position_); });
  }

  // Bytes of weights that every step reads: all but the position embeddings.
  std::int64_t weight_bytes() const {
    std::int64_t count = 0;
    for (const ParameterSpec& spec : engine_.table().specs()) {
      if (spec.name != "wpe.weight") count += spec.size();
    }
    return count * static_cast<std::int64_t>(sizeof(T));
  }

  double step_bytes(double position) const {
    const auto batch = static_cast<double>(batch_);
    return (static_cast<double>(weight_bytes()) +
            batch * (position + 1) * static_cast<double>(model_.cache_bytes_per_token())) /
           batch;
  }

  // Runs `work` once to warm up, then the requested number of times.
  void repeat(BenchResult& result, double tokens, const std::function<void()>& work) {
    work();
    for (std::int64_t i = 0; i < settings_.repetitions; ++i) {
      result.microseconds.push_back(microseconds_of(stream(), work) / tokens);
    }
  }

  BenchResult prompt(std::int64_t n) {
    BenchResult result{.test = "prompt", .batch = batch_, .tokens = n};
    repeat(result, static_cast<double>(n * batch_), [&] { read_prompts(n); });
    return result;
  }

  BenchResult generate(std::int64_t n) {
    BenchResult result{.test = "generate", .batch = batch_, .tokens = n};
    result.bytes = step_bytes(static_cast<double>(n + 1) / 2);
    read_prompts(1);
    repeat(result, static_cast<double>(n * batch_), [&] {
      for (std::int64_t i = 1; i <= n; ++i) step_at(i);
    });
    return result;
  }

  BenchResult step(std::int64_t position) {
    constexpr int kSteps = 8;
    BenchResult result{.test = "step", .batch = batch_, .tokens = kSteps, .position = position};
    result.bytes = step_bytes(static_cast<double>(position));
    read_prompts(std::max<std::int64_t>(1, position));
    repeat(result, static_cast<double>(kSteps * batch_), [&] {
      for (int i = 0; i < kSteps; ++i) step_at(position);
    });
    return result;
  }

  const InferConfig& settings_;
  std::int64_t batch_;
  Engine<T> engine_;
  BatchModel<T, KV> model_;
  Tensor<std::int32_t, 1> token_, position_;
  std::vector<std::int32_t> ids_;
  Replay step_;
};

inline std::vector<std::string> cells(const BenchResult& r, double copy) {
  const bool is_step = r.bytes > 0;
  return {r.test,
          std::to_string(r.batch),
          std::to_string(r.tokens),
          r.test == "step" ? std::to_string(r.position) : "-",
          number_text("%.1f", r.mean()),
          number_text("%.1f", r.stddev()),
          number_text("%.1f", 1e6 / r.mean()),
          is_step ? number_text("%.1f", r.gigabytes_per_second()) : "-",
          is_step ? number_text("%.1f", 100 * r.gigabytes_per_second() / copy) : "-"};
}

inline std::string line_of(const std::vector<std::string>& row, bool markdown) {
  std::string line = markdown ? "|" : "";
  for (const std::string& cell : row) {
    line += markdown ? " " + cell + " |" : (line.empty() ? "" : ",") + cell;
  }
  return line + "\n";
}

inline std::string table_text(const std::vector<BenchResult>& results, double copy,
                              BenchFormat format) {
  if (format == BenchFormat::json) return {};
  const bool markdown = format == BenchFormat::md;
  const std::vector<std::string> titles = {"test", "batch", "tokens", "position", "us/token",
                                           "sd",   "tok/s", "GB/s",   "% of copy"};
  std::string text = line_of(titles, markdown);
  if (markdown) text += line_of(std::vector<std::string>(titles.size(), "---"), true);
  for (const BenchResult& result : results) text += line_of(cells(result, copy), markdown);
  return text;
}

inline OrderedJson json_of(const BenchResult& r, double copy) {
  OrderedJson json = {{"test", r.test},
                      {"batch", r.batch},
                      {"tokens", r.tokens},
                      {"us_per_token", r.mean()},
                      {"us_per_token_sd", r.stddev()},
                      {"tokens_per_second", 1e6 / r.mean()},
                      {"samples_us", r.microseconds}};
  if (r.test == "step") json["position"] = r.position;
  if (r.bytes > 0) {
    json["gb_per_second"] = r.gigabytes_per_second();
    json["percent_of_copy"] = 100 * r.gigabytes_per_second() / copy;
  }
  return json;
}

}  // namespace speed_bench_detail

// Prints the table, and as the last line one JSON object with all results.
template <class T, class KV>
void bench(const InferConfig& settings) {
  using namespace speed_bench_detail;
  const Gpt2Config config =
      from_huggingface(read_pretrained_config(settings.model), settings.model);
  Stream stream;
  const double copy = copy_gigabytes_per_second(stream);
  std::vector<BenchResult> results;
  for (const std::int64_t batch : whole_numbers(settings.batches)) {
    BatchBench<T, KV> batch_bench(settings, config, batch);
    for (BenchResult& result : batch_bench.run()) results.push_back(std::move(result));
  }
  OrderedJson json = {{"model", settings.model},
                      {"dtype", dtype_name(settings.dtype)},
                      {"kv_dtype", dtype_name(settings.kv_dtype)},
                      {"device", device_properties().name},
                      {"copy_gb_per_second", copy},
                      {"results", OrderedJson::array()}};
  for (const BenchResult& result : results) json["results"].push_back(json_of(result, copy));
  print_text(table_text(results, copy, settings.format) + json.dump() + "\n");
}

}  // namespace llmc
