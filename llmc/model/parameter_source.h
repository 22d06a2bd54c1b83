// Where a model's weights and gradients are while it runs. The model asks for a block before it
// uses it and says when it is done; whoever shards, offloads or overlaps communication implements
// this, and the model knows nothing of it.
#pragma once

#include "llmc/model/parameters.h"

namespace llmc {

template <class T>
class ParameterSource {
 public:
  virtual ~ParameterSource() = default;

  // From acquire(block) to release(block) the weights of the block may be read, in stream order.
  virtual void acquire(int block) = 0;
  virtual void release(int block) = 0;
  // The backward pass has added to all gradients of the block, in stream order.
  virtual void gradients_ready(int block) = 0;

  virtual const T* weight(const ParameterSpec& spec) = 0;
  // fp32, added to; null: the parameter is frozen, no gradient is wanted.
  virtual float* gradient(const ParameterSpec& spec) = 0;
};

// Everything is always there, in two arrays laid out by the table.
template <class T>
class ResidentParameters final : public ParameterSource<T> {
 public:
  ResidentParameters(const T* weights, float* gradients)
      : weights_(weights), gradients_(gradients) {}

  void acquire(int) override {}
  void release(int) override {}
  void gradients_ready(int) override {}
  const T* weight(const ParameterSpec& spec) override { return weights_ + spec.offset; }
  float* gradient(const ParameterSpec& spec) override {
    return gradients_ != nullptr ? gradients_ + spec.offset : nullptr;
  }

 private:
  const T* weights_;
  float* gradients_;
};

}  // namespace llmc
