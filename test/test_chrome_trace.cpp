// Traces: what chrome://tracing and Perfetto read.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "llmc/base/json.h"
#include "llmc/base/trace_events.h"
#include "llmc/pipeline/chrome_trace.h"
#include "llmc/pipeline/timeline.h"
#include "test/support.h"

using namespace llmc;
using namespace llmc_test;

TEST_SUITE_BEGIN("chrome_trace");

TEST_CASE(
    "a trace has a process per rank of each timeline, with the times of passes and messages") {
  const PipelineShape shape{2, 2, 2};
  const PassCosts costs{.pass = [](const PipelinePass&) { return 2; }, .message = 0.5};
  const PipelineTimeline planned = pipeline_timeline(pipeline_schedule(shape), shape, costs);
  PipelineTimeline measured = timeline_in_steps(pipeline_schedule(shape), shape);
  for (auto& rank : measured.ranks) {
    for (TimedPass& t : rank) t.begin += 7, t.end += 7;
  }
  const Json trace =
      parse_json(chrome_trace({{"planned", 10, planned}, {"measured", 1000, measured}}), "trace");
  std::vector<std::string> processes;
  std::map<std::string, int> threads, boxes;
  std::map<std::pair<std::int64_t, std::int64_t>, double> free_from;
  for (const Json& event : trace["traceEvents"]) {
    const std::string kind = event["ph"].text();
    const std::int64_t process = json_size(event["pid"], "pid"),
                       row = json_size(event["tid"], "tid");
    if (kind == "M") {
      const Json* name = event["args"].find("name");
      if (event["name"].text() == "process_name") processes.push_back(name->text());
      if (event["name"].text() == "thread_name") ++threads[name->text()];
      continue;
    }
    CHECK(kind == "X");
    ++boxes[event["cat"].text()];
    const double begin = event["ts"].number(), duration = event["dur"].number();
    CHECK(begin >= free_from[{process, row}]);
    free_from[{process, row}] = begin + duration;
    CHECK(duration == (row > 0 ? 5 : process % 2 == 0 ? 20 : 1000));
    const std::string name = event["name"].text();
    const auto number = [&](const char* key) {
      return std::to_string(json_size(event["args"][key], key));
    };
    CHECK((name == number("stage") + "F" + number("micro_batch") ||
           name == number("stage") + "B" + number("micro_batch")));
    if (process == 2 && name == "1F0") CHECK(begin == (row == 0 ? 25 : 45));
    if (process == 1 && name == "0F0") CHECK(begin == 0);
  }
  CHECK(processes == std::vector<std::string>{"rank 0, planned", "rank 0, measured",
                                              "rank 1, planned", "rank 1, measured"});
  CHECK(threads == std::map<std::string, int>{
                       {"compute", 4}, {"messages: activations", 2}, {"messages: gradients", 2}});
  // Two timelines of 4 stages and 2 micro-batches; 3 of the 4 stages send in each direction.
  CHECK(boxes == std::map<std::string, int>{{"forward", 16}, {"backward", 16}, {"message", 12}});
}

TEST_CASE("a trace has the names and values of its events, one per line") {
  TraceEvents events;
  events.name_process(3, "rank \"3\"");
  events.add({.process = 3,
              .thread = 1,
              .name = "a\\b",
              .category = "c",
              .begin = 1.5004,
              .end = 1.7496,
              .args = {{"text", "x"}, {"number", 7}}});
  const std::string text = events.text();
  const Json trace = parse_json(text, "trace", KeyOrder::as_written);
  const Json expected{
      {"name", "a\\b"}, {"cat", "c"}, {"ph", "X"},   {"pid", 3},
      {"tid", 1},       {"ts", 1.5},  {"dur", 0.25}, {"args", Json{{"text", "x"}, {"number", 7}}}};
  CHECK(trace["traceEvents"].size() == 3);
  CHECK(trace["traceEvents"][0]["args"]["name"].text() == "rank \"3\"");
  CHECK(trace["traceEvents"][2] == expected);
  CHECK(std::ranges::count(text, '\n') == 2 + 3);
  CHECK(parse_json(TraceEvents().text(), "empty")["traceEvents"].size() == 0);
}

TEST_SUITE_END();
