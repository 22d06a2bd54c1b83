#include "llmc/io/checkpoint/quantized_config.h"

#include <system_error>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/io/checkpoint/huggingface.h"
#include "llmc/io/checkpoint/manifest.h"

namespace llmc {

const char* QuantizedFormat::mode() const {
  if (is_static) return "w8a8-static";
  return quantizes_activations ? "w8a8" : "w8";
}

const char* QuantizedFormat::modes() const {
  if (is_static) return "w8a8-static and w8";
  return quantizes_activations ? "w8a8 and w8" : "w8";
}

namespace {

constexpr const char* kOrientation = "conv1d_in_out";
constexpr const char* kSourceKey = "source_xxh3_128";
constexpr const char* kCalibrationKey = "calibration_xxh3_128";
constexpr const char* kSmoothsGeluKey = "smooths_gelu";

// A member of an object in config.json with the path to it, for errors.
struct Member {
  const Json& json;
  std::string what;  // "DIR/config.json: quantization_config.format"

  Member operator[](const std::string& key) const {
    if (!json.is_object()) fail(what + " is not a JSON object");
    const Json* value = json_member(json, key);
    if (value == nullptr) fail(what + " has no " + printable(key));
    return {*value, what + "." + printable(key)};
  }
  bool has(const std::string& key) const {
    if (!json.is_object()) fail(what + " is not a JSON object");
    const Json* value = json_member(json, key);
    return value != nullptr && !value->is_null();
  }
  bool boolean() const {
    if (!json.is_boolean()) fail(what + " is not true or false");
    return json.boolean();
  }
  std::string text() const { return json_text(json, what); }
};

// Throws unless the member has this value.
void require_value(const Member& object, const char* key, const Json& expected) {
  const Member member = object[key];
  if (member.json == expected) return;
  fail(member.what + " is " + printable(member.json.dump(-1, true)) + ", not " + expected.dump(),
       "supported: int-quantized, weights of 8 bits, symmetric per channel, activations of 8 bits "
       "with a scale per token, or a fixed one per tensor");
}

// The keys that weights and activations of INT8 have in common.
void require_int8(const Member& scheme, const char* strategy, bool dynamic) {
  require_value(scheme, "num_bits", 8);
  require_value(scheme, "type", "int");
  require_value(scheme, "strategy", strategy);
  require_value(scheme, "dynamic", dynamic);
}

// How a group of modules quantizes activations.
struct ActivationScheme {
  bool zero_points = true, is_static = false;
  bool operator==(const ActivationScheme&) const = default;
};

// Checks the groups of modules. Returns nothing if no group quantizes activations.
std::optional<ActivationScheme> read_groups(const Member& groups) {
  if (!groups.json.is_object() || groups.json.empty()) fail(groups.what + " names no group");
  std::optional<ActivationScheme> scheme;
  for (const auto& [name, ignored] : groups.json.items()) {
    const Member group = groups[name];
    const Member weights = group["weights"];
    require_int8(weights, "channel", false);
    require_value(weights, "symmetric", true);
    if (group.has("output_activations"))
      fail(group.what + ": output activations are not supported");
    if (!group.has("input_activations")) continue;
    const Member inputs = group["input_activations"];
    const bool is_static = inputs.has("dynamic") && !inputs["dynamic"].boolean();
    require_int8(inputs, is_static ? "tensor" : "token", !is_static);
    const ActivationScheme own{!inputs["symmetric"].boolean(), is_static};
    if (scheme.value_or(own) != own) {
      fail(groups.what +
           ": the activations of some groups are quantized in another way than those "
           "of others");
    }
    scheme = own;
  }
  return scheme;
}

std::string read_source(const Member& source) {
  const std::string text = source.text();
  const bool digits = text.find_first_not_of("0123456789abcdef") == text.npos;
  if (text.size() != 32 || !digits) fail(source.what + " is not 32 hexadecimal digits");
  return text;
}

std::string read_dtype(const Member& dtype) {
  const std::string name = dtype.text();
  if (name != "fp32" && name != "bf16" && name != "fp16") {
    fail(dtype.what + " is " + printable(name), "allowed: fp32, bf16 or fp16");
  }
  return name;
}

QuantizedFormat read_format(const Member& config) {
  require_value(config, "quant_method", "compressed-tensors");
  require_value(config, "format", "int-quantized");
  const std::optional<ActivationScheme> scheme = read_groups(config["config_groups"]);
  if (config.has("kv_cache_scheme")) fail(config.what + ": a kv_cache_scheme is not supported");
  if (!config.has("llmc")) {
    fail(config.what + " has no llmc: another program quantized the model",
         "give the float model, and quantize it with this engine");
  }
  const Member own = config["llmc"];
  QuantizedFormat format{.quantizes_activations = scheme.has_value(),
                         .is_static = scheme.has_value() && scheme->is_static,
                         .zero_points = !scheme.has_value() || scheme->zero_points};
  const Member mode = own["mode"];
  if (mode.text() != "w8" && mode.text() != "w8a8" && mode.text() != "w8a8-static") {
    fail(mode.what + " is " + printable(mode.text()),
         "this program reads w8, w8a8 and w8a8-static");
  }
  if (mode.text() != format.mode()) {
    fail(mode.what + " is " + mode.text() + ", but the config_groups describe " + format.mode());
  }
  if (format.quantizes_activations) {
    require_value(own, "zero_points", format.zero_points ? "auto" : "off");
  }
  require_value(own, "orientation", kOrientation);
  format.dtype = read_dtype(own["dtype"]);
  format.source = read_source(own[kSourceKey]);
  if (own.has(kCalibrationKey)) format.calibration = read_source(own[kCalibrationKey]);
  if (own.has(kSmoothsGeluKey)) format.smooths_gelu = own[kSmoothsGeluKey].boolean();
  return format;
}

Json int8_json(bool symmetric, const char* strategy, bool dynamic) {
  return {{"num_bits", 8},
          {"type", "int"},
          {"symmetric", symmetric},
          {"strategy", strategy},
          {"dynamic", dynamic}};
}

// `tied_head`: the head has no weights of its own.
Json format_json(const QuantizedFormat& format, bool tied_head) {
  const Json weights = int8_json(true, "channel", false);
  Json inputs = nullptr;
  if (format.quantizes_activations) {
    inputs =
        int8_json(!format.zero_points, format.is_static ? "tensor" : "token", !format.is_static);
  }
  Json own = {{"mode", format.mode()}};
  if (format.quantizes_activations) own["zero_points"] = format.zero_points ? "auto" : "off";
  own["orientation"] = kOrientation;
  own["dtype"] = format.dtype;
  own[kSourceKey] = format.source;
  if (!format.calibration.empty()) own[kCalibrationKey] = format.calibration;
  if (format.smooths_gelu) own[kSmoothsGeluKey] = true;
  const auto group = [&](const char* target, const Json& activations) -> Json {
    return {{"targets", Json::array({target})},
            {"weights", weights},
            {"input_activations", activations},
            {"output_activations", nullptr}};
  };
  Json groups = {{"group_0", group("Conv1D", inputs)}, {"group_1", group("Embedding", nullptr)}};
  Json ignored = Json::array({"transformer.wpe"});
  if (tied_head) {
    ignored.push_back("lm_head");
  } else {
    groups["group_2"] = group("Linear", nullptr);
  }
  return {{"quant_method", "compressed-tensors"},
          {"format", "int-quantized"},
          {"quantization_status", "compressed"},
          {"config_groups", groups},
          {"ignore", ignored},
          {"kv_cache_scheme", nullptr},
          {"llmc", own}};
}

}  // namespace

std::optional<QuantizedFormat> parse_quantized_format(std::string_view text,
                                                      const std::string& file) {
  const Json json = parse_json(text, file);
  if (!json.is_object()) fail(file + " is not a JSON object");
  const Json* config = json_member(json, kQuantizationKey);
  if (config == nullptr || config->is_null()) return std::nullopt;
  return read_format({*config, file + ": " + kQuantizationKey});
}

std::optional<QuantizedFormat> read_quantized_format(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / kConfigName;
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::nullopt;
  return parse_quantized_format(read_file(path), path.string());
}

std::string quantized_config_text(std::string_view config, const QuantizedFormat& format) {
  const char* dtype = format.dtype == "fp32"   ? "float32"
                      : format.dtype == "bf16" ? "bfloat16"
                                               : "float16";
  Json json = parse_json(change_config_dtype(config, dtype), kConfigName, KeyOrder::as_written);
  json[kQuantizationKey] =
      format_json(format, parse_huggingface_config(config, kConfigName).tie_word_embeddings);
  return json.dump(2) + "\n";
}

}  // namespace llmc
