// The table of all settings of infer_gpt2, in the order of --help.
#pragma once

#include <string>

#include "llmc/config/infer_settings.h"
#include "llmc/config/setting.h"

namespace llmc {

struct InferProgram {
  using Request = InferRequest;
  using Config = InferConfig;
  struct Facts {};

  static constexpr const char* kName = "infer_gpt2";
  static constexpr const char* kDescription =
      "Continues a text with a GPT-2 model. Prints the generated text, without the prompt, to "
      "stdout as it is generated; everything else goes to stderr.";
  static constexpr const char* kExamples[] = {
      "./infer_gpt2 -m run -p 'Once upon a time'",
      "./infer_gpt2 -m run -p - -n 30 --top-k 40 < text.txt",
      "./infer_gpt2 -m gpt2 --temperature 0 --dtype bf16 --json"};
  static const Settings<InferProgram>& settings();
  static std::string contradiction(const InferRequest& request);
  static bool comes_later(const Setting<InferProgram>&, const InferRequest&) { return false; }
};

// A --seed of -1 becomes a drawn seed.
InferConfig resolve(const InferRequest& request);

}  // namespace llmc
