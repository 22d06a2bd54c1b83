// Interface between a model and the storage of its weights and gradients. The model acquires a
// block before it uses it and releases it afterwards. Sharding, offloading and overlapped
// communication can implement this interface without a change to the model.
#pragma once

#include <cstdint>

#include "llmc/device/dtype.h"
#include "llmc/device/tensor.h"
#include "llmc/nn/parameter_table.h"

namespace llmc {

// A weight as its source stores it. Only int8 has `scales` and `sums`; its data are packed codes
// (ops/gemm/code_matrix.h).
struct WeightView {
  Dtype dtype = Dtype::fp32;
  const void* data = nullptr;
  const float* scales = nullptr;
  const std::int32_t* sums = nullptr;

  // Returns the values if the dtype is T; throws for any other dtype.
  template <class T>
  const T* as() const {
    require(dtype == kDtypeOf<T>, "a weight has another dtype than the operation that reads it");
    return static_cast<const T*>(data);
  }
};

// Block numbers (ParameterSpec::block): the embeddings are block 0, layer l is block l + 1, and the
// final norm is the block after the last layer. A head that is not tied to the embeddings is the
// block after that.
inline constexpr int kEmbeddingBlock = 0;
inline constexpr int kNoBlock = -1;
inline int layer_block(std::int64_t l) {
  return static_cast<int>(l) + 1;
}

class ParameterSource {
 public:
  virtual ~ParameterSource() = default;

  // The weights of the block may be read between acquire(block) and release(block), in stream
  // order. ParameterSpec::block numbers the blocks. `next`: the block that the pass acquires after
  // this one, as far as it knows.
  virtual void acquire(int block, int next = kNoBlock) = 0;
  virtual void release(int block) = 0;

  // A forward pass begins.
  virtual void forward_begins() {}
  // The backward pass begins. It adds to gradients from the head to the embeddings. A tied head is
  // the first to add to those of the embedding block, because it shares the token embeddings, and
  // the embedding is the last.
  virtual void backward_begins() {}
  // Gradients of the block are about to be added to, and no weights of it are read.
  virtual void acquire_gradients(int) {}
  // The backward pass has added to all gradients of the block, in stream order.
  virtual void gradients_ready(int block) = 0;

  virtual WeightView weight(const ParameterSpec& spec) = 0;
  // A number that is another one after the weights have changed. What was computed from them is
  // valid as long as it stays the same.
  virtual std::int64_t version() const { return 0; }
  // The fp32 gradient, to which passes add. Null: the parameter is frozen and has no gradient.
  virtual float* gradient(const ParameterSpec& spec) = 0;
  virtual bool has_gradient(const ParameterSpec& spec) { return gradient(spec) != nullptr; }
  // Whether no pass has added to the gradient in this step. If so, the caller writes it, and must
  // not read it before. A source may instead always return zeros from gradient().
  virtual bool begins_gradient(const ParameterSpec&) { return false; }
};

// Keeps everything in memory all the time, in two arrays laid out by the table: weights
// (table.stored_size()) and gradients (table.trainable_size()). The arrays must outlive this
// object; they may get their addresses after its construction.
template <class T>
class ResidentParameters final : public ParameterSource {
 public:
  // If `gradients` is null, all parameters are frozen.
  ResidentParameters(const Tensor<T, 1>& weights, const Tensor<float, 1>* gradients)
      : weights_(weights), gradients_(gradients) {}

  void acquire(int, int) override {}
  void release(int) override {}
  void gradients_ready(int) override {}
  WeightView weight(const ParameterSpec& spec) override {
    return {kDtypeOf<T>, weights_.data + spec.offset};
  }
  float* gradient(const ParameterSpec& spec) override {
    const bool frozen = !spec.trainable || gradients_ == nullptr || gradients_->data == nullptr;
    return frozen ? nullptr : gradients_->data + spec.offset;
  }

 private:
  const Tensor<T, 1>& weights_;
  const Tensor<float, 1>* gradients_;
};

}  // namespace llmc
