// Flash attention, backward, on tensor cores. With P recomputed tile by tile, S the scaled scores:
//     dV = P^T dO,   dP = dO V^T,   dS = P o (dP - D),   dQ = scale dS K,   dK = scale dS^T Q
// (D: attention_row_terms.h). Deterministic: every element of d_qkv is summed by one thread in a
// fixed order and written once.
//
// Two kernels share the work, and the two products they both need are done twice (7 instead of 5):
//  - one block per tile of keys, walking over queries, keeps dK and dV in registers. It forms
//    S^T = K Q^T and dP^T = V dO^T, whose accumulators are the A operands of P^T dO and dS^T Q;
//  - one block per tile of queries, walking over keys, keeps dQ in registers, as the forward does.
// A fused kernel (5 products) must hand dQ from block to block in a fixed order; it would take the
// place of both behind launch_flash_backward and needs nothing else from its caller.
#pragma once

#include <cstdint>

#include "llmc/device/device.h"
#include "llmc/ops/attention/attention_layout.h"
#include "llmc/ops/attention/attention_row_terms.h"
#include "llmc/ops/attention/flash_attention_backward_key.h"
#include "llmc/ops/attention/flash_attention_backward_query.h"
#include "llmc/ops/dropout.h"

namespace llmc {

template <class Element, bool kDropout>
void launch_flash_backward(Element* d_qkv, const Element* d_out, const Element* qkv,
                           const RowTerms& terms, const std::int32_t* doc_start,
                           const AttentionShape& shape, const Dropout& dropout, Stream& stream) {
  dispatch_head_tile(shape.HS, [&]<int kHeadTile>() {
    const float scale = attention_scale(shape.HS);
    using ByKey = FlashBackwardKeyTiling<Element, kHeadTile, kDropout>;
    launch(flash_attention_backward_key_kernel<Element, kHeadTile, kDropout>,
           Grid{ceil_div(shape.T, ByKey::kKeys), shape.NH, shape.B}, ByKey::kThreads,
           ByKey::kSharedBytes, stream, d_qkv, d_out, qkv, terms, doc_start, shape, scale, dropout);

    using ByQuery = FlashBackwardQueryTiling<Element, kHeadTile>;
    launch(flash_attention_backward_query_kernel<Element, kHeadTile, kDropout>,
           Grid{ceil_div(shape.T, ByQuery::kQueries), shape.NH, shape.B}, ByQuery::kThreads,
           ByQuery::kSharedBytes, stream, d_qkv, d_out, qkv, terms, doc_start, shape, scale,
           dropout);
  });
}

}  // namespace llmc
