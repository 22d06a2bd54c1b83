#include <string>

#include "llmc/base/error.h"
#include "llmc/base/standard_output.h"
#include "llmc/config/fill_settings.h"
#include "llmc/config/train_rules.h"
#include "llmc/config/train_table.h"
#include "llmc/plan/default_batch.h"
#include "llmc/plan/search/plan_search.h"
#include "llmc/plan/search/plan_table.h"
#include "llmc/plan/search/print_layouts.h"
#include "llmc/plan/time/dtype_constants.h"

namespace llmc {

void print_layouts(const Request& request, RunFacts facts) {
  if (request.schedule.epochs && !facts.windows) facts.windows = 1;
  const RunConfig config =
      fill_settings(train_settings(), neutral_request(request), facts, facts.preset);
  StepPredictor predictor =
      predictor_in(config.precision.dtype,
                   read_machine(config.ranks.machine.empty() ? "h100" : config.ranks.machine),
                   read_software(config.ranks.software));
  if (predictor.machine().host_bandwidth > 0) facts.default_step_tokens = kGpuStepTokens;
  const PlanHeading heading{.ranks = facts.ranks,
                            .machine = predictor.machine().name,
                            .software = predictor.software().name,
                            .accuracy = predictor.software().accuracy,
                            .limit = memory_limit(predictor.machine(), config.ranks.gpu_memory),
                            .tokens = request.ranks.tokens};
  const PlanResult result = search_plan(request, facts, predictor, heading.limit,
                                        static_cast<std::size_t>(config.ranks.top));
  print_text(plan_table(result, heading));
  if (!config.ranks.plan_out.empty()) write_plan(config.ranks.plan_out, result, heading);
  if (result.num_fitting > 0) return;
  fail("no layout of " + std::to_string(facts.ranks) + " ranks fits",
       "more ranks, a smaller model or shorter sequences need less memory per rank");
}

}  // namespace llmc
