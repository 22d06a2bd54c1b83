// Matrix products on the GPU with cuBLASLt. Each kind of product has one plan, created at the first
// call and kept. By default it is the first usable proposal, which depends only on the library's
// version and the GPU, and it does not split K.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "llmc/ops/gemm/gemm_cublaslt_plan.h"

namespace llmc {

class Gemm {
 public:
  explicit Gemm(const GemmOptions& options = {})
      : options_(options), workspace_(options.split_k ? kSplitWorkspaceBytes : kWorkspaceBytes) {
    check_cublas(cublasLtCreate(&library_.handle), "cublasLtCreate");
  }

  template <class TO, class TI>
  void run(const GemmCall<TO, TI>& call, Stream& stream) {
    check_gemm(call);
    if (LaunchObserver* observer = stream.observer()) observer->on_library_call("matrix product");
    cublas::Plan& plan = plan_for(call);
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
  // MiB. The library does not propose plans that need more than the workspace.
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

}  // namespace llmc
