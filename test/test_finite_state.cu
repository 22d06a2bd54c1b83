// Weights and moments that are not finite: errors when a checkpoint is loaded, and when a state is
// saved, which leaves no file.
#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string>
#include <string_view>

#include "llmc/models/pretrained.h"
#include "llmc/train/checkpoint/training_checkpoint.h"
#include "test/model_rig.h"
#include "test/write_file.h"

using namespace llmc;
using namespace llmc_test;

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
const ModelConfig kConfig = {
    .vocabulary = 11, .context = 4, .layers = 1, .heads = 1, .channels = 8};

template <class T>
struct TinyState {
  TinyState() : rig(kConfig, {.B = 1, .T = 4}) {
    state().clear(stream());
    state().initialise(3, stream());
  }
  TrainingState<T>& state() { return rig.state(); }
  Stream& stream() { return rig.stream(); }

  std::string save(const std::filesystem::path& root, std::int64_t step) {
    return save_checkpoint(root, to_huggingface(kConfig, {}), {.step = step}, 1, state(), stream());
  }
  std::string save_error(const std::filesystem::path& root, std::int64_t step) {
    return complaint([&] { save(root, step); });
  }
  std::string load_error(const std::filesystem::path& path) {
    return complaint([&] { load_checkpoint(path, 1, state(), stream()); });
  }

  // Sets an element of what the state keeps between steps, such as "first moments".
  void set(std::string_view kind, const std::string& parameter, std::int64_t index, float value) {
    bool is_set = false;
    state().visit_kept(
        [&](const char* name, const ParameterSpec& spec, const RunState::ReadValues& read, bool) {
          if (name != kind || spec.name != parameter) return;
          read([&](std::span<const std::byte> values) {
            if (values.size() != sizeof(float) * static_cast<std::size_t>(spec.size())) return;
            auto* const numbers = const_cast<std::byte*>(values.data());
            copy_to_device(reinterpret_cast<float*>(numbers) + index, &value, 1, stream());
            stream().synchronize();
            is_set = true;
          });
        });
    REQUIRE(is_set);
  }

  ModelRig<T> rig;
};

// Replaces one number of a tensor in a file. A reader of checkpoints trusts the manifest, and only
// --resume verifies the files.
void replace_float(const std::filesystem::path& path, const std::string& tensor, std::int64_t index,
                   float value) {
  std::string bytes = read_file(path);
  {
    const SafetensorsFile file(path);
    const auto offset = static_cast<std::size_t>(file.find(tensor)->begin);
    std::memcpy(bytes.data() + offset + static_cast<std::size_t>(4 * index), &value, 4);
  }
  write_file(path, bytes);
}

}  // namespace

TEST_SUITE("finite_state") {
  TEST_CASE("loading a checkpoint refuses weights and moments that are not finite") {
    const TemporaryDirectory folder;
    TinyState<float> run;
    const std::filesystem::path good = run.save(folder.path(), 1);
    REQUIRE(run.load_error(good) == "");
    const auto error = [&](const char* file, const std::string& tensor, std::int64_t index,
                           float value) {
      const std::filesystem::path bad = folder.path() / "bad";
      std::filesystem::remove_all(bad);
      std::filesystem::copy(good, bad);
      replace_float(bad / file, tensor, index, value);
      const std::string text = run.load_error(bad);
      const std::string label = (bad / file).string() + ": tensor " + tensor + ": element ";
      CAPTURE(text);
      CHECK(text.starts_with(label));
      return text.substr(std::min(label.size(), text.size()));
    };
    const std::string weight = "h.0.mlp.c_fc.weight";  // (8, 32)
    for (const float value : {kNan, kInfinity, -kInfinity}) {
      const std::string name = number_text("%g", value);
      CHECK(error(kWeightsName, "transformer." + weight, 0, value)
                .starts_with("[0, 0] is " + name + ", not finite\n  hint: use a checkpoint from"));
      CHECK(contains(error(kWeightsName, "transformer." + weight, 8 * 32 - 1, value),
                     "[7, 31] is " + name + ", not finite"));
      CHECK(contains(error(kWeightsName, "transformer.ln_f.bias", 7, value), "[7] is " + name));
      for (const char* moment : {"first_moment.", "second_moment."}) {
        CHECK(contains(error(kMomentsName, moment + weight, 33, value), "[1, 1] is " + name));
      }
    }
    CHECK(contains(error(kMomentsName, "second_moment.ln_f.bias", 2, -1e-30f),
                   "[2] is -1e-30, negative"));
    // The first moment may be negative, and so may a zero.
    for (const auto& [tensor, value] : {std::pair("first_moment.ln_f.bias", -1.0f),
                                        std::pair("second_moment.ln_f.bias", -0.0f)}) {
      replace_float(good / kMomentsName, tensor, 2, value);
      CHECK(run.load_error(good) == "");
    }
  }

  TEST_CASE("a state that is not finite is not saved, and no file of it stays") {
    const TemporaryDirectory folder;
    TinyState<float> run;
    run.save(folder.path(), 1);
    const std::string before = read_file(folder.path() / "step_000001" / kManifestName);
    for (const auto& [kind, tensor] :
         {std::pair("weights", "transformer.h.0.mlp.c_fc.weight"),
          std::pair("first moments", "first_moment.h.0.mlp.c_fc.weight"),
          std::pair("second moments", "second_moment.h.0.mlp.c_fc.weight")}) {
      for (const auto& [index, text] : {std::pair(0, "[0, 0]"), std::pair(8 * 32 - 1, "[7, 31]")}) {
        run.set(kind, "h.0.mlp.c_fc.weight", index, index == 0 ? kNan : kInfinity);
        const std::string expected = std::string("tensor ") + tensor + ": element " + text +
                                     (index == 0 ? " is nan, not finite" : " is inf, not finite");
        for (const std::int64_t step : {1, 2})
          CHECK(run.save_error(folder.path(), step) == expected);
        run.set(kind, "h.0.mlp.c_fc.weight", index, 0);
      }
    }
    std::int64_t num_entries = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
      CHECK(entry.path().filename() == "step_000001");
      ++num_entries;
    }
    CHECK(num_entries == 1);
    CHECK(read_file(folder.path() / "step_000001" / kManifestName) == before);
    CHECK(run.save_error(folder.path(), 2) == "");
  }

  TEST_CASE("weights that the dtype cannot hold are neither loaded nor saved") {
    const TemporaryDirectory folder;
    TinyState<fp16> half;
    const std::string weight = "h.0.attn.c_attn.weight";  // (8, 24)
    const std::filesystem::path good = half.save(folder.path(), 1);
    REQUIRE(half.load_error(good) == "");
    const std::string problem = "tensor " + weight + ": element [1, 1] is ";
    for (const float value : {65519.0f, -65520.0f, 1e30f}) {
      CAPTURE(value);
      const bool fits = value == 65519.0f;
      replace_float(good / kWeightsName, "transformer." + weight, 25, value);
      const std::string error = half.load_error(good);
      CHECK((fits ? error == "" : error.starts_with(problem)));
      if (!fits) CHECK(contains(error, "too large for fp16\n  hint: use --dtype fp32"));
      half.set("master weights", weight, 25, value);
      CHECK((half.save_error(folder.path(), 2) == "") == fits);
    }
    TinyState<bf16> brain;
    const std::filesystem::path other = brain.save(folder.path() / "bf16", 1);
    for (const float value : {0x1.fefffep127f, 0x1.ffp127f}) {
      replace_float(other / kWeightsName, "transformer." + weight, 25, value);
      const std::string error = brain.load_error(other);
      CHECK((error == "") == (value < 0x1.ffp127f));
      CHECK(std::isfinite(to_float(from_float<bf16>(value))) == (error == ""));
    }
  }

  TEST_CASE("a checkpoint records that its loss is not finite, and the protected one") {
    const TemporaryDirectory folder;
    TinyState<float> run;
    const RunPosition position{
        .step = 7, .finite_loss = false, .protected_checkpoint = "step_000004"};
    const std::string path = save_checkpoint(folder.path(), to_huggingface(kConfig, {}), position,
                                             1, run.state(), run.stream());
    const RunPosition loaded = load_checkpoint(path, 1, run.state(), run.stream());
    CHECK(!loaded.finite_loss);
    CHECK(loaded.protected_checkpoint == "step_000004");
    const RunPosition usual =
        load_checkpoint(run.save(folder.path(), 8), 1, run.state(), run.stream());
    CHECK(usual.finite_loss);
    CHECK(usual.protected_checkpoint == "");
  }
}
