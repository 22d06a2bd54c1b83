// The table of all settings of tokenize, in the order of --help.
#pragma once

#include <string>

#include "llmc/config/setting.h"
#include "llmc/config/tokenize_settings.h"

// A row names only the columns it needs, which causes this warning. (Default member initializers
// would prevent it, but they crash g++ 12.)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

namespace llmc {

struct TokenizeProgram {
  using Request = TokenizeRequest;
  using Config = TokenizeConfig;
  struct Facts {};

  static constexpr const char* kName = "tokenize";
  static constexpr const char* kDescription =
      "Converts texts to token files (.bin) for training, and back. An interrupted run resumes if "
      "it is started again with the same flags.";
  static constexpr const char* kExamples[] = {
      "./tokenize --tokenizer bytes text.txt -o text.bin",
      "./tokenize --tokenizer gpt2 docs.jsonl -o t.bin --val v.bin --val-fraction 0.2",
      "./tokenize --tokenizer bytes --decode text.bin -o copy.txt"};
  static const Settings<TokenizeProgram>& settings();

  // Returns an error for a combination of flags that are valid one by one, or an empty text.
  static bool comes_later(const Setting<TokenizeProgram>&, const TokenizeRequest&) { return false; }
  static std::string contradiction(const TokenizeRequest& r);
};

TokenizeConfig resolve(const TokenizeRequest& request);

}  // namespace llmc
