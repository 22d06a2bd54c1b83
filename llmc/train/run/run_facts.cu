#include <algorithm>
#include <cstdint>
#include <iterator>

#include "llmc/comm/rank_places.h"
#include "llmc/config/recorded_settings.h"
#include "llmc/device/device.h"
#include "llmc/plan/default_batch.h"
#include "llmc/train/run/run_facts.h"

namespace llmc {

namespace {

// A GPU does nothing but train, so by default a batch fills its memory.
constexpr bool kBatchFillsMemory = kCudaTarget;

}  // namespace

RunFacts facts_of(const Request& request, const DataSource& source,
                  const std::optional<StartingWeights>& weights,
                  const std::optional<RecordedRun>& resumed, Exchange& exchange) {
  RunFacts facts{.default_shape = source.default_shape(),
                 .tokenizer = source.tokenizer().name(),
                 .ranks = request.ranks.ranks.value_or(exchange.ranks()),
                 .preset = source.preset()};
  facts.default_shape.vocabulary = source.tokenizer().vocabulary_size();
  if (weights) {
    facts.weights = weights->shape;
    facts.weights_path = weights->path;
  }
  if (resumed) facts.preset = with_recorded(resumed->settings, facts.preset);
  if (kBatchFillsMemory && source.fills_memory()) {
    const std::int64_t sharing = std::ssize(ranks_on_device(exchange));
    set_gpu_batch(facts, request, device_properties().total_memory / sharing);
    facts.default_batch_size = std::ranges::min(exchange.all_gather({facts.default_batch_size}));
  }
  return facts;
}

}  // namespace llmc
