#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/base/number_text.h"
#include "llmc/base/standard_output.h"
#include "llmc/comm/rank_places.h"
#include "llmc/config/fill_settings.h"
#include "llmc/config/train_table.h"
#include "llmc/device/device.h"
#include "llmc/ops/gemm/matmul.h"
#include "llmc/parallel/training_runner.h"
#include "llmc/plan/time/dtype_constants.h"
#include "llmc/train/measure/fit_constants.h"
#include "llmc/train/measure/measure_machine.h"
#include "llmc/train/measure/profiled_step.h"
#include "llmc/train/run/check_links.h"

namespace llmc {

namespace {

using Clock = std::chrono::steady_clock;

// On a slow machine, the largest models are left out.
constexpr double kEnoughSeconds = 25;
constexpr std::size_t kFewestSizes = 3;
constexpr bool kHasDeviceMemory = kCudaTarget;  // apart from the host's
constexpr std::int64_t kMessage = std::int64_t{kCudaTarget ? 64 : 4} << 20;  // bytes

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Sizes from those that starts decide to those that the work decides.
std::vector<MeasuredSizes> measured_sizes() {
  const auto sizes = [](std::int64_t layers, std::int64_t C, std::int64_t T, std::int64_t B,
                        std::int64_t V) {
    return MeasuredSizes{
        .shape = {.vocabulary = V, .context = T, .layers = layers, .heads = C / 64, .channels = C},
        .B = B};
  };
  if (kHasDeviceMemory) {
    return {sizes(4, 768, 1024, 4, 50257), sizes(4, 768, 1024, 16, 50257),
            sizes(3, 1600, 1024, 8, 50257), sizes(2, 2048, 2048, 4, 16384)};
  }
  return {sizes(2, 128, 64, 4, 512), sizes(2, 256, 256, 2, 4096), sizes(1, 512, 128, 4, 4096),
          sizes(1, 768, 128, 2, 8192)};
}

double measured_peak_of(Dtype dtype) {
  const MeasuredSizes sizes = measured_sizes().front();
  const auto runner =
      make_training_runner(dtype, sizes.shape, {.B = 1, .T = 64}, training_gemm_options(), Ranks());
  return runner->measured_peak_flops();
}

// The bytes per second of copies to the device from pinned memory.
double copy_bandwidth(Stream& stream) {
  constexpr std::int64_t kBytes = std::int64_t{256} << 20;
  constexpr int kRepeats = 3;
  const PinnedBuffer<char> host(kBytes);
  const Buffer<char> device(kBytes);
  double fastest = 0;
  for (int i = 0; i < kRepeats; ++i) {
    const auto begin = Clock::now();
    copy_to_device(device.data(), static_cast<const char*>(host.data()), kBytes, stream);
    stream.synchronize();
    fastest = std::max(fastest, static_cast<double>(kBytes) / seconds_since(begin));
  }
  return fastest;
}

double mean_of(double value, Exchange& exchange) {
  double sum = 0;
  for (const std::int64_t bits : exchange.all_gather({std::bit_cast<std::int64_t>(value)})) {
    sum += std::bit_cast<double>(bits);
  }
  return sum / exchange.ranks();
}

// The median time of a message from the first to the second rank of a pair and back, halved.
double message_seconds(Communicator& pair, std::int64_t n, Stream& stream) {
  constexpr int kWarmUp = 2, kRepeats = 7;
  const Buffer<float> values(n);
  fill_zero(values.data(), n, stream);
  const bool is_first = pair.rank() == 0;
  const auto operand = make_tensor(values.data(), n);
  std::vector<double> times;
  for (int i = 0; i < kWarmUp + kRepeats; ++i) {
    pair.barrier(stream);
    pair.wait(stream);
    const auto begin = Clock::now();
    for (const bool sends : {is_first, !is_first}) {
      sends ? pair.send(operand, is_first ? 1 : 0, stream)
            : pair.receive(operand, is_first ? 1 : 0, stream);
    }
    pair.wait(stream);
    if (i >= kWarmUp) times.push_back(seconds_since(begin) / 2);
  }
  std::ranges::nth_element(times, times.begin() + kRepeats / 2);
  return times[kRepeats / 2];
}

// Sets the constants of links; those of one rank are the device's memory.
void measure_network(Machine& machine, const std::vector<int>& node, World& world,
                     Exchange& exchange, Stream& stream) {
  const double memory = machine.memory_bandwidth;
  machine.node_bandwidth = machine.tensor_bandwidth = memory;
  machine.network_bandwidth = machine.message_bandwidth = memory;
  if (world.ranks() == 1) return;
  const auto all = world.all("measure-all");
  machine.hides_communication = all->occupies_host() ? 0 : 1;
  const LinkSpeed whole = measure_all_reduce(*all, stream);
  machine.tensor_bandwidth = machine.network_bandwidth = mean_of(whole.bytes_per_s, exchange);
  machine.node_bandwidth = machine.network_bandwidth;
  machine.collective_start = 1e-6 * mean_of(whole.latency_us, exchange) /
                             (1 + std::log2(static_cast<double>(all->ranks())));
  if (std::ssize(node) < world.ranks() && node.size() > 1) {
    machine.node_bandwidth =
        measure_all_reduce(*world.group("measure-node", node), stream).bytes_per_s;
  }
  machine.node_bandwidth = mean_of(machine.node_bandwidth, exchange);
  // The ranks between which a message has the longest way: the ends.
  double seconds = 0;
  if (world.rank() == 0 || world.rank() + 1 == world.ranks()) {
    const auto pair = world.group("measure-pair", {0, world.ranks() - 1});
    seconds = message_seconds(*pair, kMessage / static_cast<std::int64_t>(sizeof(float)), stream);
  }
  machine.message_bandwidth = static_cast<double>(kMessage) / exchange.broadcast(seconds);
}

// A step of each model. All are measured twice, because another program may disturb one time; the
// shorter times count.
std::vector<ProfiledStep> profiled_steps(Dtype dtype, Clock::time_point begin, Exchange& exchange) {
  const std::vector<MeasuredSizes> models = measured_sizes();
  std::vector<ProfiledStep> steps;
  for (std::size_t i = 0; i < 2 * models.size(); ++i) {
    const bool is_late = exchange.broadcast(seconds_since(begin)) > kEnoughSeconds;
    if (is_late && i >= kFewestSizes) break;
    const ProfiledStep step = profile_step(models[i % models.size()], dtype, exchange);
    if (i < models.size()) {
      steps.push_back(step);
    } else {
      steps[i - models.size()].keep_shorter(step);
    }
  }
  return steps;
}

std::string origin_of(const MachineConstant& constant, bool is_one_machine, int ranks,
                      const std::string& how) {
  const std::string name = constant.name;
  const bool is_link = name.ends_with("_bandwidth") && name != "memory_bandwidth";
  if (is_link && name != "host_bandwidth") {
    if (ranks == 1) return "not measured: one rank";
    const bool is_network = name == "network_bandwidth" || name == "tensor_bandwidth";
    if (is_network && is_one_machine) return "not measured: one machine";
  }
  return how;
}

// "NAME: 8 ranks per machine, fp32"
std::string machine_name(const Machine& machine, Dtype dtype) {
  const auto ranks = static_cast<std::int64_t>(machine.ranks_per_node);
  return device_properties().name + ", " + std::to_string(ranks) +
         (ranks == 1 ? " rank" : " ranks") + " per machine, " + dtype_name(dtype);
}

std::string report_of(const Machine& machine) {
  std::string text = "machine: " + machine.name + "\n";
  for (const MachineConstant& constant : machine_constants()) {
    text += "  " + std::string(constant.name) + ": " +
            number_text("%.4g ", machine.*constant.value) + constant.unit + "\n";
  }
  return text;
}

}  // namespace

void measure_machine(const Request& request, World& world, Exchange& exchange) {
  const auto begin = Clock::now();
  const RunConfig config = fill_settings(train_settings(), request, RunFacts{}, Request{});
  const Dtype dtype = config.precision.dtype;
  const DeviceProperties device = device_properties();
  const std::vector<int> node = ranks_with_equal(machine_text(), exchange);
  const std::int64_t sharing = std::ssize(ranks_on_device(exchange));
  Stream stream;
  Machine machine{.ranks_per_node = static_cast<double>(node.size()),
                  .memory = static_cast<double>(device.total_memory / sharing)};
  machine.name = machine_name(machine, dtype);
  const double peak16 = mean_of(measured_peak_of(Dtype::bf16), exchange);
  machine.peak_flops = peak16;
  machine.peak_flops_fp32 = mean_of(measured_peak_of(Dtype::fp32), exchange);
  if (kHasDeviceMemory) machine.host_bandwidth = mean_of(copy_bandwidth(stream), exchange);
  machine.memory_bandwidth = kHasDeviceMemory ? 1e12 : 1e10;  // where the fit begins
  const std::vector<ProfiledStep> steps = profiled_steps(dtype, begin, exchange);
  Software software = read_software("llmc");
  set_dtype(machine, software, dtype);
  fit_constants(machine, software, steps);
  machine.peak_flops = peak16;
  measure_network(machine, node, world, exchange, stream);
  exchange.together([&] {
    if (!exchange.first()) return;
    const std::string how = "measured by --measure-machine in " + std::string(dtype_name(dtype)) +
                            " with " + std::to_string(exchange.ranks()) +
                            (exchange.ranks() == 1 ? " rank" : " ranks");
    const Json json = machine_json(machine, [&](const MachineConstant& constant) {
      return origin_of(constant, std::ssize(node) == exchange.ranks(), exchange.ranks(), how);
    });
    write_file(config.ranks.measure_machine, json.dump(1) + "\n");
    print_text(report_of(machine) + "written to " + config.ranks.measure_machine + " after " +
               number_text("%.0f s\n", seconds_since(begin)));
  });
}

}  // namespace llmc
