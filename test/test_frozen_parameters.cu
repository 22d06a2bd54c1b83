// The whole model with frozen parameters: the gradients of all others keep their bits.
#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "test/model_rig.h"

namespace {

using namespace llmc;
using namespace llmc_test;

using Frozen = std::function<bool(const std::string& name)>;

// Another source without the gradients of frozen parameters.
template <class T>
class WithFrozen final : public ParameterSource<T> {
 public:
  WithFrozen(ParameterSource<T>& all, Frozen frozen) : all_(all), frozen_(std::move(frozen)) {}

  void acquire(int block) override { all_.acquire(block); }
  void release(int block) override { all_.release(block); }
  void gradients_ready(int block) override { all_.gradients_ready(block); }
  const T* weight(const ParameterSpec& spec) override { return all_.weight(spec); }
  float* gradient(const ParameterSpec& spec) override {
    return frozen_(spec.name) ? nullptr : all_.gradient(spec);
  }

 private:
  ParameterSource<T>& all_;
  Frozen frozen_;
};

bool is_norm(const std::string& name) { return name.find("ln_") != std::string::npos; }

TEST_SUITE("model") {
  TEST_CASE_TEMPLATE("frozen parameters get no gradient and change no bit of the others", T, float,
                     bf16) {
    const auto fixture = oracle::load_fixture(tiny() ? "one_row" : "odd");
    RunShape run;
    run.B = fixture.integer("B");
    run.T = fixture.integer("T");
    ModelRig<T> rig(engine_config(fixture.config()), run);
    rig.set_parameters(fixture.parameters());
    const auto gradients_with = [&](const Frozen& frozen) {
      auto all = rig.state().source();
      WithFrozen<T> source(all, frozen);
      rig.state().begin_step(rig.stream());
      rig.model().forward_backward(source, rig.put(fixture.batch()), 1.0f, rig.state().loss(), 1.0f,
                                   rig.gemm(), rig.stream());
      return rig.gradients();
    };
    const NamedFloats want = gradients_with([](const std::string&) { return false; });
    for (const auto& [name, values] : want) {
      CAPTURE(name);
      CHECK(values != std::vector<float>(values.size()));
    }
    const std::vector<std::pair<std::string, Frozen>> cases = {
        {"wte", [](const std::string& name) { return name == "wte.weight"; }},
        {"wpe", [](const std::string& name) { return name == "wpe.weight"; }},
        {"norms", is_norm},
        {"norm weights",
         [](const std::string& name) { return is_norm(name) && name.ends_with(".weight"); }},
        {"norm biases",
         [](const std::string& name) { return is_norm(name) && name.ends_with(".bias"); }},
        {"linear weights",
         [](const std::string& name) { return name.starts_with("h.") && !is_norm(name) &&
                                              name.ends_with(".weight"); }},
        {"biases", [](const std::string& name) { return name.ends_with(".bias"); }},
        {"all but one",
         [](const std::string& name) { return name != "h.0.attn.c_attn.weight"; }},
        {"all", [](const std::string&) { return true; }},
    };
    for (const auto& [what, frozen] : cases) {
      CAPTURE(what);
      for (const auto& [name, values] : gradients_with(frozen)) {
        CAPTURE(name);
        CHECK(values == (frozen(name) ? std::vector<float>(values.size()) : want.at(name)));
      }
    }
  }
}

}  // namespace
