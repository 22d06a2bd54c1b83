// Texts to token files for training, and back. `tokenize --help` lists what it can be told; the
// work is in llmc/io.
#include <exception>
#include <iostream>

#include "llmc/config/tokenize_command_line.h"  // parse_command_line
#include "llmc/tokenize/detokenize.h"           // detokenize_files
#include "llmc/tokenize/tokenize_files.h"       // tokenize_files

int main(int argc, char** argv) {
  using namespace llmc;
  TokenizeSettings settings;
  if (const auto exit_code = parse_command_line(argc, argv, settings)) return *exit_code;
  try {
    if (settings.decode) {
      detokenize_files(settings);
    } else {
      tokenize_files(settings);
    }
    return kExitOk;
  } catch (const std::exception& error) {
    std::cerr << "tokenize: " << error.what() << "\n";
    return kExitFailed;
  }
}
