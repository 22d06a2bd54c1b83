// Directories with INT8 weights: what `infer_gpt2 quantize` writes loads to the bits of quantizing
// at load, and each kind of damage has its own error.
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "llmc/infer/quant_mode.h"
#include "llmc/models/gpt2/gpt2_parameters.h"
#include "test/quantized_rig.h"

using namespace llmc;
using namespace llmc_test;

namespace {

template <class T>
void check_round_trip(Quant quant) {
  CAPTURE(dtype_name(kDtypeOf<T>));
  const TemporaryDirectory folder;
  write_float_model(folder.path() / "float");
  quantize_files<T>(folder.path() / "float", folder.path() / "int8", quant);
  Loaded<T> at_load(folder.path() / "float"), stored(folder.path() / "int8");
  for (const ParameterSpec& spec : at_load.table.specs()) {
    CAPTURE(spec.name);
    CHECK(at_load.bytes(spec) == stored.bytes(spec));
  }
}

// The error of loading a model after a change of its directory.
std::string error_after(const std::function<void(const fs::path&)>& change) {
  const TemporaryDirectory folder;
  write_float_model(folder.path() / "float");
  quantize_files<float>(folder.path() / "float", folder.path() / "int8");
  change(folder.path() / "int8");
  return complaint([&] { Loaded<float>{folder.path() / "int8"}; });
}
std::string error_of_tensors(const std::function<void(StoredTensors&)>& change) {
  return error_after([&](const fs::path& path) { change_tensors(path, change); });
}
std::string error_of_config(const std::string& from, const std::string& to) {
  return error_after([&](const fs::path& path) { replace_in_config(path, from, to); });
}

constexpr const char* kLinear = "transformer.h.1.mlp.c_fc.weight";
constexpr const char* kScale = "transformer.h.1.mlp.c_fc.weight_scale";

}  // namespace

TEST_SUITE("quantized_files") {
  TEST_CASE("INT8 weights from files have the bits of quantizing at load") {
    for (const Quant quant : {Quant::w8, Quant::w8a8}) {
      check_round_trip<float>(quant);
      check_round_trip<bf16>(quant);
      check_round_trip<fp16>(quant);
    }
  }

  TEST_CASE("an INT8 tensor times its scales is the float tensor to half a scale") {
    const TemporaryDirectory folder;
    write_float_model(folder.path() / "float");
    quantize_files<bf16>(folder.path() / "float", folder.path() / "int8", Quant::w8);
    const HuggingFaceWeights original(folder.path() / "float");
    const SafetensorsFile file(folder.path() / "int8" / kWeightsName);
    const ParameterTable table = gpt2_parameters(kInt8Config);
    for (const ParameterSpec& spec : table.specs()) {
      CAPTURE(spec.name);
      std::vector<float> values(static_cast<std::size_t>(spec.size()));
      original.load(spec.name, spec.shape, values.data());
      const TensorEntry& tensor = file.get("transformer." + spec.name, spec.shape);
      const MappedFile map = file.map(tensor);
      if (spec.shape.size() == 1 || spec.name == "wpe.weight") {
        CHECK(tensor.dtype == TensorDtype::bf16);
        CHECK(file.find("transformer." + spec.name + "_scale") == nullptr);
        continue;
      }
      REQUIRE(tensor.dtype == TensorDtype::i8);
      const bool rows = spec.name == "wte.weight";
      const Shape shape = rows ? Shape{spec.shape[0], 1} : Shape{1, spec.shape[1]};
      std::vector<float> scales(static_cast<std::size_t>(shape[0] * shape[1]));
      file.read_as_float("transformer." + spec.name + "_scale", shape, scales.data());
      for (std::size_t i = 0; i < values.size(); ++i) {
        const std::size_t columns = static_cast<std::size_t>(spec.shape[1]);
        const float scale = scales[rows ? i / columns : i % columns];
        const float number = scale * static_cast<float>(static_cast<std::int8_t>(map.bytes()[i]));
        const float rounded = to_float(from_float<bf16>(values[i]));
        CHECK(std::abs(number - rounded) <= 0.5001f * scale);
      }
    }
  }

  TEST_CASE("the config keeps the float model's and describes the mode") {
    const TemporaryDirectory folder;
    write_float_model(folder.path() / "float");
    for (const bool activations : {false, true}) {
      for (const bool zero_points : {false, true}) {
        if (!activations && !zero_points) continue;
        const fs::path path =
            folder.path() / (std::to_string(activations) + std::to_string(zero_points));
        quantize_files<fp16>(folder.path() / "float", path, activations ? Quant::w8a8 : Quant::w8,
                             zero_points ? ZeroPoints::automatic : ZeroPoints::off);
        CHECK(read_huggingface_config(path) == to_huggingface(kInt8Config, 36));
        const auto format = find_quantized_format(path);
        REQUIRE(format.has_value());
        CHECK(format->quantizes_activations == activations);
        CHECK(format->zero_points == zero_points);
        CHECK(format->dtype == "fp16");
        CHECK(contains(read_file(path / "config.json"), "\"torch_dtype\": \"float16\""));
      }
    }
    CHECK_FALSE(find_quantized_format(folder.path() / "float").has_value());
  }

  TEST_CASE("the source's hash depends on every float tensor and not on the mode") {
    const TemporaryDirectory folder;
    write_float_model(folder.path() / "float");
    const auto source = [&](const std::string& name, Quant quant) {
      quantize_files<float>(folder.path() / "float", folder.path() / name, quant);
      return find_quantized_format(folder.path() / name)->source;
    };
    const std::string first = source("a", Quant::w8);
    CHECK(source("b", Quant::w8a8) == first);
    change_tensors(folder.path() / "float",
                   [](StoredTensors& t) { t["transformer.ln_f.bias"].set(0, 1.0f); });
    CHECK(source("c", Quant::w8) != first);
  }

  TEST_CASE("damaged INT8 tensors are errors that name file, tensor and problem") {
    const auto expect = [](const std::string& error, const std::string& tensor,
                           const std::string& problem) {
      CAPTURE(error);
      CHECK(contains(error, "/int8/model.safetensors"));
      CHECK(contains(error, tensor));
      CHECK(contains(error, problem));
    };
    expect(error_of_tensors([](auto& t) {
             t[kLinear].header.shape = {96, 24};
           }),
           kLinear, "has shape (96, 24), expected (24, 96)");
    expect(error_of_tensors([](auto& t) { t[kScale].header.shape = {96}; }), kScale,
           "has shape (96), expected (1, 96)");
    expect(error_of_tensors([](auto& t) { t[kLinear].set(3, std::int8_t{-128}); }), kLinear,
           "code 3 is -128, outside [-127, 127]");
    expect(error_of_tensors([](auto& t) {
             t[kScale] = {{"", TensorDtype::bf16, {1, 96}}, std::vector<std::byte>(192)};
           }),
           kScale, "has dtype BF16");
    const std::pair<float, const char*> wrong_scales[] = {
        {0.0f, "element [0, 7] is 0, not positive and finite"},
        {-1.0f, "element [0, 7] is -1, not positive and finite"},
        {std::numeric_limits<float>::infinity(), "element [0, 7] is inf"},
        {std::numeric_limits<float>::quiet_NaN(), "element [0, 7] is nan"}};
    for (const auto& [scale, problem] : wrong_scales) {
      const float value = scale;
      expect(error_of_tensors([&](auto& t) { t[kScale].set(7, value); }), kScale, problem);
    }
  }

  TEST_CASE("missing, extra and truncated tensors are errors") {
    CHECK(contains(error_of_tensors([](auto& t) { t.erase(kScale); }),
                   "/int8: missing h.1.mlp.c_fc.weight_scale"));
    CHECK(contains(error_of_tensors([](auto& t) { t.erase(kLinear); }),
                   "/int8: missing h.1.mlp.c_fc.weight"));
    CHECK(contains(error_of_tensors([](auto& t) {
                     t["transformer.h.0.mlp.c_fc.input_scale"] = t["transformer.ln_f.bias"];
                   }),
                   "unexpected h.0.mlp.c_fc.input_scale"));
    CHECK(contains(error_after([](const fs::path& path) {
                     fs::resize_file(path / kWeightsName, fs::file_size(path / kWeightsName) - 9);
                   }),
                   "truncated"));
  }

  TEST_CASE("codes without a quantization_config, and one without codes, are errors") {
    const std::string codes = error_after([](const fs::path& path) {
      replace_in_config(path, "quantization_config", "another_key");
    });
    CHECK(contains(codes, "/int8/model.safetensors: tensor transformer."));
    CHECK(contains(codes, "has dtype I8, but config.json has no quantization_config"));
    const std::string floats = error_after([](const fs::path& path) {
      fs::copy_file(path / ".." / "float" / kWeightsName, path / kWeightsName,
                    fs::copy_options::overwrite_existing);
    });
    CHECK(contains(floats, "/int8/model.safetensors: tensor transformer.wte.weight has dtype F32"));
    CHECK(contains(floats, "config.json has a quantization_config, which requires I8"));
  }

  TEST_CASE("a quantization_config of another scheme is an error that names the key") {
    const auto expect = [](const std::string& error, const std::string& problem) {
      CAPTURE(error);
      CHECK(contains(error, "/int8/config.json: quantization_config"));
      CHECK(contains(error, problem));
    };
    expect(error_of_config("\"compressed-tensors\"", "\"gptq\""), "quant_method is \"gptq\"");
    expect(error_of_config("int-quantized", "pack-quantized"), "format is \"pack-quantized\"");
    expect(error_of_config("\"num_bits\": 8", "\"num_bits\": 4"),
           "config_groups.group_0.weights.num_bits is 4, not 8");
    expect(error_of_config("\"type\": \"int\"", "\"type\": \"float\""), "type is \"float\"");
    expect(error_of_config("\"symmetric\": true", "\"symmetric\": false"), "symmetric is false");
    expect(error_of_config("\"channel\"", "\"group\""), "strategy is \"group\"");
    expect(error_of_config("\"dynamic\": true", "\"dynamic\": false"),
           "input_activations.strategy is \"token\", not \"tensor\"");
    expect(error_of_config("\"output_activations\": null", "\"output_activations\": {}"),
           "output activations are not supported");
    expect(error_of_config("\"kv_cache_scheme\": null", "\"kv_cache_scheme\": {}"),
           "kv_cache_scheme is not supported");
    expect(error_of_config("\"llmc\"", "\"other\""), "another program quantized the model");
    expect(error_of_config("\"mode\": \"w8a8\"", "\"mode\": \"w4a8\""), "mode is w4a8");
    expect(error_of_config("\"mode\": \"w8a8\"", "\"mode\": \"w8\""),
           "mode is w8, but the config_groups describe w8a8");
    expect(error_of_config("\"zero_points\": \"auto\"", "\"zero_points\": \"off\""),
           "zero_points is \"off\"");
    expect(error_of_config("conv1d_in_out", "linear_out_in"), "orientation is \"linear_out_in\"");
    expect(error_of_config("\"dtype\": \"fp32\"", "\"dtype\": \"fp64\""), "dtype is fp64");
    expect(error_of_config("\"config_groups\"", "\"groups\""), "has no config_groups");
    expect(error_of_config("\"source_xxh3_128\": \"", "\"source_xxh3_128\": \"g"),
           "is not 32 hexadecimal digits");
  }

  TEST_CASE("only weights that are INT8 in memory can hold INT8 weights of files") {
    const TemporaryDirectory folder;
    write_float_model(folder.path() / "float");
    quantize_files<float>(folder.path() / "float", folder.path() / "int8");
    const std::string path = folder.file("int8");
    const std::string expected = " holds INT8 weights of `infer_gpt2 quantize`";
    CHECK(contains(complaint([&] { Loaded<float>(path, false); }), path + expected));
    CHECK(contains(complaint([&] { find_float_model("--init-from", path); }),
                   "--init-from " + path + expected));
    CHECK(contains(complaint([&] { quantize_files<float>(path, folder.path() / "again"); }),
                   "quantize " + path + expected));
    CHECK_FALSE(fs::exists(folder.path() / "again"));
  }

  TEST_CASE("the mode is that of the files unless a flag selects another of theirs") {
    const TemporaryDirectory folder;
    write_float_model(folder.path() / "float");
    quantize_files<float>(folder.path() / "float", folder.path() / "w8", Quant::w8);
    quantize_files<float>(folder.path() / "float", folder.path() / "w8a8", Quant::w8a8,
                          ZeroPoints::off);
    const auto resolved = [&](const std::string& model, const InferRequest& request) {
      InferConfig settings{};
      settings.model = folder.file(model);
      settings.quant = request.quant.value_or(Quant::none);
      settings.zero_points = request.zero_points.value_or(ZeroPoints::automatic);
      resolve_quant(request, settings);
      return std::pair(settings.quant, settings.zero_points);
    };
    const auto request = [](std::optional<Quant> quant, std::optional<ZeroPoints> zeros = {}) {
      InferRequest typed;
      typed.quant = quant;
      typed.zero_points = zeros;
      return typed;
    };
    using Z = ZeroPoints;
    CHECK(resolved("float", request({})).first == Quant::none);
    CHECK(resolved("float", request(Quant::w8a8)) == std::pair(Quant::w8a8, Z::automatic));
    CHECK(resolved("w8", request({})).first == Quant::w8);
    CHECK(resolved("w8a8", request({})) == std::pair(Quant::w8a8, Z::off));
    CHECK(resolved("w8a8", request(Quant::w8a8)) == std::pair(Quant::w8a8, Z::off));
    CHECK(resolved("w8a8", request({}, Z::automatic)) == std::pair(Quant::w8a8, Z::automatic));
    CHECK(resolved("w8a8", request(Quant::w8)).first == Quant::w8);
    CHECK(contains(complaint([&] { resolved("w8", request(Quant::w8a8)); }),
                   "--quant w8a8 does not fit --model " + folder.file("w8")));
    CHECK(contains(complaint([&] { resolved("w8a8", request(Quant::none)); }),
                   "which has INT8 weights for w8a8 and w8"));
    CHECK(contains(complaint([&] { resolved("w8", request({}, Z::off)); }),
                   "--zero-points is for INT8 activations"));
  }

  TEST_CASE("quantize replaces nothing, and a failure leaves no directory") {
    const TemporaryDirectory folder;
    const fs::path model = folder.path() / "float", out = folder.path() / "int8";
    write_float_model(model);
    fs::create_directory(out);
    write((out / "notes").string(), "x");
    CHECK(contains(complaint([&] { quantize_files<float>(model, out); }),
                   "exists and is not an empty directory"));
    CHECK(read_file(out / "notes") == "x");
    fs::remove(out / "notes");
    // The directory of a killed writer is removed; that of another model stays.
    fs::create_directory(folder.path() / "int8.tmp-0123abcd");
    fs::create_directory(folder.path() / "other.tmp-0123abcd");
    quantize_files<float>(model, out);
    CHECK(fs::exists(out / kWeightsName));
    CHECK_FALSE(fs::exists(folder.path() / "int8.tmp-0123abcd"));
    CHECK(fs::exists(folder.path() / "other.tmp-0123abcd"));

    change_tensors(
        model, [](StoredTensors& t) { t[kLinear].set(5, std::numeric_limits<float>::infinity()); });
    CHECK(contains(complaint([&] { quantize_files<float>(model, folder.path() / "new"); }),
                   "h.1.mlp.c_fc.weight: element [0, 5] is inf, not finite"));
    CHECK_FALSE(fs::exists(folder.path() / "new"));
    Notice::set_quiet(false);
  }
}
