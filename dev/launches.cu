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
#include "llmc/model/batch_stage.h"
#include "llmc/model/gpt2.h"
#include "llmc/model/memory_plan.h"
#include "llmc/model/weights.h"
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

// Initialisation, a step of training and a loss to look at; a step with dropout and, where weights
// are rounded, stochastic rounding, and what a resumed run does of that.
template <class T>
void train(const Gpt2Config& config, Attention attention, Printer& printer) {
  const RunShape shape{.B = 1, .T = config.context, .attention = attention};
  const ParameterTable table(config);
  MemoryPlan memory;
  Stream stream;
  stream.observe(&printer);
  Gemm gemm;
  TrainingState<T> state(table, true, memory);
  Gpt2<T> model(config, table, shape, memory);
  BatchStage stage(shape.B, shape.T, memory);
  memory.allocate();
  state.clear(stream);
  state.initialise(1, stream);
  state.begin_step(stream);
  auto source = state.source();
  const auto tokens = some_tokens(shape.rows(), config.vocabulary);
  const DeviceBatch batch = stage.put(tokens, tokens, shape.B, shape.T, stream);
  const float scale = 1.0f / static_cast<float>(shape.rows());
  model.forward_backward(source, batch, scale, state.loss(), scale, gemm, stream);
  state.apply_gradients({}, 1e-3, stream);
  model.forward(source, batch, gemm, stream);
  model.losses(source, batch, gemm, stream);
  const PassOptions dropout{.dropout = {.embedding = 0.1, .attention = 0.1, .residual = 0.1}};
  model.forward_backward(source, batch, scale, state.loss(), scale, gemm, stream, dropout);
  if (!std::is_same_v<T, float>) state.round_stochastically(1);
  state.apply_gradients({}, 1e-3, stream);
  state.restore_rounding(stream);
  stream.synchronize();
}

// A prompt and one more token.
template <class T>
void generate(const Gpt2Config& config, Printer& printer) {
  const ParameterTable table(config);
  MemoryPlan memory;
  Stream stream;
  stream.observe(&printer);
  Gemm gemm;
  Weights<T> weights(table, memory);
  Decoder<T> decoder(config, table, {.B = 1, .prompt = 8, .capacity = 9}, memory);
  memory.allocate();
  weights.clear(stream);
  ResidentParameters<T> source(weights.data(), nullptr);
  decoder.prefill(source, some_tokens(8, config.vocabulary), gemm, stream);
  decoder.advance(source, {0}, gemm, stream);
  stream.synchronize();
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
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "launches: %s\n", error.what());
    return 1;
  }
}
