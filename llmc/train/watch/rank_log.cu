#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "llmc/base/checksum.h"
#include "llmc/base/number_text.h"
#include "llmc/device/phase_clock.h"
#include "llmc/train/watch/rank_log.h"
#include "llmc/train/watch/slow_ranks.h"

namespace llmc {

namespace {

// As "%.1f" rounds: 35.25 becomes 35.2.
double tenths(double value) {
  return std::nearbyint(10 * value) / 10;
}

// A number about each rank, in the unit of the log.
struct RankValue {
  const char* key;
  double StepNumbers::*number;  // -1: unknown
  double factor;                // from the number's unit
};

constexpr double kPerMebibyte = 1.0 / (1 << 20);
constexpr RankValue kCpu = {"cpu_percent", &StepNumbers::processors, 100};
constexpr RankValue kHostMemory = {"host_mem_mb", &StepNumbers::host_memory, kPerMebibyte};
constexpr RankValue kGpuMemory = {"gpu_mem_mb", &StepNumbers::gpu_memory, kPerMebibyte};
constexpr RankValue kGpuUtilisation = {"gpu_util", &StepNumbers::gpu_utilisation, 1};

bool all_known(const RankNumbers& numbers, const RankValue& value) {
  return std::ranges::all_of(numbers.ranks(),
                             [&](const StepNumbers& rank) { return rank.*value.number >= 0; });
}

// The sum over ranks, with several ranks also the maximum as `key`_max. Nothing if a rank does not
// know its value.
void append_sum(LogRecord& line, const RankNumbers& numbers, const RankValue& value) {
  if (!all_known(numbers, value)) return;
  const auto number = [&](const StepNumbers& rank) { return rank.*value.number; };
  line.emplace_back(value.key, tenths(value.factor * numbers.sum(number)));
  if (numbers.ranks().size() == 1) return;
  line.emplace_back(std::string(value.key) + "_max",
                    tenths(value.factor * numbers.largest(number)));
}

// The value of each rank as the text `key`_ranks. Nothing if a rank does not know its value.
void append_ranks(LogRecord& line, const RankNumbers& numbers, const RankValue& value) {
  if (!all_known(numbers, value)) return;
  std::vector<double> values;
  for (const StepNumbers& rank : numbers.ranks())
    values.push_back(value.factor * (rank.*value.number));
  line.emplace_back(std::string(value.key) + "_ranks", text_of_ranks(values));
}

// Memory has the text of all ranks always if there are several, the rest only if `by_rank`.
void append_usage(LogRecord& line, const RankNumbers& numbers, bool by_rank) {
  const bool memory_by_rank = by_rank || numbers.ranks().size() > 1;
  append_sum(line, numbers, kCpu);
  if (by_rank) append_ranks(line, numbers, kCpu);
  for (const RankValue& memory : {kHostMemory, kGpuMemory}) {
    append_sum(line, numbers, memory);
    if (memory_by_rank) append_ranks(line, numbers, memory);
  }
  if (by_rank) append_ranks(line, numbers, kGpuUtilisation);
}

// The times of each rank, as texts.
void append_times(LogRecord& line, const RankNumbers& numbers) {
  const auto append = [&](const char* key, double RankTimes::*time) {
    std::vector<double> values;
    for (const StepNumbers& rank : numbers.ranks()) values.push_back(rank_times(rank.phases).*time);
    line.emplace_back(key, text_of_ranks(values));
  };
  append("compute_ms_ranks", &RankTimes::compute);
  append("wait_ms_ranks", &RankTimes::wait);
  append("data_ms_ranks", &RankTimes::data);
}

// Nothing if no rank has moved offloaded state.
void append_offload(LogRecord& line, const RankNumbers& numbers) {
  constexpr std::array<const char*, 4> kKeys = {"offload_bytes_from_host", "offload_bytes_to_host",
                                                "offload_bytes_from_disk", "offload_bytes_to_disk"};
  for (std::size_t i = 0; i < kKeys.size(); ++i) {
    const auto bytes = static_cast<std::int64_t>(
        numbers.largest([&](const StepNumbers& rank) { return rank.offload_bytes[i]; }));
    if (bytes > 0) line.emplace_back(kKeys[i], bytes);
  }
}

}  // namespace

std::string text_of_ranks(const std::vector<double>& numbers) {
  std::string text;
  for (const double number : numbers) {
    text += (text.empty() ? "" : " ") + number_text("%.1f", number);
  }
  return text;
}

std::string mebibytes_of_ranks(std::vector<double> bytes) {
  for (double& of_rank : bytes) of_rank *= kPerMebibyte;
  return text_of_ranks(bytes);
}

void set_usage(StepNumbers& numbers, const ResourceUsage& usage) {
  numbers.processors = usage.processors.value_or(-1);
  numbers.host_memory = usage.host_memory.value_or(-1);
  numbers.gpu_memory = usage.gpu.memory.value_or(-1);
  numbers.gpu_utilisation = usage.gpu.utilisation.value_or(-1);
}

LogRecord rank_log(const RankNumbers& numbers, const ResourceUsage& own, bool by_rank) {
  LogRecord line;
  line.emplace_back("ranks", std::ssize(numbers.ranks()));
  const auto append_bytes = [&](const char* key, std::int64_t StepNumbers::*bytes) {
    line.emplace_back(key, static_cast<std::int64_t>(numbers.largest(
                               [&](const StepNumbers& rank) { return rank.*bytes; })));
  };
  append_bytes("comm_bytes", &StepNumbers::comm_bytes);
  append_bytes("comm_bytes_tp", &StepNumbers::tensor_bytes);
  append_bytes("comm_bytes_pp", &StepNumbers::pipeline_bytes);
  append_bytes("comm_bytes_dp", &StepNumbers::data_bytes);
  append_offload(line, numbers);
  double known = 0;
  const auto mean_of = [&](Phase phase) {
    return numbers.mean(
        [&](const StepNumbers& rank) { return rank.phases[static_cast<std::size_t>(phase)]; });
  };
  const auto append = [&](const char* key, double milliseconds) {
    known += milliseconds;
    line.emplace_back(key, milliseconds);
  };
  const auto append_phase = [&](const char* key, Phase phase) { append(key, mean_of(phase)); };
  append_phase("fwd_ms", Phase::forward);
  append_phase("bwd_ms", Phase::backward);
  append_phase("recompute_ms", Phase::recompute);
  append_phase("offload_ms", Phase::offload);
  const double tensor_ms = mean_of(Phase::tensor_communication);
  const double pipeline_ms = mean_of(Phase::pipeline_communication);
  const double data_ms = mean_of(Phase::data_communication);
  append("comm_ms", tensor_ms + pipeline_ms + data_ms);
  append_phase("bubble_ms", Phase::bubble);
  append_phase("optimizer_ms", Phase::optimizer);
  append_phase("data_ms", Phase::data);
  const double step_ms = numbers.mean([](const StepNumbers& rank) { return rank.step_ms; });
  line.emplace_back("other_ms", step_ms - known);
  line.emplace_back("comm_ms_tp", tensor_ms);
  line.emplace_back("comm_ms_pp", pipeline_ms);
  line.emplace_back("comm_ms_dp", data_ms);
  line.emplace_back("token_hash", checksum_text(numbers.token_hash()));

  if (by_rank) append_times(line, numbers);
  append_usage(line, numbers, by_rank);
  const auto append_known = [&](const char* key, std::optional<double> value) {
    if (value) line.emplace_back(key, tenths(*value));
  };
  append_known("gpu_util", own.gpu.utilisation);
  append_known("gpu_power_w", own.gpu.power);
  append_known("gpu_temp_c", own.gpu.temperature);
  return line;
}

}  // namespace llmc
