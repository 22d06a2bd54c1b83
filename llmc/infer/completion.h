// A completion of a prompt, its JSON, and the order in which completions are printed.
#pragma once

#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/json.h"
#include "llmc/base/utf8_stream.h"
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

namespace completion_detail {

// The double whose shortest decimal form is that of `value`: a reader of float32 gets the same
// number from few digits. Null if the number is not finite.
inline OrderedJson number_json(float value) {
  if (!std::isfinite(value)) return nullptr;
  char digits[32];
  const char* end = std::to_chars(digits, digits + sizeof digits, value).ptr;
  double number = 0;
  std::from_chars(digits, end, number);
  return number;
}

inline OrderedJson logprobs_json(const Completion& completion) {
  OrderedJson list = OrderedJson::array();
  for (const float value : completion.logprobs) list.push_back(number_json(value));
  return list;
}

// tokens_per_second is 0 without generated tokens or without a measured time.
inline OrderedJson timings_json(const Completion& completion) {
  // generate_ms begins with the first token, so it is the time of the others.
  const double later_tokens = static_cast<double>(completion.ids.size()) - 1;
  const double seconds = completion.generate_ms / 1e3;
  return {{"prompt_ms", completion.prompt_ms},
          {"generate_ms", completion.generate_ms},
          {"tokens_per_second", seconds > 0 && later_tokens > 0 ? later_tokens / seconds : 0.0}};
}

inline std::string error_json(const Completion& completion) {
  return OrderedJson{{"id", valid_utf8(completion.id)},
                     {"prompt", valid_utf8(completion.prompt)},
                     {"error", valid_utf8(completion.error)}}
      .dump();
}

}  // namespace completion_detail

// The line of --json. A completion with an error has only the keys id, prompt and error. Bytes that
// are not UTF-8 become U+FFFD, numbers that are not finite null.
inline std::string completion_json(const Completion& completion) {
  using namespace completion_detail;
  if (!completion.error.empty()) return error_json(completion);
  const OrderedJson json = {{"prompt_tokens", completion.prompt_tokens},
                            {"tokens", completion.ids.size()},
                            {"text", valid_utf8(completion.text)},
                            {"finish_reason", finish_name(completion.finish)},
                            {"seed", completion.seed},
                            {"ids", completion.ids},
                            {"id", valid_utf8(completion.id)},
                            {"prompt", valid_utf8(completion.prompt)},
                            {"sample", completion.sample},
                            {"logprobs", logprobs_json(completion)},
                            {"timings", timings_json(completion)}};
  return json.dump();
}

// The line of --jsonl: the same keys in another order.
inline std::string completion_jsonl(const Completion& completion) {
  using namespace completion_detail;
  if (!completion.error.empty()) return error_json(completion);
  const OrderedJson json = {{"id", valid_utf8(completion.id)},
                            {"prompt", valid_utf8(completion.prompt)},
                            {"sample", completion.sample},
                            {"prompt_tokens", completion.prompt_tokens},
                            {"tokens", completion.ids.size()},
                            {"text", valid_utf8(completion.text)},
                            {"ids", completion.ids},
                            {"logprobs", logprobs_json(completion)},
                            {"finish_reason", finish_name(completion.finish)},
                            {"seed", completion.seed},
                            {"timings", timings_json(completion)}};
  return json.dump();
}

// Completions finish in any order. This class returns them in the order of prompts, then samples.
class CompletionOrder {
 public:
  // samples[p]: number of completions of prompt p; a prompt with an error has one.
  explicit CompletionOrder(const std::vector<std::int64_t>& samples) {
    for (const std::int64_t count : samples) {
      begins_.push_back(std::ssize(slots_));
      require(count >= 0, "a prompt has a negative number of completions");
      slots_.resize(slots_.size() + static_cast<std::size_t>(count));
    }
    begins_.push_back(std::ssize(slots_));
  }

  // Adds a finished completion and returns all that can be printed now. Throws if the prompt has no
  // such sample, or if it was added before.
  std::vector<Completion> add(std::int64_t prompt, Completion completion) {
    const bool has_prompt = prompt >= 0 && prompt + 1 < std::ssize(begins_);
    const auto p = static_cast<std::size_t>(has_prompt ? prompt : 0);
    require(has_prompt && completion.sample >= 0 && completion.sample < begins_[p + 1] - begins_[p],
            "a completion is not one of the expected ones");
    Slot& slot = slots_[static_cast<std::size_t>(begins_[p] + completion.sample)];
    require(!slot.is_filled, "a completion finished twice");
    slot = {.is_filled = true, .completion = std::move(completion)};
    std::vector<Completion> released;
    while (next_ < slots_.size() && slots_[next_].is_filled) {
      released.push_back(std::exchange(slots_[next_++].completion, {}));
    }
    return released;
  }

  // Whether all completions have been returned.
  bool done() const { return next_ == slots_.size(); }

 private:
  struct Slot {
    bool is_filled = false;
    Completion completion;
  };
  std::vector<std::int64_t> begins_;  // index of each prompt's first slot, and the number of slots
  std::vector<Slot> slots_;
  std::size_t next_ = 0;  // the first slot that has not been returned
};

}  // namespace llmc
