#include <fcntl.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "llmc/base/json.h"
#include "llmc/base/notice.h"
#include "llmc/base/standard_output.h"
#include "llmc/config/choices.h"
#include "llmc/config/infer_values.h"
#include "llmc/config/model_config.h"
#include "llmc/device/device.h"
#include "llmc/device/dtype.h"
#include "llmc/device/mean_power.h"
#include "llmc/device/nvml.h"
#include "llmc/device/replay.h"
#include "llmc/device/tensor.h"
#include "llmc/infer/bench_report.h"
#include "llmc/infer/generation_pass.h"
#include "llmc/infer/generation_runner.h"
#include "llmc/infer/load_model.h"
#include "llmc/infer/speed_bench.h"
#include "llmc/models/pretrained.h"
#include "llmc/nn/parameter_table.h"

namespace llmc {

namespace {

using Clock = std::chrono::steady_clock;

double microseconds_of(Stream& stream, const std::function<void()>& work) {
  stream.synchronize();
  const auto start = Clock::now();
  work();
  stream.synchronize();
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

// Bytes read and written per second by a copy of 256 MiB, in GB/s: the best of five.
double copy_gigabytes_per_second(Stream& stream) {
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
class BatchBench {
 public:
  // `nvml` measures energy; null: it is not measured.
  BatchBench(const InferConfig& settings, const ModelConfig& config, std::int64_t batch,
             const Nvml* nvml)
      : settings_(settings),
        batch_(batch),
        nvml_(nvml),
        runner_(make_decoding_runner(settings, config)),
        pass_(make_pass(settings, *runner_,
                        {.slots = batch, .capacity = config.context, .chunk = settings.chunk})) {
    runner_->memory().reserve("batch", token_, batch);
    runner_->memory().reserve("batch", position_, batch);
    load_model(*runner_, settings);
    pass_->clear();
    fill_zero(token_.data, batch, stream());
    for (std::int64_t i = 0; i < config.context; ++i) {
      ids_.push_back(static_cast<std::int32_t>(i * 7919 % config.vocabulary));
    }
  }

  std::vector<BenchResult> run() {
    std::vector<BenchResult> results;
    const std::int64_t context = pass_->config().context;  // a prompt may fill it
    for (const std::int64_t n : numbers_within(settings_.prompt_tokens, 1, context)) {
      results.push_back(prompt(n));
    }
    const std::vector<std::int64_t> lengths = numbers_within(settings_.gen_tokens, 1, context - 1);
    const std::vector<std::int64_t> positions = numbers_within(settings_.positions, 0, context - 1);
    // Any values serve as the cache of a step, but it must have been written.
    std::int64_t longest = 1;
    for (const std::int64_t position : positions) longest = std::max(longest, position);
    if (!lengths.empty() || !positions.empty()) read_prompts(longest);
    for (const std::int64_t n : lengths) results.push_back(generate(n));
    for (const std::int64_t position : positions) results.push_back(step(position));
    return results;
  }

 private:
  Stream& stream() { return pass_->stream(); }

  // The numbers of a list from `min` to `max`.
  static std::vector<std::int64_t> numbers_within(const std::vector<std::string>& list,
                                                  std::int64_t min, std::int64_t max) {
    std::vector<std::int64_t> numbers = whole_numbers(list);
    std::erase_if(numbers, [&](std::int64_t n) { return n < min || n > max; });
    return numbers;
  }

  // Writes the cache of all sequences up to `length`, in passes of --chunk rows, which may belong
  // to several sequences.
  void read_prompts(std::int64_t length) {
    const std::span<const std::int32_t> ids(ids_);
    std::vector<PromptChunk> chunks;
    std::int64_t room = pass_->shape().chunk;
    const auto read = [&] {
      if (!chunks.empty()) pass_->read_prompts(chunks);
      chunks.clear();
      room = pass_->shape().chunk;
    };
    for (std::int64_t b = 0; b < batch_; ++b) {
      for (std::int64_t first = 0, count = 0; first < length; first += count) {
        count = std::min(room, length - first);
        chunks.push_back(
            {b, first,
             ids.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count)),
             first + count == length});
        room -= count;
        if (room == 0) read();
      }
    }
    read();
  }

  void step_at(std::int64_t position) {
    const std::vector<std::int32_t> positions(static_cast<std::size_t>(batch_),
                                              static_cast<std::int32_t>(position));
    copy_to_device(position_.data, positions.data(), batch_, stream());
    step_.run(stream(), [this] { pass_->step(token_, position_); });
  }

  // Bytes of weights that every step reads: all but the position embeddings.
  std::int64_t weight_bytes() const {
    std::int64_t bytes = 0;
    for (const ParameterSpec& spec : runner_->weights().table().specs()) {
      if (spec.name != "wpe.weight") bytes += runner_->bytes_of(spec);
    }
    return bytes;
  }

  double step_bytes(double position) const {
    const auto batch = static_cast<double>(batch_);
    return (static_cast<double>(weight_bytes()) +
            batch * (position + 1) * static_cast<double>(pass_->cache_bytes_per_token())) /
           batch;
  }

  // Runs `work`, which computes `tokens` tokens, once to warm up, then the requested number of
  // times, then for its energy.
  void measure(BenchResult& result, std::int64_t tokens, const std::function<void()>& work) {
    work();
    for (std::int64_t i = 0; i < settings_.repetitions; ++i) {
      result.microseconds.push_back(microseconds_of(stream(), work) / static_cast<double>(tokens));
    }
    if (nvml_ != nullptr) measure_energy(result, tokens, work);
  }

  // Repeats `work` long enough for several updates of the energy counter.
  void measure_energy(BenchResult& result, std::int64_t tokens, const std::function<void()>& work) {
    constexpr double kMicroseconds = 6e5;
    double time = 0;
    std::int64_t runs = 0;
    result.power = mean_power_during(*nvml_, [&] {
      for (; time < kMicroseconds; ++runs) time += microseconds_of(stream(), work);
    });
    if (result.power) {
      result.joules = 1e-6 * result.power->watts * time / static_cast<double>(runs * tokens);
    }
  }

  BenchResult prompt(std::int64_t n) {
    BenchResult result{.test = "prompt", .batch = batch_, .tokens = n};
    measure(result, n * batch_, [&] { read_prompts(n); });
    return result;
  }

  BenchResult generate(std::int64_t n) {
    BenchResult result{.test = "generate", .batch = batch_, .tokens = n};
    result.bytes = step_bytes(static_cast<double>(n + 1) / 2);
    measure(result, n * batch_, [&] {
      for (std::int64_t i = 1; i <= n; ++i) step_at(i);
    });
    return result;
  }

  BenchResult step(std::int64_t position) {
    constexpr int kSteps = kCudaTarget ? 32 : 8;
    BenchResult result{.test = "step", .batch = batch_, .tokens = kSteps, .position = position};
    result.bytes = step_bytes(static_cast<double>(position));
    measure(result, kSteps * batch_, [&] {
      for (int i = 0; i < kSteps; ++i) step_at(position);
    });
    return result;
  }

  const InferConfig& settings_;
  std::int64_t batch_;
  const Nvml* nvml_;
  std::unique_ptr<GenerationRunner> runner_;
  std::unique_ptr<GenerationPass> pass_;
  Tensor<std::int32_t, 1> token_, position_;
  std::vector<std::int32_t> ids_;
  Replay step_;
};

// Opens NVML for the current GPU. Null on the host, and, with a warning, if NVML is unavailable.
std::unique_ptr<Nvml> open_nvml() {
  const std::string bus_id = device_bus_id();
  if (bus_id.empty()) return nullptr;
  std::string reason;
  std::unique_ptr<Nvml> nvml = Nvml::open(bus_id, &reason);
  if (nvml == nullptr) Notice::warn("energy is not measured: " + reason);
  return nvml;
}

}  // namespace

void bench(const InferConfig& settings) {
  const ModelConfig config = read_pretrained_shape(settings.model);
  Stream stream;
  const DeviceProperties device = device_properties();
  const BenchRoofs roofs = {copy_gigabytes_per_second(stream), 1e-9 * device.memory_bandwidth};
  const std::unique_ptr<Nvml> nvml = open_nvml();
  std::vector<BenchResult> results;
  for (const std::int64_t batch : whole_numbers(settings.batches)) {
    BatchBench batch_bench(settings, config, batch, nvml.get());
    for (BenchResult& result : batch_bench.run()) results.push_back(std::move(result));
  }
  Json json = {{"model", settings.model},
               {"dtype", dtype_name(settings.dtype)},
               {"kv_dtype", choice_name(settings.kv_dtype)},
               {"quant", choice_name(settings.quant)},
               {"device", device.name},
               {"copy_gb_per_second", roofs.copy},
               {"peak_gb_per_second", nullptr},
               {"results", Json::array()}};
  if (!settings.adapter.empty()) json["adapter"] = settings.adapter;
  if (roofs.peak > 0) json["peak_gb_per_second"] = roofs.peak;
  for (const BenchResult& result : results) json["results"].push_back(bench_json(result, roofs));
  print_text(bench_table(results, roofs, settings.format) + json.dump() + "\n");
}

}  // namespace llmc
