// A generated text with all that is known about it, and its output as JSON.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "llmc/base/json.h"
#include "llmc/infer/finish_reason.h"

namespace llmc {

struct Completion {
  std::string id{};         // of the prompt
  std::string prompt{};     // text of the prompt
  std::int64_t sample = 0;  // number of the completion of the prompt
  std::int64_t prompt_tokens = 0;
  std::vector<std::int32_t> ids{};  // generated tokens, without the <|endoftext|> that ended them
  std::vector<float> logprobs{};    // natural logarithms of their probabilities
  std::string text{};               // text of the ids, valid UTF-8, before a stop string
  Finish finish = Finish::length;
  std::uint64_t seed = 0;
  double prompt_ms = 0;    // until the first token
  double generate_ms = 0;  // from the first token to the last
  std::string error{};     // nothing was generated
};

namespace completion_detail {

inline OrderedJson timings(const Completion& c) {
  const auto later_tokens = static_cast<double>(c.ids.size()) - 1;
  const bool known = later_tokens > 0 && c.generate_ms > 0;
  return {{"prompt_ms", c.prompt_ms},
          {"generate_ms", c.generate_ms},
          {"tokens_per_second", known ? 1e3 * later_tokens / c.generate_ms : 0.0}};
}

inline std::string text_of(const OrderedJson& json) {
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

}  // namespace completion_detail

// The object of --json, in one line.
inline std::string completion_json(const Completion& c) {
  return completion_detail::text_of({{"prompt_tokens", c.prompt_tokens},
                                     {"tokens", c.ids.size()},
                                     {"text", c.text},
                                     {"finish_reason", finish_name(c.finish)},
                                     {"seed", c.seed},
                                     {"ids", c.ids},
                                     {"id", c.id},
                                     {"prompt", c.prompt},
                                     {"sample", c.sample},
                                     {"logprobs", c.logprobs},
                                     {"timings", completion_detail::timings(c)}});
}

// A line of --jsonl.
inline std::string completion_jsonl(const Completion& c) {
  if (!c.error.empty()) {
    return completion_detail::text_of({{"id", c.id}, {"prompt", c.prompt}, {"error", c.error}});
  }
  return completion_detail::text_of({{"id", c.id},
                                     {"prompt", c.prompt},
                                     {"sample", c.sample},
                                     {"prompt_tokens", c.prompt_tokens},
                                     {"tokens", c.ids.size()},
                                     {"text", c.text},
                                     {"ids", c.ids},
                                     {"logprobs", c.logprobs},
                                     {"finish_reason", finish_name(c.finish)},
                                     {"seed", c.seed},
                                     {"timings", completion_detail::timings(c)}});
}

// Completions end in any order; this returns them in the order of their numbers.
class CompletionOrder {
 public:
  // Adds number `index` and returns those that are next in the order.
  std::vector<Completion> add(std::int64_t index, Completion completion) {
    waiting_.emplace(index, std::move(completion));
    std::vector<Completion> next;
    for (auto at = waiting_.begin(); at != waiting_.end() && at->first == next_; ++next_) {
      next.push_back(std::move(at->second));
      at = waiting_.erase(at);
    }
    return next;
  }

 private:
  std::map<std::int64_t, Completion> waiting_;
  std::int64_t next_ = 0;
};

}  // namespace llmc
