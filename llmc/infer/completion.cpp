#include "llmc/infer/completion.h"

#include <charconv>
#include <cmath>
#include <iterator>
#include <utility>

#include "llmc/base/error.h"
#include "llmc/base/json.h"
#include "llmc/base/utf8_stream.h"

namespace llmc {

namespace {

// The double whose shortest decimal form is that of `value`: a reader of float32 gets the same
// number from few digits. Null if the number is not finite.
Json number_json(float value) {
  if (!std::isfinite(value)) return nullptr;
  char digits[32];
  const char* end = std::to_chars(digits, digits + sizeof digits, value).ptr;
  double number = 0;
  std::from_chars(digits, end, number);
  return number;
}

Json logprobs_json(const Completion& completion) {
  Json list = Json::array();
  for (const float value : completion.logprobs) list.push_back(number_json(value));
  return list;
}

// tokens_per_second is 0 without generated tokens or without a measured time.
Json timings_json(const Completion& completion) {
  // generate_ms begins with the first token, so it is the time of the others.
  const double later_tokens = static_cast<double>(completion.ids.size()) - 1;
  const double seconds = completion.generate_ms / 1e3;
  return {{"prompt_ms", completion.prompt_ms},
          {"generate_ms", completion.generate_ms},
          {"tokens_per_second", seconds > 0 && later_tokens > 0 ? later_tokens / seconds : 0.0}};
}

std::string error_json(const Completion& completion) {
  return Json{{"id", valid_utf8(completion.id)},
              {"prompt", valid_utf8(completion.prompt)},
              {"error", valid_utf8(completion.error)}}
      .dump();
}

}  // namespace

std::string completion_json(const Completion& completion) {
  if (!completion.error.empty()) return error_json(completion);
  const Json json = {{"prompt_tokens", completion.prompt_tokens},
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

std::string completion_jsonl(const Completion& completion) {
  if (!completion.error.empty()) return error_json(completion);
  const Json json = {{"id", valid_utf8(completion.id)},
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

CompletionOrder::CompletionOrder(const std::vector<std::int64_t>& samples) {
  for (const std::int64_t count : samples) {
    begins_.push_back(std::ssize(entries_));
    require(count >= 0, "a prompt has a negative number of completions");
    entries_.resize(entries_.size() + static_cast<std::size_t>(count));
  }
  begins_.push_back(std::ssize(entries_));
}

std::vector<Completion> CompletionOrder::add(std::int64_t prompt, Completion completion) {
  const bool has_prompt = prompt >= 0 && prompt + 1 < std::ssize(begins_);
  const auto p = static_cast<std::size_t>(has_prompt ? prompt : 0);
  require(has_prompt && completion.sample >= 0 && completion.sample < begins_[p + 1] - begins_[p],
          "a completion is not one of the expected ones");
  Entry& slot = entries_[static_cast<std::size_t>(begins_[p] + completion.sample)];
  require(!slot.is_filled, "a completion finished twice");
  slot = {.is_filled = true, .completion = std::move(completion)};
  std::vector<Completion> released;
  while (next_ < entries_.size() && entries_[next_].is_filled) {
    released.push_back(std::exchange(entries_[next_++].completion, {}));
  }
  return released;
}

}  // namespace llmc
