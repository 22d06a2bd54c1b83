#include "llmc/infer/quant_mode.h"

#include <optional>
#include <string>

#include "llmc/base/error.h"
#include "llmc/config/choices.h"
#include "llmc/io/checkpoint/quantized_config.h"
#include "llmc/models/pretrained.h"

namespace llmc {

namespace {

// The mode of a model with INT8 weights. Throws if the files do not have the mode that was given.
Quant mode_of(const QuantizedFormat& format, std::optional<Quant> given, const std::string& model) {
  const Quant own = format.is_static               ? Quant::w8a8_static
                    : format.quantizes_activations ? Quant::w8a8
                                                   : Quant::w8;
  if (!given || *given == own) return own;
  if (*given == Quant::w8) return Quant::w8;
  fail_usage(std::string("--quant ") + choice_name(*given) + " does not fit --model " + model +
                 ", which has INT8 weights for " + format.modes(),
             "leave --quant out, or give the float model");
}

}  // namespace

void resolve_quant(const InferRequest& request, InferConfig& settings) {
  if (const auto format = find_quantized_format(settings.model)) {
    settings.quant = mode_of(*format, request.quant, settings.model);
    if (!request.zero_points && !format->zero_points) settings.zero_points = ZeroPoints::off;
    if (!settings.calibrate.empty()) {
      fail_usage("--calibrate needs a float model; " + settings.model + " is quantized",
                 "give --calibrate to quantize");
    }
  }
  if (request.zero_points && !quantizes_activations(settings.quant)) {
    fail_usage("--zero-points is for INT8 activations", "use it with --quant w8a8");
  }
}

}  // namespace llmc
