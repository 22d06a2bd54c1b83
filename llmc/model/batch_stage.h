// Where batches lie in device memory. Two places in turn, so that the next batch can be written
// while the device still works on the last one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "llmc/device/device.h"
#include "llmc/io/data/batches.h"
#include "llmc/model/gpt2.h"
#include "llmc/model/memory_plan.h"
#include "llmc/ops/token_buckets.h"

namespace llmc {

// A batch with all that is worked out on the host.
struct PreparedBatch {
  Batch batch;
  TokenBuckets buckets;
};

inline PreparedBatch prepare(Batch batch) {
  TokenBuckets buckets = make_token_buckets(batch.inputs);
  return {std::move(batch), std::move(buckets)};
}

class BatchStage {
 public:
  BatchStage(std::int64_t B, std::int64_t T, MemoryPlan& plan) {
    for (Place& place : places_) {
      plan.reserve("staging", place.device, capacity(B * T));
      place.host = PinnedBuffer<std::int32_t>(capacity(B * T));
    }
  }
  BatchStage(const BatchStage&) = delete;
  BatchStage& operator=(const BatchStage&) = delete;

  // Copies a batch (B*T numbers each; targets and doc_start may be empty) in stream order. What it
  // returns holds until the call after the next.
  DeviceBatch put(const PreparedBatch& prepared, Stream& stream) {
    const auto& [host, buckets] = prepared;
    const std::int64_t rows = host.B * host.T;
    Place& place = places_[next_];
    next_ ^= 1;
    if (place.used) place.copied.synchronize();
    std::int64_t at = 0;
    const auto add = [&](const std::vector<std::int32_t>& values) {
      require(at + static_cast<std::int64_t>(values.size()) <= place.host.size(),
              "a batch larger than its stage");
      std::copy(values.begin(), values.end(), place.host.data() + at);
      const std::int32_t* there = place.device.data + at;
      at += static_cast<std::int64_t>(values.size());
      return there;
    };
    DeviceBatch batch;
    batch.B = host.B;
    batch.T = host.T;
    batch.tokens = make_tensor(add(host.inputs), rows);
    if (!host.targets.empty()) batch.targets = make_tensor(add(host.targets), rows);
    if (!host.doc_start.empty()) batch.doc_start = add(host.doc_start);
    batch.buckets.token = add(buckets.token);
    batch.buckets.start = add(buckets.start);
    batch.buckets.position = add(buckets.position);
    batch.buckets.count = static_cast<std::int64_t>(buckets.token.size());
    copy_to_device(place.device.data, static_cast<const std::int32_t*>(place.host.data()), at,
                   stream);
    place.copied.record(stream);
    place.used = true;
    return batch;
  }

  // The same of inputs and targets alone.
  DeviceBatch put(const std::vector<std::int32_t>& inputs, const std::vector<std::int32_t>& targets,
                  std::int64_t B, std::int64_t T, Stream& stream) {
    return put(prepare({B, T, inputs, targets, {}}), stream);
  }

 private:
  struct Place {
    Tensor<std::int32_t, 1> device;
    PinnedBuffer<std::int32_t> host;
    Event copied;
    bool used = false;
  };

  // Tokens, targets, documents, positions; and distinct ids with their starts, at most as many and
  // one more.
  static std::int64_t capacity(std::int64_t rows) { return 6 * rows + 1; }

  Place places_[2];
  int next_ = 0;
};

}  // namespace llmc
