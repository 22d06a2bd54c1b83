// The weights and gradients of a training state, as a model sees them.
#pragma once

#include "llmc/nn/parameter_source.h"
#include "llmc/parallel/base_codes.h"
#include "llmc/parallel/gradient_buckets.h"
#include "llmc/parallel/weight_buckets.h"

namespace llmc {

template <class T>
class ShardedParameters final : public ParameterSource {
 public:
  // Passes run on `compute`. Without gradients (null) all parameters are frozen.
  ShardedParameters(WeightBuckets<T>& weights, const BaseCodes& codes, GradientBuckets* gradients,
                    Stream& compute)
      : weights_(weights), codes_(codes), gradients_(gradients), compute_(compute) {}

  void acquire(int block, int next) override {
    weights_.acquire(block, next, compute_);
    if (is_backward_ && next != kNoBlock) gradients_->prefetch(next);
  }
  void release(int) override {}
  void forward_begins() override { is_backward_ = false; }
  void backward_begins() override { is_backward_ = gradients_ != nullptr; }
  void gradients_ready(int block) override {
    if (gradients_ != nullptr) gradients_->ready(block);
  }
  WeightView weight(const ParameterSpec& spec) override {
    if (spec.is_code) return codes_.view(spec);
    return {kDtypeOf<T>, weights_.whole(spec)};
  }
  std::int64_t version() const override { return weights_.version(); }
  float* gradient(const ParameterSpec& spec) override {
    return gradients_ == nullptr ? nullptr : gradients_->gradient(spec);
  }
  bool begins_gradient(const ParameterSpec& spec) override {
    return gradients_ != nullptr && gradients_->begins(spec);
  }
  bool has_gradient(const ParameterSpec& spec) override {
    return gradients_ != nullptr && spec.trainable;
  }

 private:
  WeightBuckets<T>& weights_;
  const BaseCodes& codes_;
  GradientBuckets* gradients_;
  Stream& compute_;
  bool is_backward_ = false;
};

}  // namespace llmc
