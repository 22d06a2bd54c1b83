#include "llmc/config/model_config.h"

#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/suggestions.h"

namespace llmc {

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
  require_at_most("--layers", config.layers, 1000);
  require_at_most("--context", config.context, 1 << 24);  // limit of attention: kMaxAttentionTime
}

namespace {

// "; did you mean d12?" for other names of the published sizes, such as gpt2 and 124M; otherwise
// an empty text.
std::string model_name_suggestion(const std::string& name) {
  const std::vector<KnownName> known = {
      {"gpt2", "d12"},  {"gpt2-small", "d12"},  {"small", "d12"},      {"124M", "d12"},
      {"117M", "d12"},  {"gpt2-medium", "d24"}, {"medium", "d24"},     {"350M", "d24"},
      {"345M", "d24"},  {"355M", "d24"},        {"gpt2-large", "d36"}, {"large", "d36"},
      {"774M", "d36"},  {"762M", "d36"},        {"gpt2-xl", "d48"},    {"xl", "d48"},
      {"1558M", "d48"}, {"1542M", "d48"},       {"1.5B", "d48"},       {"1.5b", "d48"}};
  const std::string last = name.substr(name.rfind('/') + 1);  // openai-community/gpt2-xl
  for (const KnownName& size : known) {
    if (suggestions_detail::comparable(size.name) == suggestions_detail::comparable(last)) {
      return did_you_mean({size.answer});
    }
  }
  const bool is_number = !name.empty() && name.size() < 4 &&
                         name.find_first_not_of("0123456789") == name.npos && name[0] != '0';
  return is_number ? did_you_mean({"d" + name}) : "";
}

}  // namespace

ModelConfig config_from_name(const std::string& name) {
  const bool is_name = name.size() > 1 && name.size() < 6 && name[0] == 'd' &&
                       name.find_first_not_of("0123456789", 1) == std::string::npos;
  const std::int64_t num_layers = is_name ? std::atoll(name.c_str() + 1) : 0;
  if (num_layers < 1) {
    fail_usage("--model '" + name + "' is not known" + model_name_suggestion(name),
               "use d12 (124M), d24 (350M), d36 (774M), d48 (1558M), or dN for N layers");
  }
  ModelConfig config;
  config.layers = num_layers;
  config.heads = num_layers == 48 ? 25 : 8 + num_layers / 3;
  config.channels = 64 * config.heads;
  return config;
}

}  // namespace llmc
