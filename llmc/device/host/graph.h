// Graphs of the host: a list of recorded work.
#pragma once

#include <cstdint>
#include <utility>

#include "llmc/device/host/stream.h"

namespace llmc {

class Graph {
 public:
  Graph() = default;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  template <class Work>
  void capture(Stream& stream, const Work& work) {
    stream.require_not_recording("a graph cannot record a stream");
    recording_.clear();
    host::Recording recording;
    {
      const Scope scope(stream, &recording);
      work();
    }
    recording_ = std::move(recording);
  }

  // An overlapped launch at the start of the recording overlaps the work before the graph for TSan,
  // as if the launches were submitted one by one. On a GPU a graph starts after that work.
  void launch(Stream& stream);

  std::int64_t nodes() const { return static_cast<std::int64_t>(recording_.size()); }
  bool empty() const { return recording_.empty(); }

 private:
  // Records the stream, and disables its profiler, until the end of the scope.
  class Scope {
   public:
    Scope(Stream& stream, host::Recording* recording);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Stream& stream_;
    Profiler* profiler_;
  };

  host::Recording recording_;
};

}  // namespace llmc
