#include "llmc/config/resolve.h"

#include <string>
#include <string_view>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/config/fill_settings.h"
#include "llmc/config/learning_rate_schedule.h"
#include "llmc/config/model_rules.h"
#include "llmc/config/train_table.h"
#include "llmc/pipeline/csv.h"
#include "llmc/pipeline/schedule.h"

namespace llmc {

bool requests_training(const Request& request, const RunFacts& facts) {
  if (request.schedule.epochs) return true;
  return request.schedule.steps.value_or(facts.preset.schedule.steps.value_or(1)) > 0;
}

namespace {

// Throws an Error about the file of --pp-schedule.
[[noreturn]] void fail_schedule(const std::string& path, std::string text) {
  constexpr std::string_view kSubject = "pipeline schedule: ";  // of texts that name no file
  if (text.starts_with(kSubject)) text.erase(0, kSubject.size());
  const bool has_hint = text.find("\n  hint: ") != text.npos;
  fail("--pp-schedule " + path + ": " + text,
       has_hint ? "" : "start from a schedule that --dump-schedule FILE.csv writes");
}

}  // namespace

Pipeline pipeline_of(const RunConfig& config, std::int64_t layers) {
  if (config.ranks.pp == 1) return {};
  const PipelineShape shape = config.pipeline_shape();
  const std::string& path = config.ranks.pp_schedule;
  if (path.empty()) return make_pipeline(shape, layers, config.stage_layers());
  try {
    return make_pipeline(shape, layers, config.stage_layers(),
                         parse_pipeline_csv(read_file(path), "pipeline schedule"));
  } catch (const Error& error) {
    fail_schedule(path, error.marked_text());
  }
}

InputConfig resolve_inputs(const Request& request, const RunFacts& facts) {
  const RunConfig config = fill_settings(train_settings(), request, facts, facts.preset);
  if (!request.schedule.epochs) make_schedule(config.schedule);
  pipeline_of(config, config.model.layers);
  return config;
}

RunConfig resolve(const Request& request, const RunFacts& facts) {
  RunConfig config = fill_settings(train_settings(), request, facts, facts.preset);
  config.shape = model_shape(config, facts);
  make_schedule(config.schedule);
  config.pipeline = pipeline_of(config, config.shape.layers);
  return config;
}

}  // namespace llmc
