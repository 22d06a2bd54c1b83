// Runs check_transformers.py: Hugging Face transformers as a live oracle, if it is installed.
#pragma once

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "llmc/base/error.h"
#include "test/support.h"

namespace llmc::oracle {

struct TransformersCheck {
  bool available = false;  // false: transformers is not installed; skip the test
  bool passed = false;
  double loss = 0;     // the loss printed for --tokens
  std::string output;  // all output, for failure messages
};

inline std::string shell_quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// Runs the script with these arguments, e.g. {dir, "--tokens", file, "--tensors", other_dir}, with
// $PYTHON or else python3. Takes seconds if transformers is installed. Throws llmc::Error if no
// shell can be started.
inline TransformersCheck check_transformers(const std::vector<std::string>& arguments) {
  const char* python = std::getenv("PYTHON");
  std::string command = shell_quoted(python != nullptr ? python : "python3");
  command += " " + shell_quoted(llmc_test::root_dir() + "/test/oracle/check_transformers.py");
  for (const std::string& a : arguments) command += " " + shell_quoted(a);
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  require(pipe != nullptr, "no shell could be started for " + command);
  TransformersCheck result;
  std::array<char, 4096> buffer{};
  while (std::fgets(buffer.data(), buffer.size(), pipe) != nullptr) result.output += buffer.data();
  const int status = pclose(pipe);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
  result.available = code != 77 && code != 127;  // 77: a module is missing; 127: no python
  result.passed = code == 0;
  const std::size_t position = result.output.rfind("loss ");
  if (position != std::string::npos) {
    result.loss = std::strtod(result.output.c_str() + position + 5, nullptr);
  }
  return result;
}

}  // namespace llmc::oracle
