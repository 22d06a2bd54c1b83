// Matrix products on the GPU with cuBLASLt. Each kind of product has one plan, created at the first
// call and kept. It is chosen from the library's proposals, which depend only on its version and
// the GPU. A plan that splits K must first add ones correctly.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "llmc/base/notice.h"
#include "llmc/ops/gemm/gemm_cublaslt_plan.h"
#include "llmc/ops/random_fill.h"

namespace llmc {

class Gemm {
 public:
  explicit Gemm(const GemmOptions& options = {})
      : options_(options),
        workspace_(options.split_k == SplitK::always ? kSplitWorkspaceBytes : kWorkspaceBytes) {
    check_cublas(cublasLtCreate(&library_.handle), "cublasLtCreate");
  }

  template <class TO, class TI>
  void run(const GemmCall<TO, TI>& call, Stream& stream) {
    check_gemm(call);
    if (LaunchObserver* observer = stream.observer()) observer->on_library_call("matrix product");
    cublas::Plan& plan = plan_for(call);
    if (!plan.is_checked()) check_split(call, plan, stream);
    plan.run(call, selected_proposal(call, plan).algo, workspace_.data(), workspace_bytes(),
             library_, stream);
  }

  // Number of usable algorithms that the library proposes for this product.
  template <class TO, class TI>
  int num_proposals(const GemmCall<TO, TI>& call) {
    check_gemm(call);
    return static_cast<int>(plan_for(call).proposals().size());
  }

  // The algorithm that run() uses, in the library's numbers.
  template <class TO, class TI>
  std::string algorithm_text(const GemmCall<TO, TI>& call) {
    check_gemm(call);
    return cublas::proposal_text(selected_proposal(call, plan_for(call)));
  }

 private:
  // Split-K stores partial sums in the workspace: 16 slices of (768, 3072) in fp32 would take 144
  // MiB, 11 of (768, 768) take 25 MiB. The library does not propose plans that need more than the
  // workspace.
  static constexpr std::size_t kWorkspaceBytes = 32 << 20, kSplitWorkspaceBytes = 128 << 20;
  using Key = std::tuple<bool, bool, std::int64_t, std::int64_t, std::int64_t, bool, int, int, int>;

  template <class Call>
  const cublasLtMatmulHeuristicResult_t& selected_proposal(const Call& call,
                                                           const cublas::Plan& plan) const {
    const auto count = static_cast<int>(plan.proposals().size());
    if (count == 0) fail("cuBLASLt has no algorithm for a matrix product of " + sizes_text(call));
    if (options_.proposal >= count) {
      fail("cuBLASLt proposes no algorithm " + std::to_string(options_.proposal) +
               " for a matrix product of " + sizes_text(call),
           "use a number from 0 to " + std::to_string(count - 1));
    }
    return plan.proposals()[static_cast<std::size_t>(options_.proposal)];
  }

  // Replaces a plan that splits K, unless it sums K ones to exactly K: cuBLASLt is reported to have
  // dropped a part of K (gemm.h). fp32 sums reach K without rounding.
  template <class TO, class TI>
  void check_split(const GemmCall<TO, TI>& call, cublas::Plan& plan, Stream& stream) {
    plan.set_checked();
    if (plan.proposals().empty() || cublas::num_splits(selected_proposal(call, plan).algo) <= 1)
      return;
    try {
      if (sums_ones(call, plan, stream)) return;
      Notice::warn("cuBLASLt adds a matrix product of " + sizes_text(call) +
                   " in parts and gets a wrong sum of ones: it is computed in one part, slower");
    } catch (const Error& error) {
      Notice::print("a matrix product of " + sizes_text(call) +
                    " is computed in one part, which is slower, because it cannot be checked in "
                    "several: " +
                    error.what());
    }
    plan.use_unsplit(call, workspace_bytes(), library_);
  }

  template <class TO, class TI>
  bool sums_ones(GemmCall<TO, TI> call, cublas::Plan& plan, Stream& stream) {
    if constexpr (!std::is_same_v<TO, float>) {
      return true;  // may_split_k() allows no other result
    } else {
      const std::int64_t results = call.m * call.n, terms = call.k * std::max(call.m, call.n);
      Buffer<TI> ones(terms);  // both operands
      Buffer<float> sums(results);
      constant_fill<TI>(ones.data(), terms, 1.0f, stream);
      call.a = call.b = ones.data();
      call.c = sums.data();
      call.addend = nullptr;
      call.alpha = 1;
      call.beta = 0;
      plan.run(call, selected_proposal(call, plan).algo, workspace_.data(), workspace_bytes(),
               library_, stream);
      std::vector<float> result(static_cast<std::size_t>(results));
      copy_to_host(result.data(), sums.data(), results, stream);
      stream.synchronize();
      return std::ranges::all_of(result,
                                 [&](float sum) { return sum == static_cast<float>(call.k); });
    }
  }

  std::size_t workspace_bytes() const { return static_cast<std::size_t>(workspace_.size()); }

  template <class TO, class TI>
  cublas::Plan& plan_for(const GemmCall<TO, TI>& call) {
    const Key key{call.transpose_a,
                  call.transpose_b,
                  call.m,
                  call.n,
                  call.k,
                  call.bias != nullptr,
                  static_cast<int>(call.epilogue),
                  static_cast<int>(cublas::kDataType<TO>),
                  static_cast<int>(cublas::kDataType<TI>)};
    auto& plan = plans_[key];
    if (!plan) plan = std::make_unique<cublas::Plan>(call, options_, workspace_bytes(), library_);
    return *plan;
  }

  GemmOptions options_;
  Buffer<unsigned char> workspace_;
  cublas::Library library_;
  std::map<Key, std::unique_ptr<cublas::Plan>> plans_;
};

// The options of products in training. Other plans than the library's first choice are used on the
// generation of GPUs on which they were measured: right in every run, 1.01 to 1.22 times as fast
// (small tiles) and 11 to 13 times (split K, weight gradients of 768 x 768);
// dev/results/2026-11-27-h100-e06bf5f-profile.
inline GemmOptions training_gemm_options(bool allow_tf32 = false) {
  const bool measured = device_properties().compute_major == 9;
  return {.allow_tf32 = allow_tf32,
          .split_k = measured ? SplitK::if_idle : SplitK::never,
          .small_tiles = measured};
}

}  // namespace llmc
