// CUDA streams and events.
#pragma once

#include <cuda_runtime.h>

#include <source_location>
#include <string>

#include "llmc/base/error.h"
#include "llmc/device/launch_observer.h"

namespace llmc {

inline void check_cuda(cudaError_t status, const char* call,
                       std::source_location location = std::source_location::current()) {
  if (status == cudaSuccess) return;
  std::string hint;
  if (status == cudaErrorMemoryAllocation) hint = "use a smaller batch, sequence or model";
  if (status == cudaErrorNoKernelImageForDevice)
    hint = "rebuild with CUDA_ARCH set to the architecture of this GPU";
  fail(std::string(call) + " failed at " + location.file_name() + ":" +
           std::to_string(location.line()) + ": " + cudaGetErrorName(status) + " (" +
           cudaGetErrorString(status) + ")",
       hint, location);
}

class Event;
class Profiler;

class Stream {
 public:
  Stream() {
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
  }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  cudaStream_t handle() const { return stream_; }
  void synchronize() {
    require_not_recording("the host cannot wait for a stream");
    check_cuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  }
  bool idle() {
    require_not_recording("the host cannot query a stream");
    const cudaError_t status = cudaStreamQuery(stream_);
    if (status == cudaErrorNotReady) {
      cudaGetLastError();  // it must not become the error of a later launch
      return false;
    }
    check_cuda(status, "cudaStreamQuery");
    return true;
  }
  void wait(const Event& event);

  // Set while a graph captures the stream (graph.h).
  void record(bool recording) { is_recording_ = recording; }
  bool is_recording() const { return is_recording_; }
  // Throws an Error that begins with `what` if a graph records the stream.
  void require_not_recording(const char* what) const {
    require(!is_recording_, std::string(what) + " while a graph records it");
  }

  // Calls `observer` before each later launch on this stream; null disables it.
  void observe(LaunchObserver* observer) { observer_ = observer; }
  LaunchObserver* observer() const { return observer_; }

  Profiler* profiler() const { return profiler_; }
  void profile(Profiler* profiler) { profiler_ = profiler; }

 private:
  cudaStream_t stream_ = nullptr;
  LaunchObserver* observer_ = nullptr;
  Profiler* profiler_ = nullptr;
  bool is_recording_ = false;
};

inline cudaStream_t native_stream(const Stream& stream) {
  return stream.handle();
}

class Event {
 public:
  Event() { check_cuda(cudaEventCreate(&event_), "cudaEventCreate"); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(Stream& stream) {
    stream.require_not_recording("an event cannot be recorded on a stream");
    check_cuda(cudaEventRecord(event_, stream.handle()), "cudaEventRecord");
  }
  void synchronize() { check_cuda(cudaEventSynchronize(event_), "cudaEventSynchronize"); }

  // Any thread may call it, also while another one captures a graph.
  bool has_passed(int gpu) const {
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaThreadExchangeStreamCaptureMode(&mode);
    cudaSetDevice(gpu);
    const cudaError_t status = cudaEventQuery(event_);
    if (status == cudaErrorNotReady) cudaGetLastError();
    return status == cudaSuccess;
  }

 private:
  friend class Stream;
  friend double milliseconds_between(const Event& first, const Event& second);
  cudaEvent_t event_ = nullptr;
};

inline void Stream::wait(const Event& event) {
  require_not_recording("a stream cannot wait for an event");
  check_cuda(cudaStreamWaitEvent(stream_, event.event_, 0), "cudaStreamWaitEvent");
}

// Runs work() on the host when the stream reaches this point; the caller waits.
template <class Work>
void run_on_host(Stream& stream, const Work& work) {
  stream.require_not_recording("a host function cannot run in a stream");
  stream.synchronize();
  work();
}

inline double milliseconds_between(const Event& first, const Event& second) {
  float milliseconds = 0;
  check_cuda(cudaEventElapsedTime(&milliseconds, first.event_, second.event_),
             "cudaEventElapsedTime");
  return milliseconds;
}

}  // namespace llmc
