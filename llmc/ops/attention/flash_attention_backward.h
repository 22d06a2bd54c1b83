// Flash attention, backward, on tensor cores. P is recomputed tile by tile; S are the scaled
// scores:
//     dV = P^T dO,   dP = dO V^T,   dS = P o (dP - D),   dQ = scale dS K,   dK = scale dS^T Q
// D is explained in attention_row_terms.h; o is the element-wise product. Deterministic: every
// element of d_qkv is summed by one thread in a fixed order and written once.
//
// Two kernels share the work. Both compute the two products that both need (7 products instead of
// 5):
//  - one block per tile of keys iterates over queries and keeps dK and dV in registers. It computes
//    S^T = K Q^T and dP^T = V dO^T, whose accumulators are the A operands of P^T dO and dS^T Q;
//  - one block per tile of queries iterates over keys and keeps dQ in registers, like the forward
//    kernel.
//
// A fused kernel (5 products) must pass dQ from block to block in a fixed order. It could replace
// both in launch_flash_backward and needs nothing else from the caller.
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
                           const AttentionShape& shape, float scale, const Dropout& dropout,
                           Stream& stream) {
  dispatch_head_tile(shape.HS, [&]<int kHeadTile>() {
    using KeyTiling = FlashBackwardKeyTiling<Element, kHeadTile, kDropout>;
    launch(flash_attention_backward_key_kernel<Element, kHeadTile, kDropout>,
           Grid{ceil_div(shape.T, KeyTiling::kKeys), shape.NH, shape.B}, KeyTiling::kThreads,
           KeyTiling::kSharedBytes, stream, d_qkv, d_out, qkv, terms, doc_start, shape, scale,
           dropout);

    using QueryTiling = FlashBackwardQueryTiling<Element, kHeadTile>;
    launch(flash_attention_backward_query_kernel<Element, kHeadTile, kDropout>,
           Grid{ceil_div(shape.T, QueryTiling::kQueries), shape.NH, shape.B}, QueryTiling::kThreads,
           QueryTiling::kSharedBytes, stream, d_qkv, d_out, qkv, terms, doc_start, shape, scale,
           dropout);
  });
}

}  // namespace llmc
