#include "llmc/plan/fit/published.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/json.h"

namespace llmc {

namespace {

constexpr std::int64_t kLargestMicroBatch = 16;

// Reads the members of one row.
class RowReader {
 public:
  RowReader(const Json& json, std::string place) : json_(json), place_(std::move(place)) {}

  double number(const char* key, std::optional<double> fallback = {}) const {
    const Json* const value = json_.find(key);
    if (value == nullptr && fallback) return *fallback;
    require(value != nullptr && value->is_number() && value->number() > 0,
            place_ + ": " + key + " is not a positive number");
    return value->number();
  }
  int integer(const char* key, std::optional<double> fallback = {}) const {
    return static_cast<int>(number(key, fallback));
  }
  bool flag(const char* key, bool fallback) const {
    const Json* const value = json_.find(key);
    return value == nullptr ? fallback : value->boolean();
  }
  Recompute recompute() const {
    const std::string& name = json_["recompute"].text();
    if (name == "none") return Recompute::none;
    if (name == "selective") return Recompute::selective;
    require(name == "full", place_ + ": recompute is '" + name + "'");
    return Recompute::full;
  }
  bool has(const char* key) const { return json_.contains(key); }
  const std::string& place() const { return place_; }

 private:
  const Json& json_;
  std::string place_;
};

PublishedRow read_row(const RowReader& row) {
  PublishedRow read{.billion = row.number("billion"),
                    .model = {.layers = row.integer("layers"),
                              .channels = row.integer("channels"),
                              .heads = row.integer("heads"),
                              .T = row.integer("T"),
                              .vocabulary = row.integer("vocabulary"),
                              .hidden = 4 * row.integer("channels"),
                              .tied_head = row.flag("tied", true)},
                    .layout = {.tensor = row.integer("tensor", 1),
                               .pipeline = row.integer("pipeline", 1),
                               .chunks = row.integer("chunks", 1),
                               .recompute = row.recompute(),
                               .sequence_parallel = row.flag("sequence_parallel", false)},
                    .batch = row.integer("batch"),
                    .micro_batch = {},
                    .value = row.number("value")};
  const int ranks = row.integer("ranks"), parts = read.layout.tensor * read.layout.pipeline;
  read.layout.data = ranks / parts;
  require(read.layout.ranks() == ranks && read.batch % read.layout.data == 0,
          row.place() + ": the layout does not divide its ranks or its batch");
  if (row.has("zero")) read.layout.zero = row.integer("zero");
  read.layout.shard_ranks = read.layout.zero > 0 ? read.layout.data : 1;
  if (row.has("micro_batch")) read.micro_batch = row.integer("micro_batch");
  return read;
}

PublishedUnit unit_of(const std::string& name, const std::string& source) {
  if (name == "s") return PublishedUnit::seconds;
  if (name == "TFLOP/s") return PublishedUnit::teraflops;
  require(name == "% of one GPU", source + ": no unit is called '" + name + "'");
  return PublishedUnit::percent;
}

Layout with_micro_batch(const PublishedRow& row, std::int64_t micro_batch) {
  Layout layout = row.layout;
  layout.micro_batch = micro_batch;
  layout.micro_batches = row.batch / layout.data / micro_batch;
  return layout;
}

}  // namespace

std::vector<PublishedTable> read_published(const std::filesystem::path& path) {
  const std::string source = path.string();
  const Json json = parse_json(read_file(path), source);
  std::vector<PublishedTable> tables;
  for (const Json& entry : json["tables"]) {
    PublishedTable table{.name = entry["name"].text(),
                         .source = entry["source"].text(),
                         .machine = entry["machine"].text(),
                         .software = entry["software"].text(),
                         .unit = unit_of(entry["unit"].text(), source),
                         .rows = {}};
    for (const Json& row : entry["rows"]) {
      const std::string number = std::to_string(table.rows.size() + 1);
      table.rows.push_back(
          read_row(RowReader(row, source + ": table '" + table.name + "', row " + number)));
    }
    tables.push_back(table);
  }
  return tables;
}

const PublishedTable& table_called(const std::vector<PublishedTable>& tables,
                                   const std::string& name) {
  const auto table = std::ranges::find(tables, name, &PublishedTable::name);
  require(table != tables.end(), "no published table is called '" + name + "'");
  return *table;
}

Layout layout_of(const PublishedRow& row, StepPredictor& predictor) {
  if (row.micro_batch) return with_micro_batch(row, *row.micro_batch);
  Layout best;
  double shortest = std::numeric_limits<double>::infinity();
  for (std::int64_t B = 1; B <= kLargestMicroBatch; B *= 2) {
    if (row.batch / row.layout.data % B != 0) continue;
    const Layout layout = with_micro_batch(row, B);
    const double seconds = predictor.predict(row.model, layout).total;
    if (seconds < shortest) best = layout;
    shortest = std::min(shortest, seconds);
  }
  return best;
}

double predicted_teraflops(const PublishedRow& row, StepPredictor& predictor) {
  const Layout layout = layout_of(row, predictor);
  const double seconds = predictor.predict(row.model, layout).total;
  return 1e-12 * step_flops(row.model, row.batch, row.layout.recompute == Recompute::full) /
         seconds / layout.ranks();
}

std::vector<double> predicted_values(const PublishedTable& table, StepPredictor& predictor,
                                     double one_gpu) {
  std::vector<double> values;
  for (const PublishedRow& row : table.rows) {
    if (table.unit == PublishedUnit::seconds) {
      values.push_back(predictor.predict(row.model, layout_of(row, predictor)).total);
    } else {
      const double rate = predicted_teraflops(row, predictor);
      values.push_back(table.unit == PublishedUnit::percent ? 100 * rate / one_gpu : rate);
    }
  }
  return values;
}

double time_error(const PublishedTable& table, std::size_t row, double predicted) {
  const double ratio = predicted / table.rows[row].value;
  return (table.unit == PublishedUnit::seconds ? ratio : 1 / ratio) - 1;
}

double mean_error(const PublishedTable& table, const std::vector<double>& predicted) {
  double sum = 0;
  for (std::size_t row = 0; row < predicted.size(); ++row) {
    sum += std::abs(time_error(table, row, predicted[row]));
  }
  return sum / static_cast<double>(predicted.size());
}

}  // namespace llmc
