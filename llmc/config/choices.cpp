#include "llmc/config/choices.h"

namespace llmc {

std::vector<KnownName> other_choice_names(Dtype) {
  return {{"float32", "fp32"}, {"float", "fp32"},    {"f32", "fp32"},
          {"single", "fp32"},  {"bfloat16", "bf16"}, {"bfloat", "bf16"},
          {"float16", "fp16"}, {"half", "fp16"},     {"f16", "fp16"}};
}

std::vector<KnownName> other_choice_names(CacheDtype) {
  std::vector<KnownName> names = other_choice_names(Dtype());
  for (const char* name : {"q8_0", "q8", "i8", "s8", "8bit", "8"}) names.push_back({name, "int8"});
  return names;
}

std::vector<KnownName> other_choice_names(Attention) {
  return {{"flash-attention", "flash"},
          {"eager", "standard"},
          {"naive", "standard"},
          {"math", "standard"}};
}

}  // namespace llmc
