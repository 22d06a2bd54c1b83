#include "llmc/config/infer_table.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "llmc/config/choices.h"
#include "llmc/config/eval_spec.h"
#include "llmc/config/fill_settings.h"
#include "llmc/config/infer_rows.h"
#include "llmc/config/infer_values.h"
#include "llmc/device/dtype.h"

namespace llmc {

namespace {

// Returns the error of a command's arguments, or an empty text.
std::string command_error(const std::vector<std::string>& words) {
  if (words.empty()) return {};
  const std::size_t num_arguments = words.size() - 1;
  if (words[0] == "bench" && num_arguments > 0) {
    return "the command bench has no argument: unexpected argument '" + words[1] + "'";
  }
  if (words[0] == "perplexity" && num_arguments != 1) {
    return "the command perplexity needs one FILE, not " + std::to_string(num_arguments);
  }
  if (words[0] == "quantize" && num_arguments != 2) {
    return "the command quantize needs two arguments, IN and OUT, not " +
           std::to_string(num_arguments);
  }
  if (words[0] == "merge" && num_arguments != 3) {
    return "the command merge needs three arguments, BASE, ADAPTER and OUT, not " +
           std::to_string(num_arguments);
  }
  if (words[0] == "classify" && num_arguments != 1) {
    return "the command classify needs one FILE, not " + std::to_string(num_arguments);
  }
  if (words[0] != "score") return {};
  if (num_arguments == 0) return "the command score needs at least one TASK:FILE";
  for (std::size_t i = 1; i <= num_arguments; ++i) {
    const std::string error = infer_detail::parse_error<parse_eval_spec>(words[i]);
    if (!error.empty()) return "score: " + error;
  }
  return {};
}

// Returns the error of flags for the command quantize, or an empty text.
std::string quantize_error(const InferRequest& request) {
  const auto words = request.command.value_or(std::vector<std::string>{});
  if (words.empty() || words.front() != "quantize") return {};
  const Quant quant = request.quant.value_or(Quant::none);
  if (quant == Quant::none) return "the command quantize needs --quant w8, w8a8 or w8a8-static";
  if (quant == Quant::w8a8_static && !request.calibrate) {
    return "--quant w8a8-static needs a calibration text; give one with --calibrate";
  }
  return {};
}

// Returns the error of a flag that does not fit --interactive, or an empty text.
std::string interactive_error(const InferRequest& request, std::int64_t samples) {
  if (!request.interactive.value_or(false)) return {};
  if (samples > 1) {
    return "--interactive has one completion, --samples is " + std::to_string(samples);
  }
  if (request.prompt == "-") return "--interactive and --prompt - both read stdin; use --file";
  if (!request.stream.value_or(true)) {
    return "--interactive prints the text as it is generated; leave --no-stream out";
  }
  if (request.display_prompt.value_or(false)) {
    return "--interactive does not print prompts, which the terminal shows; leave "
           "--display-prompt out";
  }
  return {};
}

// Returns the error of too many completions, or an empty text.
std::string completion_error(const InferRequest& request) {
  constexpr std::int64_t kMaxSamples = 1'000'000;
  const std::int64_t samples = request.samples.value_or(1);
  if (samples > kMaxSamples) {
    return "--samples " + std::to_string(samples) + " is more than " + std::to_string(kMaxSamples);
  }
  if (samples > 1 && request.json.value_or(false)) {
    return "--json prints one completion, --samples is " + std::to_string(samples) +
           "; use --jsonl";
  }
  if (request.stream.value_or(false) && (samples > 1 || request.prompts)) {
    return "--stream prints one completion as it is generated, " +
           (request.prompts ? "--prompts has several" : "--samples is " + std::to_string(samples)) +
           "; leave --stream out";
  }
  return interactive_error(request, samples);
}

// Returns the error of values that depend on each other, or an empty text.
std::string value_error(const InferRequest& request) {
  const Dtype dtype = request.dtype.value_or(Dtype::fp32);
  const CacheDtype kv = request.kv_dtype.value_or(cache_dtype(dtype));
  if (kv != cache_dtype(dtype) && kv != CacheDtype::int8 && dtype != Dtype::fp32) {
    return std::string("--kv-dtype ") + choice_name(kv) + " does not agree with --dtype " +
           dtype_name(dtype) + "; leave it out, or use --kv-dtype int8 or --dtype fp32";
  }
  // Without --quant, the mode may be that of a quantized model.
  if (request.zero_points && !quantizes_activations(request.quant.value_or(Quant::w8a8))) {
    return "--zero-points is for INT8 activations; use it with --quant w8a8";
  }
  if (request.calibrate && !quantizes_activations(request.quant.value_or(Quant::none))) {
    return "--calibrate is for INT8 activations; use it with --quant w8a8 or w8a8-static";
  }
  const std::string command =
      !request.command || request.command->empty() ? "" : request.command->front();
  if (command == "classify" && request.quant == Quant::w8a8_static) {
    return "--quant w8a8-static needs a calibration text, which the command classify does not "
           "read; use --quant w8a8";
  }
  if (request.bin_format && command != "perplexity" && command != "score" && !request.calibrate) {
    return "--bin-format has no effect without a token file: it is for perplexity, score and "
           "--calibrate";
  }
  if (request.smoothing && !request.calibrate) {
    return "--smoothing needs a calibration text; give one with --calibrate";
  }
  if (request.stride && request.seq_len && *request.stride > *request.seq_len) {
    return "--stride " + std::to_string(*request.stride) + " is more than --seq-len " +
           std::to_string(*request.seq_len);
  }
  if (!request.logit_bias) return {};
  const std::string error =
      infer_detail::parse_error<parse_logit_biases, std::vector<std::string>>(*request.logit_bias);
  return error.empty() ? error : "--logit-bias: " + error;
}

}  // namespace

std::string InferProgram::contradiction(const InferRequest& request) {
  for (const std::string& error :
       {command_error(request.command.value_or(std::vector<std::string>{})),
        quantize_error(request), completion_error(request), value_error(request)}) {
    if (!error.empty()) return error;
  }
  return {};
}

const Settings<InferProgram>& InferProgram::settings() {
  static const Settings<InferProgram> table = [] {
    Settings<InferProgram> all;
    add_group(all, "Model and text", infer_detail::text_rows());
    add_group(all, "Generation", infer_detail::generation_rows());
    add_group(all, "Sampling", infer_detail::sampling_rows());
    add_group(all, "Sampling", infer_detail::penalty_rows());
    add_group(all, "Device", infer_detail::device_rows());
    add_group(all, "Output", infer_detail::output_rows());
    add_group(all, "Commands perplexity and score", infer_detail::evaluation_rows());
    add_group(all, "Command bench", infer_detail::bench_rows());
    return all;
  }();
  return table;
}

InferConfig resolve(const InferRequest& request) {
  InferConfig config = fill_settings<InferProgram>(InferProgram::settings(), request, {});
  if (config.seed < 0) config.seed = draw_seed();
  return config;
}

}  // namespace llmc
