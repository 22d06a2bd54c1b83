// Predicted step times: the fits to measured steps of others, published figures that no constant is
// fitted to, and what machine and software files may contain. The measured steps are vTrain's; the
// cases that need them are skipped without that folder.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "llmc/base/file.h"
#include "llmc/plan/fit/fit_machine.h"
#include "llmc/plan/fit/measured_steps.h"
#include "llmc/plan/fit/published.h"
#include "llmc/plan/search/layouts.h"
#include "llmc/plan/time/plan_file.h"
#include "llmc/train/measure/fit_constants.h"
#include "test/support.h"

using namespace llmc;
using namespace llmc_test;

namespace {

const std::filesystem::path kMachines = "scripts/machines";

std::filesystem::path measured_folder() {
  const char* const data = std::getenv("LLMC_DATA");
  return std::filesystem::path(data != nullptr ? data : "../shared/data") / "vtrain";
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// The error of a table with each machine, and their median.
double median_error(const PublishedTable& table, const std::vector<Machine>& machines) {
  std::vector<double> errors;
  for (const Machine& machine : machines) {
    StepPredictor predictor(machine, read_software(table.software));
    errors.push_back(mean_error(table, predicted_values(table, predictor)));
  }
  return median(errors);
}

}  // namespace

TEST_SUITE("planner") {
  TEST_CASE("fits to halves of measured steps predict the other halves and published figures") {
    const std::filesystem::path csv = measured_folder() / "ground_truth_multi.csv";
    if (!std::filesystem::exists(csv)) return skip("no " + csv.string());
    const MeasuredSteps steps(csv);
    CHECK(steps.size() == 109);
    const Software software = read_software("megatron-2021");
    const std::vector<Machine> fits = fit_halves(read_machine("a100-sheet"), software, steps);
    REQUIRE(fits.size() == 6);
    double sum = 0;
    for (std::size_t seed = 0; seed < fits.size(); ++seed) {
      StepPredictor predictor(fits[seed], software);
      const PredictSeconds seconds = [&](const RunOfTable& run) {
        return predictor.predict(run.model, run.layout).total;
      };
      const double error = steps.split(seed).held_out.mean_error(seconds);
      CHECK(error <= 0.09);
      sum += error;
      double cost = 0;
      const auto choices = steps.choices(seconds);
      for (const auto& choice : choices) cost += choice.cost;
      CHECK(choices.size() == 4);
      CHECK(cost / 4 <= 0.1);
    }
    CHECK(sum / 6 <= 0.07);
    const auto tables = read_published(kMachines / "published.json");
    CHECK(median_error(table_called(tables, "weak scaling"), fits) <= 0.05);
    CHECK(median_error(table_called(tables, "full recomputation"), fits) <= 0.05);
    CHECK(median_error(table_called(tables, "selective recomputation"), fits) <= 0.06);
    CHECK(median_error(table_called(tables, "tensor, pipeline and data"), fits) <= 0.05);
    // The file of the A100 has the medians of these fits.
    const Machine machine = read_machine("a100"), fitted = median_machine(fits);
    for (const auto constant : fitted_constants()) {
      CHECK(std::abs(machine.*constant / (fitted.*constant) - 1) <= 1e-6);
    }
  }

  TEST_CASE("the fit gets measured times only as the half of a split") {
    for (const char* const name : {"fit_machine.cpp", "minimize.cpp", "published.cpp"}) {
      const std::string text = read_file(std::filesystem::path("llmc/plan/fit") / name);
      for (const char* const word : {"ground_truth", ".compare(", ".choices(", "HeldOut"}) {
        CAPTURE(name);
        CAPTURE(word);
        CHECK(text.find(word) == text.npos);
      }
    }
    const std::string fit = read_file("llmc/plan/fit/fit_machine.cpp");
    CHECK(fit.find("steps.split(seed).fitted") != fit.npos);
    CHECK(fit.find("read_file") == fit.npos);
  }

  TEST_CASE("ZeRO-3 with one fitted bandwidth") {
    const auto tables = read_published(kMachines / "published.json");
    const PublishedTable& table = table_called(tables, "ZeRO-3");
    const Software software = read_software(table.software);
    const PublishedRow& row = table.rows[1];
    CHECK(row.billion == 174.6);
    CHECK(row.layout.ranks() == 768);
    StepPredictor predictor(
        fit_rate(read_machine("a100"), &Machine::network_bandwidth, software, row, row.value),
        software);
    const std::vector<double> values = predicted_values(table, predictor);
    CHECK(std::abs(values[1] / row.value - 1) <= 1e-6);
    double sum = 0;
    for (const std::size_t other : {0, 2, 3, 4, 5}) {
      sum += std::abs(time_error(table, other, values[other]));
    }
    CHECK(sum / 5 <= 0.1);
  }

  TEST_CASE("V100s: tensor parallelism, and 512 GPUs, from data sheets and another table") {
    const auto tables = read_published(kMachines / "published.json");
    const PublishedTable& saturation = table_called(tables, "V100, saturation");
    const Machine machine =
        fit_saturation(read_machine("v100"), read_software(saturation.software), saturation);
    const Software software = read_software("megatron-2019");
    const PublishedTable& tensor = table_called(tables, "V100, tensor");
    StepPredictor predictor(fit_rate(machine, &Machine::product_rate, software, tensor.rows[0], 39),
                            software);
    const std::vector<double> shares = predicted_values(tensor, predictor, 39);
    const double limits[] = {0.1, 6, 6, 3};
    for (std::size_t row = 0; row < shares.size(); ++row) {
      CAPTURE(row);
      CHECK(std::abs(shares[row] - tensor.rows[row].value) <= limits[row]);
    }
    const PublishedTable& data = table_called(tables, "V100, tensor and data");
    CHECK(data.rows[3].layout.ranks() == 512);
    CHECK(std::abs(predicted_values(data, predictor, 39)[3] - data.rows[3].value) <= 4);
  }

  TEST_CASE("a lower bound is one, and parts add up") {
    StepPredictor predictor(read_machine("h100"), read_software("llmc"));
    const LearningPart adapters{.all = 0.01, .blocks = 0, .adapters = 0.01, .has_embedding = false};
    Request typed;
    const LayoutSpace space = layout_space(
        typed, {.ranks = 32, .layers = 24, .heads = 16, .sequences = 256, .ranks_per_node = 8});
    CHECK(space.layouts.size() > 1000);
    for (const LearningPart& part : {LearningPart{}, adapters, {.all = 0.4, .first_layer = 14}}) {
      const TimedModel model{.layers = 24, .channels = 1024, .heads = 16, .learning = part};
      for (const Layout& layout : space.layouts) {
        const StepTime time = predictor.predict(model, layout);
        const StepTime bound = predictor.lower_bound(model, layout);
        const double sum = time.compute + time.tensor + time.pipeline + time.data + time.optimizer;
        const bool is_right = bound.total <= time.total * (1 + 1e-9) &&
                              std::abs(sum / time.total - 1) <= 1e-9 && time.pipeline >= -1e-12 &&
                              time.data >= 0 && layout.ranks() == 32 && layout.batch() == 256;
        if (!is_right) FAIL_CHECK(flags_of(layout) << ": " << bound.total << ", " << time.total);
      }
    }
  }

  TEST_CASE(
      "a matrix that does not learn has no gradient, and a frozen beginning no backward pass") {
    const StepPredictor predictor(read_machine("h100"), read_software("llmc"));
    const auto model = [](const LearningPart& learning) {
      return TimedModel{.layers = 24, .channels = 1024, .heads = 16, .learning = learning};
    };
    const Layout layout{.micro_batch = 4};
    const auto time = [&](const LearningPart& part) {
      return predictor.compute_time(model(part), layout);
    };
    const ComputeTime all = time({}), only_head = time({.blocks = 0}),
                      only_blocks = time({.has_embedding = false});
    const double blocks = all.products - only_head.products,
                 head = all.products - only_blocks.products;
    CHECK(all.products == doctest::Approx(3 * (blocks + head)));
    const ComputeTime upper_half = time({.first_layer = 12});
    CHECK(upper_half.products == doctest::Approx(2 * blocks + 3 * head));
    CHECK(upper_half.attention == doctest::Approx(all.attention * 2 / 3));
    const LearningPart adapters{.all = 0.01, .blocks = 0, .adapters = 0.01, .has_embedding = false};
    CHECK(time(adapters).products == doctest::Approx((1.01 + 1.02) * blocks + 2 * head));
    CHECK(predictor.optimizer_time(model(adapters), layout) ==
          doctest::Approx(0.01 * predictor.optimizer_time(model({}), layout)));
  }

  TEST_CASE("constants of a machine are found from the parts of its steps") {
    const Software software = read_software("llmc");
    Machine machine = read_machine("h100");
    machine.product_rate = 0.7;
    machine.product_start = 3e-5;
    machine.attention_rate = 0.3;
    machine.memory_bandwidth = 5e10;
    machine.layer_start = 2e-4;
    machine.optimizer_scale = 0.5;
    const StepPredictor predictor(machine, software);
    std::vector<ProfiledStep> steps;
    for (const std::int64_t channels : {128, 512, 1024, 4096}) {
      const TimedModel model{
          .layers = 2, .channels = channels, .heads = channels / 64, .hidden = 4 * channels};
      const Layout layout{.micro_batch = channels / 128};
      steps.push_back({.model = model,
                       .layout = layout,
                       .compute = predictor.compute_time(model, layout),
                       .update = predictor.optimizer_time(model, layout)});
    }
    Machine fitted = read_machine("h100");
    fit_constants(fitted, software, steps);
    for (const auto constant :
         {&Machine::product_rate, &Machine::product_start, &Machine::attention_rate,
          &Machine::memory_bandwidth, &Machine::layer_start, &Machine::optimizer_scale}) {
      CHECK(fitted.*constant == doctest::Approx(machine.*constant).epsilon(1e-3));
    }
  }

  TEST_CASE("steps of this engine that were measured on one GPU are predicted") {
    const Software software = read_software("llmc");
    // dev/results/2026-11-27-h100-aaa6bc3-profile: GPT-2 124M, to whose operations h100 is fitted.
    StepPredictor h100(read_machine("h100"), software);
    for (const auto& [B, milliseconds] :
         {std::pair(16, 34.80), std::pair(32, 65.30), std::pair(64, 126.39)}) {
      const double predicted = 1e3 * h100.predict({}, {.micro_batch = B}).total;
      CHECK(std::abs(predicted / milliseconds - 1) <= 0.03);
    }
    // dev/results/2026-11-27-h200-30b090d-memory: GPT-2 1558M, to which nothing is fitted.
    StepPredictor h200(read_machine("h200"), software);
    const TimedModel model{.layers = 48, .channels = 1600, .heads = 25, .hidden = 6400};
    for (const auto& [recompute, milliseconds] :
         {std::pair(Recompute::none, 102.9), std::pair(Recompute::selective, 105.3),
          std::pair(Recompute::full, 122.5)}) {
      const Layout layout{.micro_batch = 4, .recompute = recompute};
      CHECK(std::abs(1e3 * h200.predict(model, layout).total / milliseconds - 1) <= 0.1);
    }
    const Layout offloaded{.micro_batch = 4, .offloads_optimizer = true};
    CHECK(std::abs(1e3 * h200.predict(model, offloaded).total / 781.8 - 1) <= 0.1);
  }

  TEST_CASE("bytes that are counted replace those of the sizes of the model") {
    StepPredictor predictor(read_machine("h100"), read_software("llmc"));
    const TimedModel model{.layers = 8, .channels = 1024, .heads = 16};
    const Layout layout{
        .tensor = 2, .pipeline = 2, .data = 4, .zero = 1, .shard_ranks = 4, .micro_batches = 3};
    SentBytes sent{.ranks = {{.gradients = 100, .weights = 50, .scalars = 8},
                             {.gradients = 120, .tensor = 7, .pipeline = 5}},
                   .forward = {10, 20},
                   .backward = {30, 50},
                   .message = 1000};
    // Each of 3 micro-batches passes both stages, and a message goes each way.
    const GroupBytes bytes = predictor.simulated_bytes(layout, sent);
    CHECK(bytes.tensor == 3 * (20 + 50) + 7);
    CHECK(bytes.pipeline == 3 * 1000 + 5);
    CHECK(bytes.data == 158);
    const StepTime small = predictor.predict(model, layout, &sent);
    sent.ranks[0].gradients += 1e9;
    const StepTime more_data = predictor.predict(model, layout, &sent);
    CHECK(more_data.total - small.total ==
          doctest::Approx(more_data.data - small.data).epsilon(1e-9));
    CHECK(more_data.data > small.data);
    sent.forward[1] += 1e9;
    const StepTime more_sums = predictor.predict(model, layout, &sent);
    CHECK(more_sums.tensor - more_data.tensor ==
          doctest::Approx(3e9 / predictor.machine().node_bandwidth).epsilon(1e-9));
    sent.message += 1e9;
    CHECK(predictor.predict(model, layout, &sent).pipeline > more_sums.pipeline);
  }

  TEST_CASE("typed flags stay, and sizes that do not fit are refused with the reason") {
    Request typed;
    typed.ranks.tp = 4;
    typed.batch.batch_size = 2;
    typed.memory.recompute = Recompute::full;
    const SpaceSizes sizes{
        .ranks = 24, .layers = 6, .heads = 4, .sequences = 48, .ranks_per_node = 8};
    const LayoutSpace space = layout_space(typed, sizes);
    CHECK(!space.layouts.empty());
    for (const Layout& layout : space.layouts) {
      CHECK(layout.tensor == 4);
      CHECK(layout.micro_batch == 2);
      CHECK(layout.recompute == Recompute::full);
    }
    typed.ranks.tp = 3;
    const LayoutSpace none = layout_space(typed, sizes);
    CHECK(none.layouts.empty());
    REQUIRE(none.refused.size() == 1);
    CHECK(none.refused[0].reason == "it does not divide the 4 heads");
  }

  TEST_CASE("mistakes in files are reported with file and constant") {
    const TemporaryDirectory folder;
    const auto file = [&](const std::string& text) {
      write_file(folder.path() / "m.json", text);
      return complaint([&] { read_machine((folder.path() / "m.json").string()); });
    };
    const std::string whole = read_file(kMachines / "h200.json");
    CHECK(file(whole) == "");
    CHECK(contains(file("{}"), "m.json is not a machine file"));
    const auto without = [&](std::string name, const std::string& other) {
      std::string text = whole;
      return text.replace(text.find(name), name.size(), other);
    };
    CHECK(contains(file(without("\"memory\"", "\"memori\"")), "m.json: memory is missing"));
    CHECK(
        contains(file(without("141000000000.0", "-1")), "m.json: memory is not a positive number"));
    CHECK(contains(file(without("\"layer_start\"", "\"layer_stop\"")),
                   "m.json: no constant is called layer_stop"));
    CHECK(contains(complaint([] { plan_file("h300", "machine"); }), "no machine is called 'h300'"));
    CHECK(contains(complaint([] { plan_file("h300", "machine"); }), "h100, h200, v100, v100-2019"));
    CHECK(contains(complaint([&] { read_software((folder.path() / "m.json").string()); }),
                   "is not a software file"));
  }
}
