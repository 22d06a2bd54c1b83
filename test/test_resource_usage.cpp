// The resources that a run uses: readings of the host, and NVML's readings through a fake
// library that replaces the driver's.
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "llmc/comm/thread_ranks.h"
#include "llmc/device/mean_power.h"
#include "llmc/device/resource_usage.h"
#include "llmc/train/watch/rank_log.h"
#include "test/support.h"

TEST_SUITE_BEGIN("resource_usage");

namespace {

using llmc::GpuUsage;
using llmc::Nvml;
using llmc_test::contains;

// The functions as NVML's documentation declares them. If `supported` is false, those that a
// GPU may lack return "not supported". The energy counter has 200 W and is updated every 40 ms.
std::string fake_nvml(bool supported) {
  const std::string status = supported ? "0" : "3 /* not supported */";
  return R"(
#include <string.h>
#include <time.h>
#include <fcntl.h>
static char handle;
struct Utilization { unsigned gpu, memory; };
struct Memory { unsigned long long total, free, used; };
extern "C" {
int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** device) {
  if (strcmp(id, "0000:3b:00.0") != 0) return 6;
  *device = &handle;
  return 0;
}
int nvmlDeviceGetUtilizationRates(void* device, Utilization* u) {
  u->gpu = 87; u->memory = 41;
  return device == &handle ? 0 : 2;
}
int nvmlDeviceGetMemoryInfo(void* device, Memory* m) {
  m->total = 80ull << 30; m->free = 69ull << 30; m->used = 11ull << 30;
  return device == &handle ? 0 : 2;
}
int nvmlDeviceGetPowerUsage(void*, unsigned* milliwatts) { *milliwatts = 312500; return )" +
         status + R"(; }
int nvmlDeviceGetTotalEnergyConsumption(void* device, unsigned long long* millijoules) {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  *millijoules = 200 * 40 * ((now.tv_sec * 1000ull + now.tv_nsec / 1000000) / 40);
  return device != &handle ? 2 : )" +
         status + R"(;
}
int nvmlDeviceGetTemperature(void*, int sensor, unsigned* celsius) {
  *celsius = 54;
  return sensor == 0 ? )" +
         status + R"( : 2;
}
})";
}

// Compiles `source` to a library; returns an empty path if there is no compiler.
std::string compile_library(const llmc_test::TemporaryDirectory& directory,
                            const std::string& source) {
  const std::string code = directory.file("nvml.cpp"), library = directory.file("libnvml.so");
  std::ofstream(code) << source;
  const std::string command = "g++ -shared -fPIC -o " + library + " " + code + " 2>/dev/null";
  return std::system(command.c_str()) == 0 ? library : std::string();
}

bool empty(const GpuUsage& usage) {
  return !usage.utilisation && !usage.power && !usage.memory && !usage.temperature;
}

}  // namespace

TEST_CASE("processor time and memory of this process are measured") {
  llmc::ResourceMeter meter("");
  const double before = llmc::processor_seconds();
  volatile double sink = 0;
  while (llmc::processor_seconds() - before < 0.02) sink = sink + 1;
  const llmc::ResourceUsage usage = meter.read();
  REQUIRE(usage.processors.has_value());
  CHECK(*usage.processors > 0);
  CHECK(empty(usage.gpu));

  REQUIRE(usage.host_memory.has_value());
  std::vector<char> memory(64 << 20, 1);
  CHECK(*llmc::resident_bytes() - *usage.host_memory > 0.9 * static_cast<double>(memory.size()));
}

TEST_CASE("without NVML the GPU readings are missing and open() returns the reason") {
  std::string reason;
  CHECK(Nvml::open("0000:3b:00.0", &reason, "libno-such-library.so.1") == nullptr);
  CHECK(contains(reason, "libno-such-library.so.1"));
  // An existing library that is not NVML.
  CHECK(Nvml::open("0000:3b:00.0", &reason, "libc.so.6") == nullptr);
  CHECK(contains(reason, "libc.so.6 is not NVML"));
  CHECK(empty(llmc::ResourceMeter("0000:3b:00.0", "libno-such-library.so.1").read().gpu));
}

TEST_CASE("NVML readings are in watts, bytes, degrees Celsius and percent") {
  const llmc_test::TemporaryDirectory directory;
  const std::string library = compile_library(directory, fake_nvml(true));
  if (library.empty()) return llmc_test::skip("no g++ to compile a library");
  const auto nvml = Nvml::open("0000:3b:00.0", nullptr, library.c_str());
  REQUIRE(nvml != nullptr);
  const GpuUsage usage = nvml->read();
  CHECK(usage.utilisation == 87.0);
  CHECK(usage.power == doctest::Approx(312.5));
  CHECK(usage.memory == 11.0 * (1 << 30));
  CHECK(usage.temperature == 54.0);

  std::string reason;
  CHECK(Nvml::open("0000:5e:00.0", &reason, library.c_str()) == nullptr);
  CHECK(contains(reason, "no GPU at 0000:5e:00.0"));
}

TEST_CASE("readings that a GPU does not support are missing and the others are present") {
  const llmc_test::TemporaryDirectory directory;
  const std::string library = compile_library(directory, fake_nvml(false));
  if (library.empty()) return llmc_test::skip("no g++ to compile a library");
  const GpuUsage usage = Nvml::open("0000:3b:00.0", nullptr, library.c_str())->read();
  CHECK(usage.utilisation == 87.0);
  CHECK(usage.memory.has_value());
  CHECK_FALSE(usage.power.has_value());
  CHECK_FALSE(usage.temperature.has_value());
}

TEST_CASE("the sampler repeats its last readings between two samples") {
  const llmc_test::TemporaryDirectory directory;
  const std::string library = compile_library(directory, fake_nvml(true));
  if (library.empty()) return llmc_test::skip("no g++ to compile a library");
  llmc::GpuSampler sampler(Nvml::open("0000:3b:00.0", nullptr, library.c_str()));
  GpuUsage usage = sampler.take();
  while (!usage.power) {  // until the sampler's thread has run once
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    usage = sampler.take();
  }
  for (int i = 0; i < 3; ++i) CHECK(sampler.take().power == doctest::Approx(312.5));
}

TEST_CASE("power is taken between the first and the last update of the energy counter") {
  // Updates at 0.1, 0.2 and 0.3 s add 30 J each, that at 0.4 s adds 60 J.
  llmc::CounterPower power;
  power.add(0.05, 500);
  CHECK_FALSE(power.watts().has_value());
  power.add(0.10, 530);
  power.add(0.15, 530);
  CHECK_FALSE(power.watts().has_value());
  power.add(0.20, 560);
  CHECK(*power.watts() == doctest::Approx(300));
  power.add(0.30, 590);
  power.add(0.39, 590);
  CHECK(*power.watts() == doctest::Approx(300));
  power.add(0.40, 650);
  CHECK(*power.watts() == doctest::Approx(400));
}

TEST_CASE("mean power is from the energy counter, or from power readings without one") {
  const llmc_test::TemporaryDirectory directory;
  const auto measure = [&](const std::string& source) {
    const std::string library = compile_library(directory, source);
    const auto nvml = Nvml::open("0000:3b:00.0", nullptr, library.c_str());
    REQUIRE(nvml != nullptr);
    return llmc::mean_power_during(
        *nvml, [] { std::this_thread::sleep_for(std::chrono::milliseconds(600)); });
  };
  if (compile_library(directory, fake_nvml(true)).empty()) {
    return llmc_test::skip("no g++ to compile a library");
  }
  const auto counted = measure(fake_nvml(true));
  REQUIRE(counted.has_value());
  CHECK(counted->source == llmc::PowerSource::energy_counter);
  CHECK(counted->watts == doctest::Approx(200).epsilon(0.5));  // a busy machine reads late

  std::string without_counter = fake_nvml(true);
  const std::string name = "nvmlDeviceGetTotalEnergyConsumption";
  without_counter.replace(without_counter.find(name), name.size(), "an_older_driver");
  const auto read = measure(without_counter);
  REQUIRE(read.has_value());
  CHECK(read->source == llmc::PowerSource::power_readings);
  CHECK(read->watts == doctest::Approx(312.5));

  CHECK_FALSE(measure(fake_nvml(false)).has_value());
}

// The part of a log line from a key on.
std::string from_key(const llmc::LogRecord& line, const std::string& key) {
  const std::string text = llmc::log_line(line);
  const std::size_t at = text.find("\"" + key + "\"");
  return at == std::string::npos ? "" : text.substr(at);
}

TEST_CASE("a log line has only the keys of available readings") {
  llmc::Exchange exchange;
  llmc::StepNumbers numbers;
  llmc::ResourceUsage usage{.processors = 1.756, .host_memory = 100.04 * (1 << 20), .gpu = {}};
  llmc::set_usage(numbers, usage);
  CHECK(from_key(rank_log(llmc::RankNumbers(exchange, numbers), usage), "cpu_percent") ==
        R"("cpu_percent":175.6,"host_mem_mb":100.0})");
  usage = {
      .processors = {},
      .host_memory = {},
      .gpu = {.utilisation = 87, .power = 312.5, .memory = 11.0 * (1 << 30), .temperature = 54}};
  llmc::set_usage(numbers, usage);
  CHECK(from_key(rank_log(llmc::RankNumbers(exchange, numbers), usage), "gpu_mem_mb") ==
        R"("gpu_mem_mb":11264.0,"gpu_util":87.0,"gpu_power_w":312.5,"gpu_temp_c":54.0})");
}

TEST_CASE("--log-ranks adds the use of each rank") {
  llmc::LogRecord line;
  llmc::run_thread_ranks(2, [&](llmc::World& world) {
    llmc::Exchange exchange(world);
    const double rank = world.rank();
    const llmc::StepNumbers own{.processors = 1 + rank,
                                .host_memory = (rank + 1) * (1 << 20),
                                .gpu_memory = -1,
                                .gpu_utilisation = 50 + 25.25 * rank};
    const llmc::RankNumbers numbers(exchange, own);
    if (exchange.first()) line = llmc::rank_log(numbers, {}, true);
  });
  CHECK(from_key(line, "cpu_percent") ==
        R"("cpu_percent":300.0,"cpu_percent_max":200.0,"cpu_percent_ranks":"100.0 200.0",)"
        R"("host_mem_mb":3.0,"host_mem_mb_max":2.0,"host_mem_mb_ranks":"1.0 2.0",)"
        R"("gpu_util_ranks":"50.0 75.2"})");
}

TEST_CASE("--log-ranks adds the use of a single rank") {
  llmc::Exchange exchange;
  const llmc::StepNumbers own{.processors = 0.985, .host_memory = 2.5 * (1 << 20)};
  CHECK(
      from_key(rank_log(llmc::RankNumbers(exchange, own), {}, true), "cpu_percent") ==
      R"("cpu_percent":98.5,"cpu_percent_ranks":"98.5","host_mem_mb":2.5,"host_mem_mb_ranks":"2.5"})");
}

TEST_CASE("the log has sums, maxima and means over ranks; the parts of a step add up to it") {
  llmc::LogRecord line;
  llmc::run_thread_ranks(2, [&](llmc::World& world) {
    llmc::Exchange exchange(world);
    const double rank = world.rank();
    const llmc::StepNumbers own{
        .token_hash = ~std::uint64_t{0} - 4 * world.rank(),
        .comm_bytes = 10 + world.rank(),
        .tensor_bytes = 4 + world.rank(),
        .pipeline_bytes = 3,
        .data_bytes = 2,
        .step_ms = 20 + 2 * rank,
        .phases = {1, 2, 3 + 2 * rank, 0.75, 0.25, 1.5, 0.25, 2.5, 0.5, 5, 0.5},
        .processors = 1 + rank,
        .host_memory = (rank + 1) * (1 << 20)};
    const llmc::RankNumbers numbers(exchange, own);
    if (exchange.first()) line = llmc::rank_log(numbers, {});
  });
  CHECK(
      llmc::log_line(line) ==
      R"({"ranks":2,"comm_bytes":11,"comm_bytes_tp":5,"comm_bytes_pp":3,"comm_bytes_dp":2,)"
      R"("fwd_ms":2.0,"bwd_ms":4.0,"recompute_ms":0.75,"offload_ms":0.25,"comm_ms":4.25,"bubble_ms":0.5,"optimizer_ms":5.0,)"
      R"("data_ms":1.0,"other_ms":3.25,"comm_ms_tp":1.5,"comm_ms_pp":0.25,)"
      R"("comm_ms_dp":2.5,"token_hash":"fffffffffffffffa","cpu_percent":300.0,)"
      R"("cpu_percent_max":200.0,"host_mem_mb":3.0,"host_mem_mb_max":2.0,)"
      R"("host_mem_mb_ranks":"1.0 2.0"})");
}

TEST_SUITE_END();
