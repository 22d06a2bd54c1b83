// Continues texts with a GPT-2, and measures one. `infer_gpt2 --help` lists the flags.
// Everything else is in llmc/.
#include <exception>
#include <string>
#include <utility>

#include "llmc/base/notice.h"             // Notice: messages on stderr
#include "llmc/base/signal_request.h"     // SignalRequest: receives stop signals
#include "llmc/base/standard_output.h"    // reserve_standard_output
#include "llmc/config/command_line.h"     // parse_command_line
#include "llmc/config/exit_code.h"        // report_failure
#include "llmc/config/infer_table.h"      // the flags
#include "llmc/device/select.h"           // select_device: GPU or host
#include "llmc/eval/quality_commands.h"   // perplexity, score
#include "llmc/infer/classify_command.h"  // classify_texts
#include "llmc/infer/find_models.h"       // find_models: directories of weights
#include "llmc/infer/generate_command.h"  // generate_texts, interact
#include "llmc/infer/job.h"               // make_job: model, tokenizer and prompts, all checked
#include "llmc/infer/merge_command.h"     // merge_model
#include "llmc/infer/quantize_command.h"  // quantize_model
#include "llmc/infer/speed_bench.h"       // bench

namespace llmc {

void run(const InferConfig& settings) {
  const std::string command = settings.command.empty() ? "" : settings.command.front();
  SignalRequest::set_work(command.empty() ? "before the first text"
                                          : "in " + command + ": it is not complete");
  if (command == "quantize") return quantize_model(settings);
  if (command == "merge") return merge_model(settings);
  if (command == "classify") return classify_texts(settings);
  if (command == "perplexity") return perplexity(settings);
  if (command == "score") return score(settings);
  if (command == "bench") return bench(settings);
  Job job = make_job(settings);
  if (settings.interactive) return interact(settings, std::move(job));
  generate_texts(settings, job);
}

}  // namespace llmc

int main(int argc, char** argv) {
  using namespace llmc;
  SignalRequest::start_thread("infer_gpt2");
  reserve_standard_output();
  InferRequest request;
  if (const auto exit_code = parse_command_line<InferProgram>(argc, argv, request)) {
    return *exit_code;
  }
  try {
    InferConfig settings = resolve(request);
    Notice::set_quiet(settings.quiet);
    find_models(request, settings);
    select_device(choice_name(settings.device), argv);
    run(settings);
    return kExitOk;
  } catch (const std::exception& error) {
    return report_failure<InferProgram>(error);
  }
}
