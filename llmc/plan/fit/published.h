// Published step times and rates of other programs (scripts/machines/published.json), and what is
// predicted for them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "llmc/plan/time/step_time.h"

namespace llmc {

struct PublishedRow {
  double billion = 0;  // parameters
  TimedModel model;
  Layout layout;  // without micro-batches
  std::int64_t batch = 1;
  std::optional<std::int64_t> micro_batch;  // empty: the one with the shortest predicted step
  double value = 0;                         // in the unit of the table
};

enum class PublishedUnit {
  seconds,
  teraflops,  // per second and GPU, counted with full recomputation, see step_flops()
  percent     // of the rate of one GPU, which the first row has
};

struct PublishedTable {
  std::string name, source;
  std::string machine, software;  // names of files
  PublishedUnit unit = PublishedUnit::teraflops;
  std::vector<PublishedRow> rows;
};

// Throws an Error that names the file and the row if something is missing or wrong.
std::vector<PublishedTable> read_published(const std::filesystem::path& path);

const PublishedTable& table_called(const std::vector<PublishedTable>& tables,
                                   const std::string& name);

// The layout of a row: without a published micro-batch, the power of two up to 16 with the shortest
// step.
Layout layout_of(const PublishedRow& row, StepPredictor& predictor);

// FLOP/s of each GPU of a row, in units of 1e12.
double predicted_teraflops(const PublishedRow& row, StepPredictor& predictor);

// The figure of each row in the unit of the table. `one_gpu`: TFLOP/s, for percent.
std::vector<double> predicted_values(const PublishedTable& table, StepPredictor& predictor,
                                     double one_gpu = 0);

// The mean of |published / predicted - 1| of rates, |predicted / published - 1| of times: the error
// of the predicted time.
double mean_error(const PublishedTable& table, const std::vector<double>& predicted);
double time_error(const PublishedTable& table, std::size_t row, double predicted);

}  // namespace llmc
