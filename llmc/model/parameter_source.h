// Where a model's weights and gradients are while it runs. The model asks for a block before it
// uses it and reports when it is done with it. Sharding, offloading and overlapped communication
// are implementations of this interface; the model is the same for all of them.
#pragma once

#include <cstdint>

#include "llmc/device/dtype.h"
#include "llmc/device/tensor.h"
#include "llmc/model/parameters.h"

namespace llmc {

// A weight as its source stores it. `scales` belong to quantized dtypes; float dtypes have none.
struct WeightView {
  Dtype dtype = Dtype::fp32;
  const void* data = nullptr;
  const float* scales = nullptr;

  // The values of a weight of type T; throws for any other dtype.
  template <class T>
  const T* as() const {
    require(dtype == kDtypeOf<T>, "a weight has another dtype than the operation that reads it");
    return static_cast<const T*>(data);
  }
};

// Numbers of blocks (ParameterSpec::block): the embeddings are block 0, layer l is block l + 1, and
// the final norm is the block after the last layer.
inline constexpr int kEmbeddingBlock = 0;
inline int layer_block(std::int64_t l) {
  return static_cast<int>(l) + 1;
}

class ParameterSource {
 public:
  virtual ~ParameterSource() = default;

  // The weights of the block may be read between acquire(block) and release(block), in stream
  // order. ParameterSpec::block numbers the blocks.
  virtual void acquire(int block) = 0;
  virtual void release(int block) = 0;
  // The backward pass has added to all gradients of the block, in stream order.
  virtual void gradients_ready(int block) = 0;

  virtual WeightView weight(const ParameterSpec& spec) = 0;
  // fp32, added to; null: the parameter is frozen and no gradient is computed.
  virtual float* gradient(const ParameterSpec& spec) = 0;
};

// Everything is in memory all the time, in two arrays laid out by the table. The arrays outlive
// this object; they may get their addresses after its construction.
template <class T>
class ResidentParameters final : public ParameterSource {
 public:
  // `gradients` null: all parameters are frozen.
  ResidentParameters(const Tensor<T, 1>& weights, const Tensor<float, 1>* gradients)
      : weights_(weights), gradients_(gradients) {}

  void acquire(int) override {}
  void release(int) override {}
  void gradients_ready(int) override {}
  WeightView weight(const ParameterSpec& spec) override {
    return {kDtypeOf<T>, weights_.data + spec.offset};
  }
  float* gradient(const ParameterSpec& spec) override {
    const bool frozen = gradients_ == nullptr || gradients_->data == nullptr;
    return frozen ? nullptr : gradients_->data + spec.offset;
  }

 private:
  const Tensor<T, 1>& weights_;
  const Tensor<float, 1>* gradients_;
};

}  // namespace llmc
