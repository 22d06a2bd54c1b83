// What each kernel asks for at launch, threads of a block and dynamic shared memory, in training
// and generation at the published widths and at widths that lead to the other instances. Compilers
// know neither, so `make resources` takes them from here. The host executor's launches are the
// GPU's, but for elementwise kernels: there a thread takes more numbers, and blocks are as large.
//
// A line for each different launch of a kernel: threads, bytes, the kernel's mangled name.
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

// Prints a launch the first time it is seen. Needs a program linked with -rdynamic.
class Printer : public LaunchObserver {
 public:
  void launched(const void* kernel, int block_threads, std::size_t shared_bytes) override {
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

// A stage without embedding and head, whose residual addition is a launch of its own.
template <class T>
void run_stage(TrainingEngine<T>& engine, const DeviceBatch& batch) {
  const Stage stage{.first = 0, .end = 1, .embedding = false, .head = false};
  ModelRunner<T>& runner = engine.runner();
  runner.model().forward(stage, runner.activations(), batch, engine.context());
}

// Initialisation, a step of training and a loss to look at; a step with dropout and, where weights
// are rounded, stochastic rounding, and what a resumed run does of that.
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
  if (!std::is_same_v<T, float>) state.round_stochastically(1);
  state.apply_gradients({}, 1e-3, stream);
  state.restore_rounding(stream);
  stream.synchronize();
}

// A prompt and one more token.
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

// What measuring the peak of fp32 does.
void copy_numbers(Printer& printer) {
  Stream stream;
  stream.observe(&printer);
  constexpr std::int64_t kCount = 1 << 16;
  Buffer<float> from(kCount), to(kCount);
  fill_zero(from.data(), kCount, stream);
  convert(to.data(), static_cast<const float*>(from.data()), kCount, stream);
  stream.synchronize();
}

// Merging the statistics of a vocabulary that lies on several ranks, which no model here does yet.
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

// Initial values of a tensor-parallel rank's columns of a matrix, which no model here has yet.
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

// One block of a width, with the vocabulary cut short: no launch depends on it beyond some
// thousands.
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
