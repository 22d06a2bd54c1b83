// A training step on the CPU next to its roof, as JSON: the time of its matrix products alone, of
// its memory traffic at the rate of a copy, and of its attention at the rate of the products.
//
//     make build/host/host_roof
//     build/host/host_roof [--model d12] [--batch-size 1] [--seq-len 64] [--dtype bf16] ...
//
// dev/host_roof.py runs it for many settings. LLMC_HOST_THREADS sets the number of threads.
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dev/host_roof_products.h"
#include "llmc/base/json.h"
#include "llmc/base/signal_request.h"
#include "llmc/base/standard_output.h"
#include "llmc/config/model_name.h"
#include "llmc/device/device.h"
#include "llmc/device/libraries.h"
#include "llmc/device/workers.h"
#include "llmc/train/measure/profiled_step.h"

namespace {

using namespace llmc;
using namespace llmc_dev;

struct Options {
  std::string model = "d12";
  std::int64_t B = 1, T = 64;
  Dtype dtype = Dtype::bf16;
  std::int64_t steps = 5;
  std::int64_t vocabulary = 0;  // 0: that of the model
  std::int64_t product_ms = 200;
  std::int64_t memory_mib = 0;  // 0: four times the last-level cache, within 256 and 1024
};

// ---- memory ----------------------------------------------------------------------------------

// Bytes that repeated measurements cycle over, so that their operands come from memory.
std::int64_t cycled_bytes(const Options& options) {
  if (options.memory_mib > 0) return options.memory_mib << 20;
  const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return std::clamp<std::int64_t>(4 * std::int64_t{cache}, 256 << 20, 1024 << 20);
}

// The bytes per second, read plus written, of a copy by all threads. Large pieces are written past
// the caches by memcpy and small ones through them; which is faster depends on the machine.
double copy_bandwidth(std::int64_t bytes) {
  constexpr int kRounds = 8;
  const std::int64_t size = bytes / 2;
  Buffer<std::byte> from(size), to(size);
  double least = 1e30;
  const std::int64_t share = ceil_div(size, workers().threads());
  for (const std::int64_t piece : {std::min<std::int64_t>(share, 256 << 10), share}) {
    for (int round = 0; round < kRounds; ++round) {
      least = std::min(least, milliseconds_of([&] {
                         workers().run(ceil_div(size, piece), [&](std::int64_t i) {
                           const std::int64_t count = std::min(piece, size - i * piece);
                           std::memcpy(to.data() + i * piece, from.data() + i * piece,
                                       static_cast<std::size_t>(count));
                         });
                       }));
    }
  }
  return 2e3 * static_cast<double>(size) / least;
}

// ---- the step --------------------------------------------------------------------------------

ModelConfig shape_of(const Options& options) {
  ModelConfig shape;
  if (options.model == "tiny") {
    shape = {.vocabulary = 256, .context = 64, .layers = 2, .heads = 2, .channels = 32};
  } else {
    shape = config_from_name(options.model);
  }
  shape.context = std::max(shape.context, options.T);
  if (options.vocabulary > 0) shape.vocabulary = options.vocabulary;
  return shape;
}

struct MeasuredStep {
  std::vector<double> step_ms;         // of every step
  std::vector<ProfileRow> operations;  // those that have no others inside
};

// The times of operations are means over the half of the steps whose times are nearest to the
// median. So they add up to about the median step, and single slow steps do not count.
MeasuredStep measured_step(const RunConfig& config) {
  Exchange alone;
  std::vector<std::vector<ProfileRow>> steps = profiled_steps(config, alone);
  MeasuredStep result;
  for (const std::vector<ProfileRow>& rows : steps) {
    result.step_ms.push_back(rows.front().milliseconds);
  }
  std::ranges::sort(steps, {}, [](const auto& rows) { return rows.front().milliseconds; });
  const std::size_t first = steps.size() / 4, end = steps.size() - first;
  std::map<std::string, double> times;
  for (std::size_t i = first; i < end; ++i) {
    for (const ProfileRow& row : steps[i]) {
      times[row.path] += row.milliseconds / static_cast<double>(end - first);
    }
  }
  for (ProfileRow row : steps.front()) {
    const auto next = times.lower_bound(row.path + "/");
    const bool has_parts = next != times.end() && next->first.starts_with(row.path + "/");
    if (row.depth == 0 || has_parts) continue;
    row.milliseconds = times.at(row.path);
    result.operations.push_back(std::move(row));
  }
  return result;
}

std::vector<Product> measured_products(const Options& options, const RunConfig& config) {
  const std::int64_t budget = cycled_bytes(options);
  const auto min_ms = static_cast<double>(options.product_ms);
  std::vector<Product> products = products_of(config);
  const auto time_all = [&](auto&& timer) {
    for (Product& product : products) timer.time(product);
  };
  if (options.dtype == Dtype::bf16) {
    time_all(ProductTimer<bf16>(budget, min_ms));
  } else {
    time_all(ProductTimer<float>(budget, min_ms));
  }
  return products;
}

// ---- report ----------------------------------------------------------------------------------

struct Roof {
  std::map<std::string, double> products_ms;  // by operation
  double products = 0, traffic = 0, attention = 0;
  double flops_per_ms = 0;  // of all products

  explicit Roof(const std::vector<Product>& list) {
    double flops = 0;
    for (const Product& product : list) {
      const auto calls = static_cast<double>(product.calls);
      products_ms[product.operation] += calls * product.ms;
      products += calls * product.ms;
      flops += calls * product.flops();
    }
    flops_per_ms = flops / products;
  }

  // Returns the kind of an operation and its time at the roof, and adds that to the sum of the
  // kind.
  std::pair<const char*, double> add(const ProfileRow& row, double bytes_per_ms) {
    if (const auto product = products_ms.find(row.name()); product != products_ms.end()) {
      return {"product", product->second};
    }
    if (row.name().starts_with("attention")) {
      attention += row.work.flops / flops_per_ms;
      return {"attention", row.work.flops / flops_per_ms};
    }
    traffic += row.work.bytes / bytes_per_ms;
    return {row.work.bytes > 0 ? "traffic" : "other", row.work.bytes / bytes_per_ms};
  }
};

Json report_of(const Options& options) {
  const RunConfig config =
      measured_config(shape_of(options), options.B, options.T, options.dtype, options.steps);
  const std::int64_t bytes = cycled_bytes(options);
  const double bandwidth_before = copy_bandwidth(bytes);
  const MeasuredStep step = measured_step(config);
  const std::vector<Product> products = measured_products(options, config);
  // Other programs can slow down one of both.
  const double bandwidth = std::max(bandwidth_before, copy_bandwidth(bytes));
  Roof roof(products);
  Json operations = Json::array(), product_list = Json::array();
  for (const ProfileRow& row : step.operations) {
    const auto [kind, roof_ms] = roof.add(row, 1e-3 * bandwidth);
    operations.push_back({{"name", row.path},
                          {"kind", kind},
                          {"calls", row.calls},
                          {"ms", row.milliseconds},
                          {"roof_ms", roof_ms},
                          {"bytes", row.work.bytes},
                          {"flops", row.work.flops}});
  }
  for (const Product& p : products) {
    product_list.push_back({{"layer", p.layer},
                            {"operation", p.operation},
                            {"m", p.m},
                            {"k", p.k},
                            {"n", p.n},
                            {"calls", p.calls},
                            {"ms", static_cast<double>(p.calls) * p.ms},
                            {"gflop_s", 1e-6 * p.flops() / p.ms}});
  }
  const double step_ms = median(step.step_ms);
  return {{"model", options.model},
          {"batch_size", options.B},
          {"seq_len", options.T},
          {"vocabulary", config.shape.vocabulary},
          {"dtype", dtype_name(options.dtype)},
          {"threads", workers().threads()},
          {"matrix_library", compute_libraries_text()},
          {"step_ms", step_ms},
          {"steps_ms", step.step_ms},
          {"products_ms", roof.products},
          {"traffic_ms", roof.traffic},
          {"attention_roof_ms", roof.attention},
          {"product_gflop_s", 1e-6 * roof.flops_per_ms},
          {"copy_gb_s", 1e-9 * bandwidth},
          {"code_gop_s", 1e-6 * code_rate()},
          {"share_of_roof", (roof.products + roof.traffic + roof.attention) / step_ms},
          {"share_of_products", roof.products / step_ms},
          {"operations", operations},
          {"products", product_list}};
}

// ---- flags -----------------------------------------------------------------------------------

[[noreturn]] void reject(const std::string& what) {
  throw UsageError(what, "", std::source_location::current());
}

std::int64_t count_of(std::string_view flag, std::string_view text) {
  constexpr std::int64_t kMax = 1 << 20;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > kMax) {
    reject(std::string(flag) + " " + std::string(text) + "; allowed: 1 to " + std::to_string(kMax));
  }
  return value;
}

Options options_of(const std::vector<std::string>& words) {
  Options options;
  const std::map<std::string, std::int64_t*> counts = {
      {"--batch-size", &options.B},          {"--seq-len", &options.T},
      {"--steps", &options.steps},           {"--vocabulary", &options.vocabulary},
      {"--product-ms", &options.product_ms}, {"--memory-mib", &options.memory_mib}};
  for (std::size_t i = 0; i < words.size(); i += 2) {
    const std::string& flag = words[i];
    const auto count = counts.find(flag);
    if (count == counts.end() && flag != "--model" && flag != "--dtype") {
      reject(flag +
             " is not a flag; allowed: --model, --dtype, --batch-size, --seq-len, --steps, "
             "--vocabulary, --product-ms, --memory-mib");
    }
    if (i + 1 == words.size()) reject(flag + " has no value");
    const std::string& value = words[i + 1];
    if (count != counts.end()) {
      *count->second = count_of(flag, value);
    } else if (flag == "--model") {
      options.model = value;
    } else if (value == "fp32" || value == "bf16") {
      options.dtype = parse_dtype(value);
    } else {
      reject("--dtype " + value + "; allowed: fp32, bf16");
    }
  }
  return options;
}

}  // namespace

int main(int count, char** arguments) {
  SignalRequest::start_thread("host_roof");
  try {
    print_text(report_of(options_of({arguments + 1, arguments + count})).dump(1) + "\n");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "host_roof: %s\n", error.what());
    return dynamic_cast<const UsageError*>(&error) != nullptr ? 2 : 1;
  }
  return 0;
}
