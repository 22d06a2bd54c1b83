// Continues a text with a GPT-2. `infer_gpt2 --help` lists the flags. One translation
// unit: everything else is in llmc/.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <string>

#include "llmc/base/notice.h"              // Notice: messages on stderr
#include "llmc/base/number_text.h"         // number_text
#include "llmc/config/command_line.h"      // parse_command_line
#include "llmc/config/infer_table.h"       // the flags
#include "llmc/config/quantities.h"        // error_text
#include "llmc/device/select.h"            // select_device: GPU or host
#include "llmc/infer/decoder.h"            // Decoder: the model with a key-value cache
#include "llmc/infer/generate.h"           // generate: the loop over tokens
#include "llmc/infer/generation_report.h"  // report_json: what --json prints
#include "llmc/infer/job.h"                // make_job: model, tokenizer and prompt, all checked
#include "llmc/infer/text_stream.h"        // TextStream: text of generated tokens
#include "llmc/model/engine.h"             // Engine: weights, model and memory
#include "llmc/model/pretrained.h"         // load_weights: from a directory or a .bin

namespace llmc {

// Prints the model, the device and the memory; throws if the device has too little free memory.
void describe(const Job& job, const InferConfig& settings, const MemoryPlan& memory) {
  const DeviceProperties device = device_properties();
  Notice::print("model: " + std::to_string(job.config.layers) + " layers, " +
                std::to_string(job.config.heads) + " heads, " +
                std::to_string(job.config.channels) + " channels, context " +
                std::to_string(job.config.context) + ", vocabulary " +
                std::to_string(job.config.vocabulary) + ", " + dtype_name(settings.dtype));
  Notice::print("device: " + std::string(device.name) + ", " + megabytes(device.free_memory) +
                " free");
  Notice::print("memory: " + memory.report());
  if (memory.total() <= device.free_memory) return;
  fail("the model needs " + megabytes(memory.total()) + " of device memory, " +
           megabytes(device.free_memory) + " are free",
       "use --dtype bf16, which needs half the memory of fp32, a shorter prompt or a smaller "
       "--tokens");
}

void print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) fail("stdout cannot be written");
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

template <class T>
void run(const Job& job, const InferConfig& settings) {
  Engine<T> engine(job.config, job.shape().run_shape());
  Decoder<T> decoder(engine.runner(), job.shape(), engine.memory());
  describe(job, settings, engine.memory());
  engine.allocate();
  load_weights(settings.model, engine.state(), engine.stream());

  GenerationReport report;
  report.prompt_tokens = std::ssize(job.prompt);
  report.seed = static_cast<std::uint64_t>(settings.seed);
  TextStream stream_of_text(*job.tokenizer, job.prompt.back());
  const auto emit = [&](const std::string& text) {
    report.text += text;
    if (!settings.json) print(text);
  };
  const auto start = std::chrono::steady_clock::now();
  double first_token_seconds = 0;
  report.finish =
      generate(decoder, {job.prompt}, job.options, [&](std::int64_t, std::int32_t token) {
        if (report.ids.empty()) first_token_seconds = seconds_since(start);
        report.ids.push_back(token);
        emit(stream_of_text.push(token));
        return true;
      });
  emit(stream_of_text.finish());
  const double total_seconds = seconds_since(start);
  if (report.ids.empty()) first_token_seconds = total_seconds;

  if (settings.json) print(report_json(report) + "\n");
  if (!settings.json && isatty(STDOUT_FILENO) != 0) print("\n");
  Notice::print("prompt: " + std::to_string(report.prompt_tokens) +
                number_text(" tokens, first token after %.1f ms", 1e3 * first_token_seconds));
  const auto later_tokens = static_cast<double>(report.ids.size()) - 1;
  const double speed = later_tokens > 0 ? later_tokens / (total_seconds - first_token_seconds) : 0;
  Notice::print("generated: " + std::to_string(report.ids.size()) + " tokens (" +
                finish_name(report.finish) + number_text("), %.1f tok/s after the first", speed));
}

}  // namespace llmc

int main(int argc, char** argv) {
  using namespace llmc;
  InferRequest request;
  if (const auto exit_code = parse_command_line<InferProgram>(argc, argv, request)) {
    return *exit_code;
  }
  try {
    InferConfig settings = resolve(request);
    Notice::set_quiet(settings.quiet);
    settings.model = find_pretrained("--model", settings.model);
    select_device(choice_name(settings.device), argv);
    const Job job = make_job(settings);
    dispatch_dtype(settings.dtype, [&]<class T>() { run<T>(job, settings); });
    return kExitOk;
  } catch (const std::exception& error) {
    Notice::warn("infer_gpt2: " + error_text(error, InferProgram::settings()));
    return kExitFailed;
  }
}
