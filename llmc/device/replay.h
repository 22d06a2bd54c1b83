// Work of a stream that is submitted many times with the same arguments. The first call runs it,
// because libraries and drivers allocate at their first use. The second records it in a graph
// (graph.h), which that call and all later ones launch.
#pragma once

#include <cstdint>

#include "llmc/device/graph.h"

namespace llmc {

class Replay {
 public:
  // Later calls do not call work(): they repeat what it submitted.
  template <class Work>
  void run(Stream& stream, const Work& work) {
    if (!has_run_) {
      work();
      has_run_ = true;
      return;
    }
    if (graph_.empty()) graph_.capture(stream, work);
    graph_.launch(stream);
  }

  std::int64_t nodes() const { return graph_.nodes(); }  // 0 before the second call

 private:
  Graph graph_;
  bool has_run_ = false;
};

}  // namespace llmc
