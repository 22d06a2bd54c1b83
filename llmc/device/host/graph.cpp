#include "llmc/device/host/graph.h"

#include "llmc/base/error.h"

namespace llmc {

void Graph::launch(Stream& stream) {
  require(!empty(), "a graph is launched, but nothing is recorded in it");
  for (const auto& part : recording_) part(stream);
}

Graph::Scope::Scope(Stream& stream, host::Recording* recording)
    : stream_(stream), profiler_(stream.profiler()) {
  stream_.profile(nullptr);
  stream_.record(recording);
}

Graph::Scope::~Scope() {
  stream_.record(nullptr);
  stream_.profile(profiler_);
}

}  // namespace llmc
