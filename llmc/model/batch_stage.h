// Where batches lie in device memory. Two buffers in turn, so that the next batch can be written
// while the device still works on the last one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "llmc/device/device.h"
#include "llmc/io/data/batches.h"
#include "llmc/model/device_batch.h"
#include "llmc/model/memory_plan.h"
#include "llmc/ops/token_buckets.h"

namespace llmc {

// A batch with all that is computed on the host.
struct PreparedBatch {
  Batch batch;
  TokenBuckets buckets{};                      // for a backward pass; else empty
  std::vector<std::int32_t> first_position{};  // (B) where each sequence begins; empty: 0
};

inline PreparedBatch prepare(Batch batch) {
  TokenBuckets buckets = make_token_buckets(batch.inputs);
  return {.batch = std::move(batch), .buckets = std::move(buckets)};
}

class BatchStage {
 public:
  BatchStage(std::int64_t B, std::int64_t T, MemoryPlan& plan) {
    for (Buffers& buffers : buffers_) plan.reserve("staging", buffers.device, capacity(B * T));
  }
  BatchStage(const BatchStage&) = delete;
  BatchStage& operator=(const BatchStage&) = delete;

  // Copies a batch (B*T numbers each; all but the inputs may be empty) in stream order. The result
  // is valid until the call after the next.
  DeviceBatch put(const PreparedBatch& prepared, Stream& stream) {
    const auto& [host, token_buckets, first_position] = prepared;
    const std::int64_t rows = host.B * host.T;
    Buffers& buffers = buffers_[next_];
    next_ ^= 1;
    if (buffers.host.size() == 0) {
      buffers.host = PinnedBuffer<std::int32_t>(buffers.device.size());
    } else {
      buffers.copied.synchronize();
    }
    std::int64_t at = 0;
    const auto add = [&](const std::vector<std::int32_t>& values) {
      require(at + std::ssize(values) <= buffers.host.size(), "a batch larger than its stage");
      std::copy(values.begin(), values.end(), buffers.host.data() + at);
      const std::int32_t* device = buffers.device.data + at;
      at += std::ssize(values);
      return device;
    };
    DeviceBatch batch;
    batch.B = host.B;
    batch.T = host.T;
    batch.tokens = make_tensor(add(host.inputs), rows);
    if (!host.targets.empty()) batch.targets = make_tensor(add(host.targets), rows);
    if (!host.doc_start.empty()) batch.doc_start = add(host.doc_start);
    if (!first_position.empty()) batch.first_position = add(first_position);
    batch.buckets.token = add(token_buckets.token);
    batch.buckets.start = add(token_buckets.start);
    batch.buckets.position = add(token_buckets.position);
    batch.buckets.count = std::ssize(token_buckets.token);
    copy_to_device(buffers.device.data, static_cast<const std::int32_t*>(buffers.host.data()), at,
                   stream);
    buffers.copied.record(stream);
    return batch;
  }

 private:
  struct Buffers {
    Tensor<std::int32_t, 1> device;
    PinnedBuffer<std::int32_t> host;  // empty until its first use
    Event copied;
  };

  // Tokens, targets, documents, positions in buckets; and distinct ids with their starts, at most
  // as many and one more. Passes with first positions have neither targets nor documents.
  static std::int64_t capacity(std::int64_t rows) { return 6 * rows + 1; }

  Buffers buffers_[2];
  int next_ = 0;
};

}  // namespace llmc
