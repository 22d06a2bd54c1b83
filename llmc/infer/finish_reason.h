// Why a generation ended.
#pragma once

namespace llmc {

enum class Finish {
  length,     // the requested number of tokens was generated
  stop,       // <|endoftext|> was drawn, or a stop string is complete
  context,    // prompt and text fill the model's context
  cancelled,  // the caller ended it
  not_finite  // the model's output is not finite: an error
};

// The name in the output of --json, which shows an error instead of not_finite.
const char* finish_name(Finish finish);

}  // namespace llmc
