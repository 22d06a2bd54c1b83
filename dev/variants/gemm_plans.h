// Benchmark variants that run a product with other plans of the library than the one in use.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "dev/harness/op_case.h"
#include "llmc/ops/gemm/matmul.h"

namespace llmc_dev {

using llmc::SplitK;

struct GemmPlan {
  std::string variant;
  llmc::GemmOptions options;
};

// The library's next proposals after the one in use. With split_k: its proposals if it may split K.
inline std::vector<GemmPlan> other_plans(bool split_k) {
  constexpr int kProposals = 8;
  std::vector<GemmPlan> plans;
  for (int i = split_k ? 0 : 1; i < kProposals; ++i) {
    std::string variant = split_k ? "split_k" : "proposal";
    if (i > 0) variant.append("_").append(std::to_string(i));
    plans.push_back(
        {variant, {.split_k = split_k ? SplitK::always : SplitK::never, .proposal = i}});
  }
  return plans;
}

// Names of the variants of a case: "used" and, with `plans`, the other plans.
inline std::vector<std::string> variant_names(bool plans, bool split_k) {
  std::vector<std::string> variants = {"used"};
  if (!plans) return variants;
  for (const GemmPlan& plan : other_plans(split_k)) variants.push_back(plan.variant);
  return variants;
}

// Adds a variant if the library has such a plan; call_of(set) describes the product.
template <class CallOf>
void add_plan(OpRunner& runner, OpCase& c, const GemmPlan& plan, const CallOf& call_of) {
  if (!c.is_selected(plan.variant)) return;
  const auto gemm = std::make_shared<llmc::Gemm>(plan.options);
  const int num_proposals = gemm->num_proposals(call_of(0));
  if (plan.options.proposal >= num_proposals) {
    c.leave_out({plan.variant},
                "cuBLASLt proposes " + std::to_string(num_proposals) + " algorithms");
    return;
  }
  c.variant(plan.variant,
            [gemm, call_of, &runner](int i) { gemm->run(call_of(i), runner.stream()); },
            {.note = gemm->algorithm_text(call_of(0))});
}

template <class CallOf>
void add_other_plans(OpRunner& runner, OpCase& c, bool split_k, const CallOf& call_of) {
  const std::vector<GemmPlan> plans = other_plans(split_k);
  if (!llmc::kCudaTarget) {
    std::vector<std::string> names;
    for (const GemmPlan& plan : plans) names.push_back(plan.variant);
    return c.leave_out(names, "needs a GPU: the host's library has one plan per product");
  }
  for (const GemmPlan& plan : plans) add_plan(runner, c, plan, call_of);
}

// The variant "used": `run` is the model's own op, `call_of` describes the product inside it.
template <class CallOf, class Run>
void add_used(OpCase& c, llmc::Gemm& gemm, const CallOf& call_of, const Run& run) {
  if (c.is_selected("used")) c.variant("used", run, {.note = gemm.algorithm_text(call_of(0))});
}

}  // namespace llmc_dev
