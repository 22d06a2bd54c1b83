// Converts texts to token files for training, and back. `tokenize --help` lists the flags; the work
// is in llmc/tokenize.
#include <exception>

#include "llmc/base/signal_request.h"      // SignalRequest: receives stop signals
#include "llmc/base/standard_output.h"     // reserve_standard_output
#include "llmc/config/command_line.h"      // parse_command_line
#include "llmc/config/exit_code.h"         // report_failure
#include "llmc/config/tokenize_table.h"    // the flags
#include "llmc/tokenize/detokenize.h"      // detokenize_files
#include "llmc/tokenize/tokenize_files.h"  // tokenize_files

int main(int argc, char** argv) {
  using namespace llmc;
  SignalRequest::start_thread("tokenize");
  SignalRequest::set_work("before the first token");
  reserve_standard_output();
  TokenizeRequest request;
  if (const auto exit_code = parse_command_line<TokenizeProgram>(argc, argv, request)) {
    return *exit_code;
  }
  try {
    const TokenizeConfig settings = resolve(request);
    if (settings.decode) {
      detokenize_files(settings);
    } else {
      tokenize_files(settings);
    }
    return kExitOk;
  } catch (const std::exception& error) {
    return report_failure<TokenizeProgram>(error);
  }
}
