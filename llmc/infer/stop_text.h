// Ends a text before a stop string, whose parts can arrive in several pieces.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace llmc {

// The stop string that completes first ends the text, and the text ends before its first byte. If
// several complete at the same byte, the longest counts. The result does not depend on how the text
// is cut into pieces. Text that may be the beginning of a stop string is held back until that is
// decided, so no part of the stop string that ends the text is ever returned.
class StopText {
 public:
  // Without stop strings all text passes at once. Throws if one is empty or not UTF-8.
  explicit StopText(std::vector<std::string> stops);

  // Adds text (whole UTF-8 characters) and returns the text that is certain with it, in whole
  // characters. Text after a stop string is ignored.
  std::string push(const std::string& text);

  // Whether a stop string is complete.
  bool stopped() const { return stopped_; }

  // Ends the text: returns the text held back, which is no stop string.
  std::string finish() { return std::exchange(held_, {}); }

 private:
  // The length of the longest stop string that ends the held text; 0: none.
  std::size_t complete_length() const;

  // The number of held bytes before the first position at which a stop string may have begun.
  std::size_t certain_length() const;

  std::vector<std::string> stops_;
  std::string held_;  // the end of the text, which may be the beginning of a stop string
  bool stopped_ = false;
};

}  // namespace llmc
