// Batches in device memory, in several buffers, so that the next batch can be written while the
// device still works on the last ones.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "llmc/device/device.h"
#include "llmc/io/data/batches.h"
#include "llmc/nn/device_batch.h"
#include "llmc/nn/memory_plan.h"
#include "llmc/ops/token_buckets.h"

namespace llmc {

// A batch with everything that the host computes for it.
struct PreparedBatch {
  Batch batch;
  TokenBuckets buckets{};                      // for a backward pass; otherwise empty
  std::vector<std::int32_t> first_position{};  // (B) start position of each sequence; empty: 0
};

inline PreparedBatch prepare(Batch batch) {
  TokenBuckets buckets = make_token_buckets(batch.inputs);
  return {.batch = std::move(batch), .buckets = std::move(buckets)};
}

class BatchStage {
 public:
  // `buffers`: number of batches that are valid at the same time.
  BatchStage(std::int64_t B, std::int64_t T, int buffers, MemoryPlan& plan)
      : buffers_(static_cast<std::size_t>(buffers)) {
    for (Buffers& buffers : buffers_) plan.reserve("staging", buffers.device, capacity(B * T));
  }
  BatchStage(const BatchStage&) = delete;
  BatchStage& operator=(const BatchStage&) = delete;

  std::size_t buffers() const { return buffers_.size(); }

  // Copies a batch to the device in stream order. Inputs, targets and doc_start have B*T numbers
  // each; all except the inputs may be empty. The result is valid until its buffer is used again:
  // put() uses them in turn.
  DeviceBatch put(const PreparedBatch& prepared, Stream& stream) {
    const std::size_t buffer = next_;
    next_ = (next_ + 1) % buffers_.size();
    return put_into(buffer, prepared, stream);
  }
  // The same with a buffer of the caller's choice.
  DeviceBatch put_into(std::size_t buffer, const PreparedBatch& prepared, Stream& stream) {
    const auto& [host, token_buckets, first_position] = prepared;
    const std::int64_t rows = host.B * host.T;
    Buffers& buffers = buffers_[buffer];
    if (buffers.host.size() == 0) {
      buffers.host = PinnedBuffer<std::int32_t>(buffers.device.size());
    } else {
      buffers.copy_done.synchronize();
    }
    std::int64_t at = 0;
    const auto add = [&](const std::vector<std::int32_t>& values) {
      require(at + std::ssize(values) <= buffers.host.size(),
              "the batch is larger than its staging buffer");
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
    buffers.copy_done.record(stream);
    return batch;
  }

 private:
  struct Buffers {
    Tensor<std::int32_t, 1> device;
    PinnedBuffer<std::int32_t> host;  // allocated on first use
    Event copy_done;
  };

  // Tokens, targets, doc_start and bucket positions have `rows` numbers each. The distinct ids have
  // at most `rows`, their starts one more. Batches with first_position have no targets and no
  // doc_start.
  static std::int64_t capacity(std::int64_t rows) { return 6 * rows + 1; }

  std::vector<Buffers> buffers_;
  std::size_t next_ = 0;
};

}  // namespace llmc
