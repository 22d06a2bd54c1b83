#include <type_traits>

#include "llmc/ops/gemm/invariant_gemm_generated.h"
#include "llmc/ops/gemm/invariant_gemm_int8_generated.h"
#include "llmc/ops/gemm/invariant_gemm_int8_prompt.h"
#include "llmc/ops/gemm/invariant_gemm_kernels.h"
#include "llmc/ops/gemm/invariant_gemm_prompt.h"
#include "llmc/ops/instantiate.h"

namespace llmc {

template <class T, class TO, class KV>
void launch_invariant_gemm(const InvariantGemmCall<T, TO, KV>& call, Stream& stream) {
  const auto launch_kind = [&]<bool kLogits>() {
    const bool is_prompt = call.kind == RowKind::prompt;
    if (call.codes.codes != nullptr) {
      return is_prompt ? row_kernels::launch_prompt_codes<kLogits>(call, stream)
                       : row_kernels::launch_generated_codes<kLogits>(call, stream);
    }
    if (is_prompt) {
      row_kernels::launch_prompt<kLogits>(call, stream);
    } else {
      row_kernels::launch_generated<kLogits>(call, stream);
    }
  };
  if constexpr (std::is_same_v<TO, float> && std::is_same_v<KV, T>) {
    if (call.epilogue == RowEpilogue::logits) return launch_kind.template operator()<true>();
  }
  if constexpr (std::is_same_v<TO, T>) launch_kind.template operator()<false>();
}

LLMC_INSTANTIATE_PRODUCTS(launch_invariant_gemm)

}  // namespace llmc
