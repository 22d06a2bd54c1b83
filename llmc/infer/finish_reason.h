// Why a generation ended.
#pragma once

namespace llmc {

enum class Finish {
  length,  // as many tokens as were asked for
  stop,    // <|endoftext|> was drawn
  context  // prompt and text fill the model's context
};

// What --json calls it.
inline const char* finish_name(Finish finish) {
  if (finish == Finish::stop) return "stop";
  return finish == Finish::context ? "context" : "length";
}

}  // namespace llmc
