// Ends a text before a stop string, whose parts can arrive in several pieces.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/utf8.h"

namespace llmc {

// The stop string that completes first ends the text, and the text ends before its first byte. If
// several complete at the same byte, the longest counts. The result does not depend on how the text
// is cut into pieces. Text that may be the beginning of a stop string is held back until that is
// decided, so no part of the stop string that ends the text is ever returned.
class StopText {
 public:
  // Without stop strings all text passes at once. Throws if one is empty or not UTF-8.
  explicit StopText(std::vector<std::string> stops) : stops_(std::move(stops)) {
    for (const std::string& stop : stops_) {
      require(!stop.empty(), "a stop string is empty");
      if (!is_utf8(stop)) fail("the stop string '" + printable(stop) + "' is not UTF-8");
    }
  }

  // Adds text (whole UTF-8 characters) and returns the text that is certain with it, in whole
  // characters. Text after a stop string is ignored.
  std::string push(const std::string& text) {
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

  // Whether a stop string is complete.
  bool stopped() const { return stopped_; }

  // Ends the text: returns the text held back, which is no stop string.
  std::string finish() { return std::exchange(held_, {}); }

 private:
  // The length of the longest stop string that ends the held text; 0: none.
  std::size_t complete_length() const {
    std::size_t length = 0;
    for (const std::string& stop : stops_) {
      if (held_.ends_with(stop)) length = std::max(length, stop.size());
    }
    return length;
  }

  // The number of held bytes before the first position at which a stop string may have begun.
  std::size_t certain_length() const {
    std::size_t begin = 0;
    const auto may_be_stop = [&](const std::string& stop) {
      return stop.starts_with(std::string_view(held_).substr(begin));
    };
    while (begin < held_.size() && std::ranges::none_of(stops_, may_be_stop)) ++begin;
    return begin;
  }

  std::vector<std::string> stops_;
  std::string held_;  // the end of the text, which may be the beginning of a stop string
  bool stopped_ = false;
};

}  // namespace llmc
