// The resources that every call on a model needs in addition to its data: the stream on which its
// work is queued, the matrix products, scratch memory, and the ranks of the run with their
// communication stream.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <utility>

#include "llmc/comm/ranks.h"
#include "llmc/device/device.h"
#include "llmc/device/phase_clock.h"
#include "llmc/nn/adapter_buffers.h"
#include "llmc/nn/fake_quantization.h"
#include "llmc/nn/output_observer.h"
#include "llmc/nn/tensor_group.h"
#include "llmc/offload/transfers.h"
#include "llmc/ops/gemm/matmul.h"

namespace llmc {

struct Context {
  Context() = default;
  explicit Context(const GemmOptions& options, Ranks ranks = {})
      : gemm(options), ranks(std::move(ranks)) {}
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  Stream stream;
  Gemm gemm;
  // Scratch memory that successive ops share. The owner of the context reserves the largest size
  // that any of its calls needs; a call that needs more throws.
  Tensor<float, 1> scratch;
  Ranks ranks;
  TensorGroup tensor{ranks};      // the ranks that compute each layer together
  FakeQuantization quantization;  // what passes quantize in quantization-aware training
  AdapterBuffers adapters;
  OutputReports outputs;  // of layers, for a check of every operation

  // The transfers of offloaded state; the first call creates them.
  Transfers& transfers() {
    if (!transfers_) transfers_ = std::make_unique<Transfers>();
    return *transfers_;
  }

  // Waits until no transfer is in progress. Throws nothing.
  void settle() {
    if (transfers_) transfers_->settle();
  }

  // Bytes that the transfers have moved: from and to host memory, from and to a disk.
  std::array<std::int64_t, 4> offload_bytes() const {
    if (!transfers_) return {};
    const OffloadBytes &host = transfers_->bytes(Place::host),
                       &disk = transfers_->bytes(Place::disk);
    return {host.to_device, host.from_device, disk.to_device, disk.from_device};
  }

  // The clock of later passes and communication; null: they are not timed.
  void time(PhaseClock* clock) {
    clock_ = clock;
    ranks.time(clock);
  }
  // Calls work(), which is timed as a phase of its own.
  template <class Work>
  void timed(Phase phase, const Work& work) {
    timed_phase(clock_, phase, stream, work);
  }

 private:
  std::unique_ptr<Transfers> transfers_;
  PhaseClock* clock_ = nullptr;
};

}  // namespace llmc
