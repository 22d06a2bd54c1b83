// Fuzz target for flags and a --config file. The first byte selects the program. Flags follow, one
// per line, and after a line "---" the file.
#pragma once

#include <iostream>
#include <sstream>

#include "llmc/config/command_line.h"
#include "llmc/config/infer_table.h"
#include "llmc/config/tokenize_table.h"
#include "llmc/config/train_table.h"
#include "test/fuzz/fuzz.h"

namespace llmc_fuzz {

// Discards the output to std::cout and std::cerr within its scope; printing always succeeds.
class Silence {
 public:
  Silence() : out_(std::cout.rdbuf(output_.rdbuf())), err_(std::cerr.rdbuf(output_.rdbuf())) {}
  ~Silence() {
    std::cout.rdbuf(out_);
    std::cerr.rdbuf(err_);
  }
  Silence(const Silence&) = delete;
  Silence& operator=(const Silence&) = delete;

 private:
  std::ostringstream output_;
  std::streambuf* out_;
  std::streambuf* err_;
};

template <class Program>
void read_flags(std::vector<std::string>& arguments) {
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  typename Program::Request request;
  const Silence silence;
  const auto code =
      llmc::parse_command_line<Program>(static_cast<int>(argv.size()), argv.data(), request);
  expect(!code || *code == llmc::kExitOk || *code == llmc::kExitUsage,
         "the program continues, prints its help, or rejects its flags");
}

inline void command_line(std::string_view input) {
  static const Folder folder;
  const std::size_t program = take_choice(input, 3);
  const auto files = parts(input, 2);
  std::vector<std::string> arguments = {"program", "--config=" + folder.write("a.toml", files[1])};
  std::string_view lines = files[0];
  while (!lines.empty()) {
    const std::string_view line = lines.substr(0, lines.find('\n'));
    lines.remove_prefix(std::min(line.size() + 1, lines.size()));
    // A second --config could name any file, and reading that file may never end.
    const std::string argument(line.substr(0, line.find('\0')));
    if (!argument.empty() && !argument.starts_with("--config")) arguments.push_back(argument);
  }
  if (program == 0) read_flags<llmc::TrainProgram>(arguments);
  if (program == 1) read_flags<llmc::InferProgram>(arguments);
  if (program == 2) read_flags<llmc::TokenizeProgram>(arguments);
}

}  // namespace llmc_fuzz
