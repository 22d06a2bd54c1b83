// The bytes that ranks send in a step, if they are counted for a run instead of computed from the
// sizes of its model.
#pragma once

#include <vector>

namespace llmc {

struct SentBytes {
  // The bytes of one rank for each pipeline rank: in a step, outside of passes.
  struct OfRank {
    double gradients = 0, weights = 0, scalars = 0;  // between data ranks
    double tensor = 0;                               // in the tensor group
    double pipeline = 0;  // between pipeline ranks: gradients of a tied embedding, and scalars
    // To and from the memory of the host: of state that an update needs, which waits for it; and of
    // state that passes need, which they hide.
    double host_update = 0, host_passes = 0;

    double data() const { return gradients + weights + scalars; }
  };
  std::vector<OfRank> ranks;
  // A pass through each stage, in the tensor group.
  std::vector<double> forward, backward;
  double message = 0;  // one, from stage to stage
};

// The bytes of a step, of the pipeline rank that sends the most in each kind of group.
struct GroupBytes {
  double tensor = 0, pipeline = 0, data = 0;
};

}  // namespace llmc
