// Ends a text before the first of several stop strings, while it is streamed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "llmc/base/error.h"

namespace llmc {

// The stop string that is complete first ends the text; of two that are complete at the same
// character, the longer one, whose beginning is earlier. Text that may be the beginning of a stop
// string is held back, so that no part of a stop string is ever shown.
class StopText {
 public:
  // Throws if a stop string is empty.
  explicit StopText(std::vector<std::string> stops) : stops_(std::move(stops)) {
    for (const std::string& stop : stops_) require(!stop.empty(), "a stop string is empty");
  }

  // Adds text and returns what is certain to be part of the result. After a stop string, nothing
  // is.
  std::string push(const std::string& text) {
    std::string certain;
    for (std::size_t i = 0; i < text.size() && !stopped_; ++i) {
      pending_ += text[i];
      if (const std::size_t length = completed(); length > 0) {
        stopped_ = true;
        certain += pending_.substr(0, pending_.size() - length);
        pending_.clear();
      } else {
        const std::size_t count = pending_.size() - held_back();
        certain += pending_.substr(0, count);
        pending_.erase(0, count);
      }
    }
    return certain;
  }

  // Whether a stop string has ended the text.
  bool stopped() const { return stopped_; }

  // The text that is held back, at the end of the text.
  std::string finish() { return std::exchange(pending_, {}); }

 private:
  // Length of the longest stop string that ends here; 0: none.
  std::size_t completed() const {
    std::size_t length = 0;
    for (const std::string& stop : stops_) {
      if (pending_.ends_with(stop)) length = std::max(length, stop.size());
    }
    return length;
  }

  // Length of the longest end of pending_ with which a stop string begins.
  std::size_t held_back() const {
    std::size_t length = 0;
    for (const std::string& stop : stops_) {
      for (std::size_t n = std::min(stop.size() - 1, pending_.size()); n > length; --n) {
        if (std::string_view(pending_).ends_with(std::string_view(stop).substr(0, n))) length = n;
      }
    }
    return length;
  }

  std::vector<std::string> stops_;
  std::string pending_;  // may be the beginning of a stop string
  bool stopped_ = false;
};

}  // namespace llmc
