#include "llmc/infer/stop_text.h"

#include <algorithm>
#include <string_view>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/utf8.h"

namespace llmc {

StopText::StopText(std::vector<std::string> stops) : stops_(std::move(stops)) {
  for (const std::string& stop : stops_) {
    require(!stop.empty(), "a stop string is empty");
    if (!is_utf8(stop)) fail("the stop string '" + printable(stop) + "' is not UTF-8");
  }
}

std::string StopText::push(const std::string& text) {
  std::string certain;
  if (stopped_) return certain;
  for (const char c : text) {
    held_ += c;
    const std::size_t length = complete_length();
    stopped_ = length > 0;
    const std::size_t num_certain = stopped_ ? held_.size() - length : certain_length();
    certain.append(held_, 0, num_certain);
    held_.erase(0, num_certain);
    if (!stopped_) continue;
    held_.clear();
    break;
  }
  return certain;
}

std::size_t StopText::complete_length() const {
  std::size_t length = 0;
  for (const std::string& stop : stops_) {
    if (held_.ends_with(stop)) length = std::max(length, stop.size());
  }
  return length;
}

std::size_t StopText::certain_length() const {
  std::size_t begin = 0;
  const auto may_be_stop = [&](const std::string& stop) {
    return stop.starts_with(std::string_view(held_).substr(begin));
  };
  while (begin < held_.size() && std::ranges::none_of(stops_, may_be_stop)) ++begin;
  return begin;
}

}  // namespace llmc
