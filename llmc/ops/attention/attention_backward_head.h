// The inputs of one head for the blocks of attention's backward kernels.
#pragma once

#include <cstdint>

#include "llmc/device/device.h"
#include "llmc/ops/attention/attention_layout.h"
#include "llmc/ops/attention/attention_row_terms.h"

namespace llmc {

// One head of one batch row: pointers to row 0. The rows of d_out are C elements apart.
template <class Element>
struct BackwardHead {
  const Element* d_out;
  const Element* qkv;  // q; k starts C elements after it, v 2C
  const float* lse_log2;
  const float* dot;
  Visibility visibility;

  __device__ BackwardHead(const Element* d_out_all, const Element* qkv_all, const RowTerms& terms,
                          const std::int32_t* doc_start, const AttentionShape& shape, int b, int h)
      : d_out(d_out_all + shape.out_offset(b, 0, h)),
        qkv(qkv_all + shape.qkv_offset(b, 0, h)),
        lse_log2(terms.lse_log2 + (b * shape.NH + h) * padded_rows(shape.T)),
        dot(terms.dot + (b * shape.NH + h) * padded_rows(shape.T)),
        visibility{doc_start == nullptr ? nullptr : doc_start + b * shape.T,
                   static_cast<int>(shape.T)} {}
};

}  // namespace llmc
