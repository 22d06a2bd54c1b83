#include "llmc/plan/time/timed_model.h"

namespace llmc {

double TimedModel::block_parameters() const {
  const double C = static_cast<double>(channels), H = static_cast<double>(hidden);
  return 4 * C * C + 2 * C * H + 9 * C + H;
}
double TimedModel::embedding_parameters() const {
  return static_cast<double>(vocabulary) * static_cast<double>(channels);
}
double TimedModel::parameters() const {
  const double C = static_cast<double>(channels);
  return static_cast<double>(layers) * block_parameters() +
         embedding_parameters() * (tied_head ? 1 : 2) + static_cast<double>(T) * C + 2 * C;
}

std::string Layout::text() const {
  std::string text;
  const auto add = [&](const char* name, int value) {
    if (value > 1) text += std::string(name) + " " + std::to_string(value) + ", ";
  };
  add("tp", tensor);
  add("pp", pipeline);
  add("v", chunks);
  add("dp", data);
  if (zero > 0) text += "zero " + std::to_string(zero) + ", ";
  return text + "B " + std::to_string(micro_batch) + " x " + std::to_string(micro_batches);
}

double step_flops(const TimedModel& model, std::int64_t batch, bool recomputes) {
  const double C = static_cast<double>(model.channels), L = static_cast<double>(model.layers),
               T = static_cast<double>(model.T), V = static_cast<double>(model.vocabulary);
  const double passes = recomputes ? 4 : 3;
  return 24 * passes * static_cast<double>(batch) * T * L * C * C *
         (1 + T / (6 * C) + V / (4 * passes * L * C));
}

}  // namespace llmc
