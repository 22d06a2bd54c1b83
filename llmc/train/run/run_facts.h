// The facts that rules for defaults may depend on, as known before the data are read.
#pragma once

#include <optional>

#include "llmc/comm/exchange.h"
#include "llmc/config/train_settings.h"
#include "llmc/device/device.h"
#include "llmc/train/run/data_source.h"
#include "llmc/train/run/recorded_run.h"
#include "llmc/train/run/starting_weights.h"

namespace llmc {

// `request`: typed flags. All ranks call this together.
RunFacts facts_of(const Request& request, const DataSource& source,
                  const std::optional<StartingWeights>& weights,
                  const std::optional<RecordedRun>& resumed, Exchange& exchange);

}  // namespace llmc
