#include <bit>
#include <cstddef>
#include <string>

#include "llmc/base/file.h"
#include "llmc/base/notice.h"
#include "llmc/base/number_text.h"
#include "llmc/pipeline/chrome_trace.h"
#include "llmc/pipeline/csv.h"
#include "llmc/pipeline/page.h"
#include "llmc/pipeline/schedule.h"
#include "llmc/plan/schedule_dump.h"
#include "llmc/plan/search/layouts.h"
#include "llmc/plan/search/plan_search.h"
#include "llmc/plan/time/dtype_constants.h"
#include "llmc/plan/time/step_time.h"

namespace llmc {

PipelineTimeline gather_timeline(const std::vector<TimedPass>& own, const Pipeline& pipeline,
                                 const Mesh& mesh, Exchange& exchange) {
  std::vector<std::int64_t> numbers;
  for (const TimedPass& pass : own) {
    numbers.push_back(std::bit_cast<std::int64_t>(pass.begin));
    numbers.push_back(std::bit_cast<std::int64_t>(pass.end));
  }
  const std::vector<std::int64_t> all = exchange.all_gather(numbers);
  PipelineTimeline timeline;
  for (int rank = 0; rank < pipeline.shape.ranks; ++rank) {
    std::size_t next = numbers.size() * static_cast<std::size_t>(mesh.rank_at(rank, 0, 0, 0));
    const auto time = [&] { return std::bit_cast<double>(all[next++]); };
    std::vector<TimedPass>& passes = timeline.ranks.emplace_back();
    for (const PipelinePass& pass : pipeline.passes(rank)) {
      const double begin = time();
      passes.push_back({pass, begin, time()});
    }
  }
  return timeline;
}

namespace {

// In seconds, on the machine of --machine; empty without the flag.
struct PredictedTimeline {
  std::string name;  // "llmc on DGX H100"
  PipelineTimeline timeline;
};
std::optional<PredictedTimeline> predicted_timeline(const RunConfig& config) {
  if (config.ranks.machine.empty()) return {};
  const StepPredictor predictor =
      predictor_in(config.precision.dtype, read_machine(config.ranks.machine),
                   read_software(config.ranks.software));
  const Pipeline& pipeline = config.pipeline;
  return PredictedTimeline{
      .name = predictor.software().name + " on " + predictor.machine().name,
      .timeline = predictor.timeline(timed_model(config), layout_of(config), pipeline.bounds,
                                     OrderedSchedule(pipeline.schedule, pipeline.shape))};
}

PipelineTimeline in_milliseconds(PipelineTimeline timeline) {
  constexpr double kMilliseconds = 1000;
  const auto scale = [](auto& rows) {
    for (auto& row : rows) {
      for (auto& timed : row) {
        timed.begin *= kMilliseconds;
        timed.end *= kMilliseconds;
      }
    }
  };
  scale(timeline.ranks);
  scale(timeline.messages);
  return timeline;
}

// A row per pass: its rank, its name, and when it began and ended.
std::string measured_csv(const PipelineTimeline& timeline) {
  std::string text = "rank,pass,begin_ms,end_ms\n";
  for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    for (const TimedPass& t : timeline.ranks[rank]) {
      text += std::to_string(rank) + "," + t.pass.name() + "," +
              number_text("%.4f", t.begin - timeline.begin()) + "," +
              number_text("%.4f", t.end - timeline.begin()) + "\n";
    }
  }
  return text;
}

std::string percent(double fraction) {
  return number_text("%.1f", 100 * fraction) + "%";
}

std::string page_text(const PipelineShape& shape, const PipelineTimeline& computed,
                      const std::optional<PredictedTimeline>& predicted,
                      const std::optional<MeasuredTimeline>& measured) {
  std::vector<NamedTimeline> timelines = {
      {"Computed: every pass takes one step", "steps", computed}};
  if (predicted) {
    timelines.push_back(
        {"Predicted: " + predicted->name, "ms", in_milliseconds(predicted->timeline)});
  }
  if (measured) {
    timelines.push_back({"Measured: step " + std::to_string(measured->step) + " of the run", "ms",
                         measured->timeline});
  }
  return pipeline_page("Pipeline of " + std::to_string(shape.ranks) + " ranks, " +
                           std::to_string(shape.micro_batches) + " micro-batches, " +
                           std::to_string(shape.chunks) +
                           (shape.chunks == 1 ? " chunk" : " chunks") + " per rank",
                       shape, timelines);
}

// The mean time of a pass.
double mean_pass(const PipelineTimeline& timeline) {
  double busy = 0;
  std::size_t passes = 0;
  for (const auto& rank : timeline.ranks) {
    for (const TimedPass& t : rank) busy += t.end - t.begin;
    passes += rank.size();
  }
  return busy / static_cast<double>(passes);
}

// A planned pass takes the mean time of the measured ones, so both timelines have the same busy
// time; without these, it takes one millisecond.
std::string trace_text(const PipelineTimeline& computed,
                       const std::optional<PredictedTimeline>& predicted,
                       const std::optional<MeasuredTimeline>& measured) {
  constexpr double kMillisecond = 1000, kSecond = 1e6;
  std::vector<TracedTimeline> timelines = {{"planned", kMillisecond, computed}};
  if (measured) {
    timelines[0].microseconds = kMillisecond * mean_pass(measured->timeline);
    timelines.push_back({"measured", kMillisecond, measured->timeline});
  }
  if (predicted) timelines.push_back({"predicted", kSecond, predicted->timeline});
  return chrome_trace(timelines);
}

}  // namespace

void dump_schedule(const RunConfig& config, const std::optional<MeasuredTimeline>& measured) {
  const std::string& path = config.ranks.dump_schedule;
  if (path.empty()) return;
  const Pipeline& pipeline = config.pipeline;
  const PipelineTimeline computed = timeline_in_steps(pipeline.schedule, pipeline.shape);
  const std::optional<PredictedTimeline> predicted = predicted_timeline(config);
  std::string files = path;
  if (path.ends_with(".html")) {
    write_file(path, page_text(pipeline.shape, computed, predicted, measured));
  } else if (path.ends_with(".json")) {
    write_file(path, trace_text(computed, predicted, measured));
  } else {
    write_file(path, pipeline_csv(pipeline.schedule, pipeline.shape));
    if (measured) {
      const std::string second = path.substr(0, path.rfind('.')) + ".measured.csv";
      write_file(second, measured_csv(measured->timeline));
      files += " and " + second;
    }
  }
  Notice::print(
      "schedule: bubble " + percent(computed.bubble()) + " if all passes take equal time" +
      (predicted
           ? ", " + percent(predicted->timeline.bubble()) + " predicted for " + predicted->name
           : "") +
      (measured ? ", " + percent(measured->timeline.bubble()) + " measured in step " +
                      std::to_string(measured->step)
                : "") +
      ", written to " + files);
}

}  // namespace llmc
