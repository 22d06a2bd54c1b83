#include "llmc/base/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "llmc/base/utf8.h"

namespace llmc {

std::string readable_text(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const auto first = static_cast<unsigned char>(text[0]);
    const bool control = (first < 0x20 && first != '\n' && first != '\t') || first == 0x7F;
    out += length == 0 || control ? std::string_view("\xEF\xBF\xBD") : text.substr(0, length);
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

std::string labelled_text(const std::string& name, std::string_view text) {
  if (text.find('\n') == std::string_view::npos) return name + ": " + std::string(text);
  std::string out = name + ":\n";
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    out += end == begin ? "  |" : "  | ";
    out += text.substr(begin, end - begin);
    out += '\n';
    begin = end + 1;
  }
  return out + "  (end of " + name + ")";
}

std::size_t live_line_width() {
  winsize size{};
  const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  return known ? size.ws_col - 1u : std::string::npos;
}

std::string live_line(std::string_view text) {
  const std::size_t width = live_line_width();
  std::size_t end = 0;
  for (std::size_t shown = 0; end < text.size() && shown < width; ++shown) {
    end += std::max<std::size_t>(1, utf8_length(text.substr(end)));
  }
  return "\r" + std::string(text.substr(0, end)) + "\x1b[K";
}

}  // namespace llmc
