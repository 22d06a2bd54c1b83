// Words for commands that a person can copy into a shell.
#pragma once

#include <string>

namespace llmc {

// Returns `text` as one word of a shell's command line.
std::string shell_word(const std::string& text);

}  // namespace llmc
