#include "llmc/config/model_config.h"

#include <cmath>

#include "llmc/base/error.h"

namespace llmc {

float ModelConfig::attention_scale(std::int64_t layer) const {
  const double scale = scale_attention ? 1.0 / std::sqrt(static_cast<double>(head_size())) : 1.0;
  return static_cast<float>(scale_attention_by_layer ? scale / static_cast<double>(layer + 1)
                                                     : scale);
}

namespace {

// Checks the properties that config.json has and no flag sets.
void check_family(const ModelConfig& config) {
  constexpr std::int64_t kMaxHidden = 65536, kMultiple = 16;
  const std::int64_t H = config.hidden_size();
  if (config.inner && (H < kMultiple || H > kMaxHidden || H % kMultiple != 0)) {
    fail("n_inner is " + std::to_string(H), "allowed: a multiple of 16, at most 65536");
  }
  const auto epsilon = static_cast<float>(config.norm_epsilon);
  if (!(epsilon > 0 && std::isfinite(epsilon))) {
    fail("layer_norm_epsilon is " + std::to_string(config.norm_epsilon),
         "allowed: a number above 0 in fp32");
  }
}

}  // namespace

void check_config(const ModelConfig& config) {
  const auto require_positive = [](const char* flag, std::int64_t value) {
    if (value <= 0) fail(std::string(flag) + " is " + std::to_string(value), "use at least 1");
  };
  require_positive("--layers", config.layers);
  require_positive("--heads", config.heads);
  require_positive("--channels", config.channels);
  require_positive("--context", config.context);
  require_positive("the vocabulary's size", config.vocabulary);
  const std::int64_t HS = config.head_size();
  if (config.channels % config.heads != 0 || HS % 8 != 0 || HS > 128) {
    fail("--channels " + std::to_string(config.channels) + " with --heads " +
             std::to_string(config.heads) + " gives heads of " +
             std::to_string(static_cast<double>(config.channels) /
                            static_cast<double>(config.heads)) +
             " channels",
         "choose sizes so that channels / heads is a multiple of 8, at most 128");
  }
  const auto require_at_most = [](const char* flag, std::int64_t value, std::int64_t max) {
    if (value > max)
      fail(std::string(flag) + " " + std::to_string(value) + " is too large",
           "use at most " + std::to_string(max));
  };
  require_at_most("--channels", config.channels, 8192);  // LayerNorm keeps a row in registers
  check_family(config);
  require_at_most("--layers", config.layers, 1000);
  require_at_most("the number of labels", config.labels, 65536);
  require_at_most("--context", config.context, 1 << 24);  // limit of attention: kMaxAttentionTime
}

}  // namespace llmc
