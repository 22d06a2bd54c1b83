// Parses the command line of a program according to its settings table. In addition to what
// setting.h requires, a program P has kName, kDescription, kExamples, settings(), contradiction()
// and comes_later(). The functions exist for the programs that command_line.cpp lists.
#pragma once

#include <optional>
#include <string>

#include "llmc/config/exit_code.h"
#include "llmc/config/version.h"

namespace llmc {

// The answer to a command line that starts no run.
struct CommandLineAnswer {
  int exit_code = kExitOk;
  std::string text;  // of help or the version, for stdout; of an error, without the program's name
};

// Fills `request` from flags and a --config file. Returns an answer if the program must exit now:
// help or the version was requested, or the flags are wrong.
template <class P>
std::optional<CommandLineAnswer> read_command_line(int argc, char** argv,
                                                   typename P::Request& request,
                                                   const BuildText& build = this_build());

// Prints the answer to stdout, or to stderr if it is an error. Returns the exit code.
template <class P>
int print_answer(const CommandLineAnswer& answer);

// Like read_command_line(), and prints the answer. Returns the exit code if the program must exit
// now.
template <class P>
std::optional<int> parse_command_line(int argc, char** argv, typename P::Request& request,
                                      const BuildText& build = this_build());

// The version of the library that parses, such as "2.1.2".
std::string options_library_version();

}  // namespace llmc
