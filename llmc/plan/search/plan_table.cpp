#include "llmc/plan/search/plan_table.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/base/number_text.h"

namespace llmc {

namespace {

constexpr double kGibibyte = 1 << 30;
constexpr double kDay = 24 * 3600, kHour = 3600;

const char* status_name(PlanStatus status) {
  switch (status) {
    case PlanStatus::fits:
      return "fits";
    case PlanStatus::slower:
      return "slower";
    case PlanStatus::too_large:
      return "does not fit";
    case PlanStatus::refused:
      return "refused";
  }
  return "";
}

double tokens_per_second(const PlanResult& result, const PlannedLayout& one) {
  return static_cast<double>(result.tokens_per_step) / one.time.total;
}

std::string share(double part, double total) {
  return number_text("%6.1f%%", 100 * part / total);
}

std::string row_text(const PlanResult& result, const PlannedLayout& one, std::size_t number,
                     const PlanHeading& heading) {
  const StepTime& time = one.time;
  std::string text = number_text("%4.0f", static_cast<double>(number)) +
                     number_text("%11.1f", 1e3 * time.total) +
                     number_text("%12.0f", tokens_per_second(result, one)) +
                     number_text("%8.2f", static_cast<double>(one.bytes) / kGibibyte) +
                     share(time.compute, time.total) + share(time.tensor, time.total) +
                     share(time.pipeline, time.total) + share(time.data, time.total) +
                     share(time.optimizer, time.total);
  if (heading.tokens) {
    const double seconds = *heading.tokens / tokens_per_second(result, one);
    text += number_text("%9.2f", seconds / kDay) +
            number_text("%12.0f", seconds / kHour * static_cast<double>(heading.ranks));
  }
  return text + "  " + flags_of(one.layout) + "\n";
}

std::string heading_text(const PlanResult& result, const PlanHeading& heading) {
  return "plan of " + std::to_string(heading.ranks) + " ranks: software " + heading.software +
         " on " + heading.machine +
         "\nmodel: " + number_text("%.3f", 1e-9 * result.model.parameters()) +
         " billion parameters, " + std::to_string(result.tokens_per_step) + " tokens per step, " +
         number_text("%.1f GiB per rank", static_cast<double>(heading.limit) / kGibibyte) +
         "\naccuracy of times: " + heading.accuracy +
         "\nmemory is what the allocator would reserve\n";
}

// The layout that would be fastest if it fitted or were allowed, and how many others there are.
std::string excluded_text(const PlanResult& result, PlanStatus status) {
  const auto is_such = [&](const PlannedLayout& one) { return one.status == status; };
  const auto count = std::ranges::count_if(result.layouts, is_such);
  if (count == 0) return "";
  const PlannedLayout& one = *std::ranges::find_if(result.layouts, is_such);
  std::string text = "  " + std::to_string(count);
  if (status == PlanStatus::slower) {
    return text + " are slower; the next takes at least " +
           number_text("%.1f ms: ", 1e3 * one.time.total) + flags_of(one.layout) + "\n";
  }
  if (status == PlanStatus::too_large) {
    return text + " would be as fast, but do not fit; the fastest needs " +
           number_text("%.2f GiB: ", static_cast<double>(one.bytes) / kGibibyte) +
           flags_of(one.layout) + "\n";
  }
  return text + " are refused; the fastest: " + flags_of(one.layout) + ": " + one.reason + "\n";
}

Json json_of(const PlanResult& result, const PlannedLayout& one) {
  Json json = Json::object();
  const Layout& layout = one.layout;
  json["status"] = status_name(one.status);
  json["reason"] = one.reason;
  json["tp"] = layout.tensor;
  json["sequence_parallel"] = layout.sequence_parallel;
  json["pp"] = layout.pipeline;
  json["pp_chunks"] = layout.chunks;
  json["dp"] = layout.data;
  json["zero"] = layout.zero;
  json["shard_group"] = layout.shard_ranks;
  json["batch_size"] = layout.micro_batch;
  json["grad_accum"] = layout.micro_batches;
  json["recompute"] = choice_name(layout.recompute);
  json["offload"] = layout.offloads_optimizer ? "optimizer" : "none";
  json["step_ms"] = 1e3 * one.time.total;
  json["is_lower_bound"] = one.status == PlanStatus::slower && one.bytes == 0;
  json["tokens_per_s"] = tokens_per_second(result, one);
  json["bytes"] = one.bytes;
  json["tensor_bytes"] = one.sent.tensor;
  json["pipeline_bytes"] = one.sent.pipeline;
  json["data_bytes"] = one.sent.data;
  json["compute_ms"] = 1e3 * one.time.compute;
  json["tensor_ms"] = 1e3 * one.time.tensor;
  json["pipeline_ms"] = 1e3 * one.time.pipeline;
  json["data_ms"] = 1e3 * one.time.data;
  json["optimizer_ms"] = 1e3 * one.time.optimizer;
  json["flags"] = flags_of(layout);
  return json;
}

Json json_of(const RefusedLayouts& refused) {
  Json json = Json::object();
  json["status"] = status_name(PlanStatus::refused);
  json["reason"] = refused.reason;
  json["flags"] = refused.layout;
  return json;
}

std::string csv_cell(const Json& value) {
  if (!value.is_string()) return value.dump();
  std::string text = value.text();
  for (std::size_t i = 0; (i = text.find('"', i)) != text.npos; i += 2) text.insert(i, 1, '"');
  return "\"" + text + "\"";
}

std::string csv_text(const PlanResult& result) {
  const Json names = json_of(result, PlannedLayout{});
  std::string text;
  for (const JsonMember& member : names.items()) text += (text.empty() ? "" : ",") + member.key;
  const auto add = [&](const Json& row) {
    std::string line;
    for (const JsonMember& member : names.items()) {
      const Json* const value = row.find(member.key);
      line += (&member == &names.items().front() ? "" : ",") +
              (value == nullptr ? std::string() : csv_cell(*value));
    }
    text += "\n" + line;
  };
  for (const PlannedLayout& one : result.layouts) add(json_of(result, one));
  for (const RefusedLayouts& refused : result.refused) add(json_of(refused));
  return text + "\n";
}

std::string json_text(const PlanResult& result, const PlanHeading& heading) {
  Json json = Json::object();
  json["machine"] = heading.machine;
  json["software"] = heading.software;
  json["accuracy"] = heading.accuracy;
  json["ranks"] = heading.ranks;
  json["parameters"] = result.model.parameters();
  json["tokens_per_step"] = result.tokens_per_step;
  json["limit_bytes"] = heading.limit;
  std::vector<Json> layouts;
  for (const PlannedLayout& one : result.layouts) layouts.push_back(json_of(result, one));
  for (const RefusedLayouts& refused : result.refused) layouts.push_back(json_of(refused));
  json["layouts"] = Json::from_list(std::move(layouts));
  return json.dump(1) + "\n";
}

}  // namespace

std::string plan_table(const PlanResult& result, const PlanHeading& heading) {
  std::string text = heading_text(result, heading);
  text += "\n         ms/step    tokens/s     GiB compute tensor   pipe   data  optim." +
          std::string(heading.tokens ? "     days   GPU hours" : "") + "  flags\n";
  for (std::size_t i = 0; i < result.num_fitting; ++i) {
    text += row_text(result, result.layouts[i], i + 1, heading);
  }
  if (result.num_fitting == 0) text += "  no layout fits\n";
  text += "\nnot ranked:\n";
  for (const PlanStatus status : {PlanStatus::slower, PlanStatus::too_large, PlanStatus::refused}) {
    text += excluded_text(result, status);
  }
  std::map<std::string, std::pair<int, std::string>> reasons;
  for (const RefusedLayouts& refused : result.refused) {
    auto& [count, example] = reasons[refused.reason];
    if (count++ == 0) example = refused.layout;
  }
  for (const auto& [reason, group] : reasons) {
    text += "  " + group.second +
            (group.first > 1 ? " and " + std::to_string(group.first - 1) + " others" : "") + ": " +
            reason + "\n";
  }
  return text;
}

void write_plan(const std::filesystem::path& path, const PlanResult& result,
                const PlanHeading& heading) {
  write_file(path, path.extension() == ".json" ? json_text(result, heading) : csv_text(result));
}

}  // namespace llmc
