#include "llmc/config/model_name.h"

#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/suggestions.h"
#include "llmc/config/huggingface_shape.h"

namespace llmc {

namespace {

// "; did you mean d12?" for other names of the published sizes, such as gpt2 and 124M; otherwise
// an empty text.
std::string model_name_suggestion(const std::string& name) {
  const std::vector<KnownName> known = {{"gpt2", "d12"},           {"gpt2-small", "d12"},
                                        {"small", "d12"},          {"124M", "d12"},
                                        {"117M", "d12"},           {"gpt2-medium", "d24"},
                                        {"medium", "d24"},         {"350M", "d24"},
                                        {"345M", "d24"},           {"355M", "d24"},
                                        {"gpt2-large", "d36"},     {"large", "d36"},
                                        {"774M", "d36"},           {"762M", "d36"},
                                        {"gpt2-xl", "d48"},        {"xl", "d48"},
                                        {"1558M", "d48"},          {"1542M", "d48"},
                                        {"1.5B", "d48"},           {"1.5b", "d48"},
                                        {"1.2B", "megatron-1.2b"}, {"2.5B", "megatron-2.5b"},
                                        {"4.2B", "megatron-4.2b"}, {"8.3B", "megatron-8.3b"}};
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

struct NamedSize {
  const char* name;
  std::int64_t layers, heads, channels;
};

// Shoeybi et al., "Megatron-LM" (2019), table 1.
constexpr NamedSize kMegatronSizes[] = {{"megatron-1.2b", 40, 16, 1536},
                                        {"megatron-2.5b", 54, 20, 1920},
                                        {"megatron-4.2b", 64, 24, 2304},
                                        {"megatron-8.3b", 72, 32, 3072}};

}  // namespace

ModelConfig config_from_name(const std::string& name) {
  if (name.ends_with(".json")) {
    return from_huggingface(parse_huggingface_config(read_file(name), name), name);
  }
  ModelConfig config;
  for (const NamedSize& size : kMegatronSizes) {
    if (name != size.name) continue;
    config.layers = size.layers;
    config.heads = size.heads;
    config.channels = size.channels;
    return config;
  }
  const bool is_name = name.size() > 1 && name.size() < 6 && name[0] == 'd' &&
                       name.find_first_not_of("0123456789", 1) == std::string::npos;
  const std::int64_t num_layers = is_name ? std::atoll(name.c_str() + 1) : 0;
  if (num_layers < 1) {
    fail_usage("--model '" + name + "' is not known" + model_name_suggestion(name),
               "use d12 (124M), d24 (350M), d36 (774M), d48 (1558M), dN for N layers, "
               "megatron-1.2b, 2.5b, "
               "4.2b or 8.3b, or a config.json of transformers");
  }
  config.layers = num_layers;
  config.heads = num_layers == 48 ? 25 : 8 + num_layers / 3;
  config.channels = 64 * config.heads;
  return config;
}

}  // namespace llmc
