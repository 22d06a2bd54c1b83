// Graphs of the GPU: stream capture.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "llmc/base/error.h"
#include "llmc/device/cuda/stream.h"

namespace llmc {

class Graph {
 public:
  Graph() = default;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  template <class Work>
  void capture(Stream& stream, const Work& work) {
    stream.require_not_recording("a graph cannot record a stream");
    executable_.reset();
    nodes_ = 0;
    Capture capture(stream);
    work();
    instantiate(capture.end());
  }

  void launch(Stream& stream) {
    require(!empty(), "a graph is launched, but nothing is recorded in it");
    check_cuda(cudaGraphLaunch(executable_.get(), stream.handle()), "cudaGraphLaunch");
  }

  std::int64_t nodes() const { return nodes_; }
  bool empty() const { return nodes_ == 0; }

 private:
  struct Destroy {
    void operator()(cudaGraph_t graph) const { cudaGraphDestroy(graph); }
    void operator()(cudaGraphExec_t executable) const { cudaGraphExecDestroy(executable); }
  };
  using Recording = std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, Destroy>;
  using Executable = std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, Destroy>;

  // Captures the stream, and disables its profiler, until end() or the end of the scope.
  class Capture {
   public:
    explicit Capture(Stream& stream) : stream_(stream), profiler_(stream.profiler()) {
      check_cuda(cudaStreamBeginCapture(stream.handle(), cudaStreamCaptureModeThreadLocal),
                 "cudaStreamBeginCapture");
      stream_.record(true);
      stream_.profile(nullptr);
    }
    ~Capture() {
      if (!stream_.is_recording()) return;
      Recording discarded;
      if (stop(discarded) != cudaSuccess) cudaGetLastError();  // work() has already failed
    }
    Capture(const Capture&) = delete;
    Capture& operator=(const Capture&) = delete;

    Recording end() {
      Recording recording;
      check_cuda(stop(recording), "cudaStreamEndCapture");
      return recording;
    }

   private:
    cudaError_t stop(Recording& recording) {
      stream_.record(false);
      stream_.profile(profiler_);
      cudaGraph_t graph = nullptr;
      const cudaError_t status = cudaStreamEndCapture(stream_.handle(), &graph);
      recording.reset(graph);
      return status;
    }

    Stream& stream_;
    Profiler* profiler_;
  };

  void instantiate(const Recording& recording) {
    std::size_t nodes = 0;
    check_cuda(cudaGraphGetNodes(recording.get(), nullptr, &nodes), "cudaGraphGetNodes");
    cudaGraphExec_t executable = nullptr;
    check_cuda(cudaGraphInstantiateWithFlags(&executable, recording.get(), 0),
               "cudaGraphInstantiate");
    executable_.reset(executable);
    nodes_ = static_cast<std::int64_t>(nodes);
  }

  Executable executable_;
  std::int64_t nodes_ = 0;
};

}  // namespace llmc
