// A completion of a prompt, its JSON, and the order in which completions are printed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "llmc/infer/finish_reason.h"

namespace llmc {

struct Completion {
  std::string id, prompt;
  std::int64_t sample = 0;  // index among the completions of the prompt
  std::int64_t prompt_tokens = 0;
  std::vector<std::int32_t> ids;  // generated tokens, without the <|endoftext|> that ended them
  std::vector<float> logprobs;    // natural log of the probability of each of them
  std::string text;               // valid UTF-8, without a stop string
  Finish finish = Finish::length;
  std::uint64_t seed = 0;
  double prompt_ms = 0, generate_ms = 0;  // time of the prompt, and of the tokens
  std::string error;                      // why there is no completion; otherwise empty
};

// The line of --json. A completion with an error has only the keys id, prompt and error. Bytes that
// are not UTF-8 become U+FFFD, numbers that are not finite null.
std::string completion_json(const Completion& completion);

// The line of --jsonl: the same keys in another order.
std::string completion_jsonl(const Completion& completion);

// Completions finish in any order. This class returns them in the order of prompts, then samples.
class CompletionOrder {
 public:
  // samples[p]: number of completions of prompt p; a prompt with an error has one.
  explicit CompletionOrder(const std::vector<std::int64_t>& samples);

  // Adds a finished completion and returns all that can be printed now. Throws if the prompt has no
  // such sample, or if it was added before.
  std::vector<Completion> add(std::int64_t prompt, Completion completion);

  // Whether all completions have been returned.
  bool done() const { return next_ == entries_.size(); }

 private:
  struct Entry {
    bool is_filled = false;
    Completion completion;
  };
  std::vector<std::int64_t> begins_;  // index of each prompt's first slot, and the number of slots
  std::vector<Entry> entries_;
  std::size_t next_ = 0;  // the first slot that has not been returned
};

}  // namespace llmc
