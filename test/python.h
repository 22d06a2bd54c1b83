// Runs Python for tests, if it is installed: its libraries define what our files must agree with.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "llmc/base/error.h"
#include "test/support.h"

namespace llmc_test {

// $PYTHON, else python3.
inline std::string python() {
  const char* value = std::getenv("PYTHON");
  return value != nullptr ? value : "python3";
}

// Whether that Python has all of these modules, for example "torch, transformers". Does not import
// them, because that takes seconds.
inline bool python_has(const std::string& modules) {
  const std::string script =
      "import importlib.util, sys; "
      "sys.exit(not all(importlib.util.find_spec(m.strip()) for m in \"" +
      modules + "\".split(\",\")))";
  const std::string command = "'" + python() + "' -c '" + script + "' >/dev/null 2>&1";
  return std::system(command.c_str()) == 0;
}

// Runs a script in `directory` and returns its output. Throws with its error output if it fails.
inline std::string run_python(const std::string& script, const std::filesystem::path& directory) {
  const std::string file = (directory / "script.py").string();
  const std::string output = (directory / "script.out").string();
  std::ofstream(file) << script;
  const std::string command =
      "cd '" + directory.string() + "' && '" + python() + "' script.py > script.out 2> script.err";
  const bool success = std::system(command.c_str()) == 0;
  std::ostringstream text;
  text << std::ifstream(success ? output : (directory / "script.err").string()).rdbuf();
  llmc::require(success, "the Python script failed:\n" + text.str());
  return text.str();
}

}  // namespace llmc_test
