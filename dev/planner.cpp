// How well predicted step times hold: fits to random halves of measured steps of Megatron-DeepSpeed
// on A100 GPUs, and published figures that no constant is fitted to. Nothing is measured.
//
//     make build/host/planner
//     build/host/planner VTRAIN [FOLDER]
//     build/host/planner --profile MEASUREMENTS.jsonl MACHINE [FOLDER]
//
// VTRAIN is a folder with ground_truth_multi.csv and ground_truth_single.csv of vTrain.
// MACHINE.json is written with the medians of the fitted constants: scripts/machines/a100.json.
//
// The second form fits constants of MACHINE to the profile of this engine's steps that
// `scripts/gpu_check.sh profile` measured on one GPU, and compares them with the steps of its other
// runs.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "llmc/base/file.h"
#include "llmc/plan/fit/fit_machine.h"
#include "llmc/plan/fit/measured_steps.h"
#include "llmc/plan/fit/published.h"
#include "llmc/train/measure/fit_constants.h"

using namespace llmc;

namespace {

const std::filesystem::path kMachines = "scripts/machines";
constexpr double kMisfit = 0.15;

PredictSeconds seconds_of(StepPredictor& predictor) {
  return [&predictor](const RunOfTable& run) {
    return predictor.predict(run.model, run.layout).total;
  };
}

double percent(double share) {
  return 100 * share;
}

void print_halves(const MeasuredSteps& steps, const std::vector<Machine>& fits,
                  const Software& software) {
  std::printf("\n%zu steps of several nodes; constants fitted to random halves\n", steps.size());
  std::printf("seed  held-out error  cost of the layout chosen by model\n");
  double sum = 0;
  for (std::size_t seed = 0; seed < fits.size(); ++seed) {
    StepPredictor predictor(fits[seed], software);
    const double error = steps.split(seed).held_out.mean_error(seconds_of(predictor));
    sum += error;
    std::printf("%4zu  %13.1f%% ", seed, percent(error));
    for (const auto& choice : steps.choices(seconds_of(predictor))) {
      std::printf("  %s: %.1f%%", choice.group.c_str(), percent(choice.cost));
    }
    std::printf("\n");
  }
  std::printf("mean  %13.1f%%\n", percent(sum / static_cast<double>(fits.size())));
}

void print_worst(const MeasuredSteps& steps, StepPredictor predictor) {
  std::printf("\nwith the median constants: all misfits above %.0f%%\n", percent(kMisfit));
  for (const auto& row : steps.compare(seconds_of(predictor))) {
    if (std::abs(row.error()) < kMisfit) continue;
    std::printf("  %s, %s: %.2f s predicted, %.2f s measured, %+.0f%%\n", row.run.group.c_str(),
                row.run.layout.text().c_str(), row.predicted, row.measured, percent(row.error()));
  }
}

void print_single_node(const MeasuredSteps& steps, StepPredictor predictor) {
  std::map<std::string, std::vector<double>> errors;
  for (const auto& row : steps.compare(seconds_of(predictor))) {
    const Layout& layout = row.run.layout;
    errors["t " + std::to_string(layout.tensor) + ", d " + std::to_string(layout.data) + ", p " +
           std::to_string(layout.pipeline)]
        .push_back(row.error());
  }
  std::printf("\n%zu steps on one node, with these constants: mean of |error|, and of the error\n",
              steps.size());
  for (const auto& [name, list] : errors) {
    double sum = 0, magnitude = 0;
    for (const double error : list) {
      sum += error;
      magnitude += std::abs(error);
    }
    const auto count = static_cast<double>(list.size());
    std::printf("  %s: %5.1f%% %+6.1f%%  (%zu)\n", name.c_str(), percent(magnitude / count),
                percent(sum / count), list.size());
  }
}

void print_table(const PublishedTable& table, StepPredictor predictor, double one_gpu = 0) {
  std::printf("\n%s, %s\n%s on %s\n", table.name.c_str(), table.source.c_str(),
              predictor.software().name.c_str(), predictor.machine().name.c_str());
  const std::vector<double> values = predicted_values(table, predictor, one_gpu);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const PublishedRow& row = table.rows[i];
    std::printf("  %6.1f billion, %4d GPUs, %s: predicted %.4g, published %.4g, time %+.1f%%\n",
                row.billion, row.layout.ranks(), layout_of(row, predictor).text().c_str(),
                values[i], row.value, percent(time_error(table, i, values[i])));
  }
  std::printf("  mean error of the time: %.1f%%\n", percent(mean_error(table, values)));
}

// The error of each fit, and their median.
void print_fits(const PublishedTable& table, const std::vector<Machine>& fits,
                const Software& software) {
  std::vector<double> errors;
  for (const Machine& machine : fits) {
    StepPredictor predictor(machine, software);
    errors.push_back(mean_error(table, predicted_values(table, predictor)));
  }
  std::ranges::sort(errors);
  std::printf("  the six fits: %.1f%% to %.1f%%, median %.1f%%\n", percent(errors.front()),
              percent(errors.back()), percent((errors[2] + errors[3]) / 2));
}

void print_zero(const PublishedTable& table, const Machine& machine, const Software& software) {
  const PublishedRow& row = table.rows[1];
  const Machine fitted = fit_rate(machine, &Machine::network_bandwidth, software, row, row.value);
  std::printf(
      "\none constant, the bandwidth of a node, fitted to %.1f billion on %d GPUs: %.1f GB/s",
      row.billion, row.layout.ranks(), 1e-9 * fitted.network_bandwidth);
  print_table(table, StepPredictor(fitted, software));
  StepPredictor predictor(fitted, software);
  const std::vector<double> values = predicted_values(table, predictor);
  double sum = 0;
  for (std::size_t i = 0; i < values.size(); ++i) sum += std::abs(time_error(table, i, values[i]));
  std::printf("  mean of the other rows: %.1f%%\n",
              percent(sum / static_cast<double>(values.size() - 1)));
}

// The DGX-2H on which Megatron-LM of 2019 ran.
Machine print_v100(const std::vector<PublishedTable>& tables) {
  const PublishedTable& saturation = table_called(tables, "V100, saturation");
  const Software fused = read_software(saturation.software);
  const Machine machine = fit_saturation(read_machine("v100"), fused, saturation);
  print_table(saturation, StepPredictor(machine, fused));
  const Software software = read_software("megatron-2019");
  const PublishedTable& tensor = table_called(tables, "V100, tensor");
  constexpr double kOneGpu = 39;
  const Machine slower =
      fit_rate(machine, &Machine::product_rate, software, tensor.rows[0], kOneGpu);
  std::printf("\nrate of products such that one GPU has %.0f TFLOP/s: %.3f of the peak", kOneGpu,
              slower.product_rate);
  print_table(tensor, StepPredictor(slower, software), kOneGpu);
  print_table(table_called(tables, "V100, tensor and data"), StepPredictor(slower, software),
              kOneGpu);
  return slower;
}

// Writes `file`.json, with the constants of `start`.json and the fitted ones.
void write_machine(const std::filesystem::path& folder, const std::string& file, Machine machine,
                   const std::string& start, const FittedConstants& fitted,
                   const std::string& origin) {
  const std::filesystem::path path = folder / (file + ".json");
  const std::filesystem::path source = kMachines / (start + ".json");
  const Json before = parse_json(read_file(source), source.string());
  const auto origin_of = [&](const MachineConstant& constant) -> std::string {
    if (std::ranges::find(fitted, constant.value) != fitted.end()) return origin;
    const Json* const entry = before["constants"].find(constant.name);
    return entry == nullptr ? "default" : (*entry)["origin"].text();
  };
  write_file(path, machine_json(machine, origin_of).dump(2) + "\n");
  std::printf("\nwrote %s\n", path.c_str());
}

void check(const std::filesystem::path& vtrain, const std::string& output) {
  const Software software = read_software("megatron-2021");
  const MeasuredSteps multi(vtrain / "ground_truth_multi.csv");
  const std::vector<Machine> fits = fit_halves(read_machine("a100-sheet"), software, multi);
  Machine median = median_machine(fits);
  median.name = "DGX A100 (80 GB)";
  print_halves(multi, fits, software);
  print_worst(multi, StepPredictor(median, software));
  print_single_node(MeasuredSteps(vtrain / "ground_truth_single.csv"),
                    StepPredictor(median, software));
  const auto tables = read_published(kMachines / "published.json");
  for (const char* const name : {"weak scaling", "tensor, pipeline and data", "full recomputation",
                                 "selective recomputation"}) {
    const PublishedTable& table = table_called(tables, name);
    print_table(table, StepPredictor(median, read_software(table.software)));
    print_fits(table, fits, read_software(table.software));
  }
  print_zero(table_called(tables, "ZeRO-3"), median, read_software("deepspeed-zero3"));
  Machine v100 = print_v100(tables);
  v100.name += ", as fast as Megatron-LM of 2019";
  print_table(table_called(tables, "H100"),
              StepPredictor(read_machine("h100"), read_software("megatron-2024")));
  if (output.empty()) return;
  write_machine(output, "a100", median, "a100-sheet", fitted_constants(),
                "median of fits to six random halves of 109 steps of Megatron-DeepSpeed (vTrain), "
                "build/host/planner");
  write_machine(output, "v100-2019", v100, "v100",
                {&Machine::product_start, &Machine::collective_start, &Machine::product_rate},
                "starts: fitted to the table of Megatron-LM's README of 2020; product_rate: such "
                "that one GPU has the published 39 TFLOP/s; build/host/planner");
}

// A run of GPT-2 124M in measurements.jsonl.
struct ProfiledRun {
  double step_seconds = 0;  // of a run that was not profiled
  std::int64_t B = 0;
  std::vector<OperationTime> operations = {};
};

// By label.
std::map<std::string, ProfiledRun> read_profiles(const std::string& path) {
  std::map<std::string, ProfiledRun> runs;
  std::istringstream lines(read_file(path));
  for (std::string line; std::getline(lines, line);) {
    const Json json = parse_json(line, path);
    ProfiledRun& run = runs[json["label"].text()];
    if (json["type"].text() == "run") {
      run.step_seconds = 1e-3 * json["step_ms"].number();
      const Json& flags = json["flags"];
      for (std::size_t i = 0; i + 1 < flags.size(); ++i) {
        if (flags[i].text() == "--batch-size") run.B = std::stoll(flags[i + 1].text());
      }
    } else if (json["type"].text() == "profile") {
      run.operations.push_back({json["operation"].text(), 1e-3 * json["ms_per_step"].number(),
                                json.find("flop_per_s") != nullptr});
    }
  }
  return runs;
}

// Runs whose logits exist in pieces of 4096 rows, as by default.
void fit_profile(const std::string& path, const std::string& name, const std::string& output) {
  const std::map<std::string, ProfiledRun> runs = read_profiles(path);
  std::vector<ProfiledStep> steps;
  for (const auto& [label, run] : runs) {
    if (run.operations.empty() || label.find("all-rows") != label.npos) continue;
    ProfiledStep step{.layout = {.micro_batch = run.B}};
    add_operations(step, run.operations);
    steps.push_back(step);
  }
  const Software software = read_software("llmc");
  Machine machine = read_machine(name);
  fit_constants(machine, software, steps);
  const double attention = machine.attention_rate;
  std::printf("%zu profiled steps of GPT-2 124M, fitted: attention_rate %.4g\n", steps.size(),
              attention);
  StepPredictor predictor(machine, software);
  for (const auto& [label, run] : runs) {
    if (!run.operations.empty() || run.B == 0) continue;
    const double predicted = predictor.predict({}, {.micro_batch = run.B}).total;
    std::printf("  %s: %.2f ms predicted, %.2f ms measured, %+.1f%%\n", label.c_str(),
                1e3 * predicted, 1e3 * run.step_seconds, percent(predicted / run.step_seconds - 1));
  }
  if (output.empty()) return;
  machine.attention_rate = 0;  // that of this engine's kernels: in software/llmc.json
  write_machine(output, name, machine, name,
                {&Machine::product_rate, &Machine::product_start, &Machine::memory_bandwidth,
                 &Machine::layer_start, &Machine::optimizer_scale},
                "fitted to the profile of this engine's GPT-2 124M in bf16, " + path +
                    ", build/host/planner");
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  const bool fits_profile = !words.empty() && words[0] == "--profile";
  const std::size_t needed = fits_profile ? 3 : 1;
  if (words.size() != needed && words.size() != needed + 1) {
    std::fprintf(stderr,
                 "planner VTRAIN [FOLDER]\n"
                 "planner --profile MEASUREMENTS.jsonl MACHINE [FOLDER]\n");
    return 2;
  }
  const std::string output = words.size() > needed ? words.back() : "";
  try {
    fits_profile ? fit_profile(words[1], words[2], output) : check(words[0], output);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "planner: %s\n", error.what());
    return 1;
  }
  return 0;
}
