// Prints what each kernel requests at launch: threads per block and dynamic shared memory. Training
// and generation run at the published widths and at widths that lead to the other instances.
// Compilers know neither value, so `make resources` reads them from this program. The host
// executor's launches equal the GPU's, except for elementwise kernels: a thread there handles more
// numbers, but blocks have the same size.
//
// The output has one line per different launch of a kernel: threads, bytes, the kernel's mangled
// name.
#include <dlfcn.h>

#include <cstdio>
#include <exception>
#include <set>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "llmc/device/device.h"
#include "llmc/infer/decoder.h"
#include "llmc/model/engine.h"
#include "llmc/ops/classifier.h"
#include "llmc/ops/convert.h"
#include "llmc/train/training_state.h"

namespace {

using namespace llmc;

// Prints a launch the first time it occurs. The program must be linked with -rdynamic.
class Printer : public LaunchObserver {
 public:
  void on_launch(const void* kernel, int block_threads, std::size_t shared_bytes) override {
    if (!seen_.emplace(kernel, block_threads, shared_bytes).second) return;
    Dl_info info{};
    if (dladdr(kernel, &info) == 0 || info.dli_sname == nullptr || info.dli_saddr != kernel) {
      fail("a kernel without a name", "link with -rdynamic");
    }
    std::printf("%d %zu %s\n", block_threads, shared_bytes, info.dli_sname);
  }

 private:
  std::set<std::tuple<const void*, int, std::size_t>> seen_;
};

std::vector<std::int32_t> some_tokens(std::int64_t count, std::int64_t vocabulary) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<std::int32_t>(i * 7919 % static_cast<std::size_t>(vocabulary));
  }
  return tokens;
}

// Runs a stage without embedding and head, whose residual addition is a separate launch.
template <class T>
void run_stage(TrainingEngine<T>& engine, const DeviceBatch& batch) {
  const Stage stage{.first = 0, .end = 1, .embedding = false, .head = false};
  ModelRunner<T>& runner = engine.runner();
  runner.model().forward(stage, runner.activations(), batch, engine.context());
}

// Runs initialisation, a training step, and a forward pass that reads the losses. Then runs a step
// with dropout and, for half-precision weights, stochastic rounding, and restores the rounded
// weights as a resumed run does.
template <class T>
void train(const Gpt2Config& config, Attention attention, Printer& printer) {
  const RunShape shape{.B = 1, .T = config.context, .attention = attention};
  TrainingEngine<T> engine(config, shape);
  Stream& stream = engine.stream();
  stream.observe(&printer);
  engine.allocate();
  TrainingState<T>& state = engine.state();
  ModelRunner<T>& runner = engine.runner();
  state.initialise(1, stream);
  state.begin_step(stream);
  const auto tokens = some_tokens(shape.rows(), config.vocabulary);
  const DeviceBatch batch =
      runner.put(prepare({.B = shape.B, .T = shape.T, .inputs = tokens, .targets = tokens}));
  const LossOptions loss{.scale = 1.0f / static_cast<float>(shape.rows()), .sum = state.loss()};
  runner.forward_backward(batch, loss);
  state.apply_gradients({}, 1e-3, stream);
  std::vector<float> losses;
  runner.forward(batch);
  runner.read_losses(batch, losses);
  const PassOptions dropout{.dropout = {.embedding = 0.1, .attention = 0.1, .residual = 0.1}};
  runner.forward_backward(batch, loss, dropout);
  run_stage(engine, batch);
  if (!std::is_same_v<T, float>) state.enable_stochastic_rounding(1);
  state.apply_gradients({}, 1e-3, stream);
  state.restore_rounding(stream);
  stream.synchronize();
}

// Runs a prompt and one more token.
template <class T>
void generate(const Gpt2Config& config, Printer& printer) {
  const DecoderShape shape{.B = 1, .prompt = 8, .capacity = 9};
  Engine<T> engine(config, shape.run_shape());
  Decoder<T> decoder(engine.runner(), shape, engine.memory());
  engine.stream().observe(&printer);
  engine.allocate();
  decoder.prefill(some_tokens(8, config.vocabulary));
  decoder.advance({0});
  engine.stream().synchronize();
}

// Runs the fp32-to-fp32 conversion that measuring the peak of fp32 uses.
void copy_numbers(Printer& printer) {
  Stream stream;
  stream.observe(&printer);
  constexpr std::int64_t kCount = 1 << 16;
  Buffer<float> from(kCount), to(kCount);
  fill_zero(from.data(), kCount, stream);
  convert(to.data(), static_cast<const float*>(from.data()), kCount, stream);
  stream.synchronize();
}

// Merges the statistics of a vocabulary that is split across ranks. No model uses this yet.
void merge_statistics(Printer& printer) {
  Stream stream;
  stream.observe(&printer);
  MemoryPlan memory;
  Tensor<float, 1> row_max, row_sum, target_logit;
  Tensor<float, 1> slices[3];
  constexpr std::int64_t kSlices = 2, kRows = 4;
  for (auto* merged : {&row_max, &row_sum, &target_logit}) memory.reserve("merged", *merged, kRows);
  for (auto& all : slices) memory.reserve("slices", all, kSlices * kRows);
  memory.allocate();
  for (auto& all : slices) fill_zero(all.data, all.size(), stream);
  const auto of = [&](int i) { return make_tensor<const float>(slices[i].data, kSlices, kRows); };
  merge_classifier_statistics(row_max, row_sum, target_logit, of(0), of(1), of(2), stream);
  stream.synchronize();
}

// Fills a tensor-parallel rank's columns of a matrix with initial values. No model uses this yet.
void fill_box(Printer& printer) {
  Stream stream;
  stream.observe(&printer);
  constexpr std::int64_t kRows = 64, kColumns = 64;
  Buffer<float> values(kRows * kColumns);
  const ElementBox box = {
      .rows = kRows, .columns = kColumns, .local_stride = kColumns, .global_stride = 2 * kColumns};
  normal_fill(values.data(), box, 1, 0, 0.0f, 1.0f, stream);
  stream.synchronize();
}

// One block of a width, with a small vocabulary: beyond some thousands of ids, no launch depends on
// its size.
Gpt2Config width(std::int64_t channels, std::int64_t head_size) {
  return {.vocabulary = 4000,
          .context = 64,
          .layers = 1,
          .heads = channels / head_size,
          .channels = channels};
}

template <class T>
void run_all(Printer& printer) {
  for (const std::int64_t C : {128, 768, 1024, 1280, 1600, 2112}) {
    train<T>(width(C, 64), Attention::flash, printer);
    generate<T>(width(C, 64), printer);
  }
  train<T>(width(768, 64), Attention::standard, printer);
  for (const std::int64_t HS : {32, 128}) {
    train<T>(width(768, HS), Attention::flash, printer);
    generate<T>(width(768, HS), printer);
  }
}

}  // namespace

int main() {
  try {
    Printer printer;
    run_all<float>(printer);
    run_all<bf16>(printer);
    run_all<fp16>(printer);
    copy_numbers(printer);
    merge_statistics(printer);
    fill_box(printer);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "launches: %s\n", error.what());
    return 1;
  }
}
