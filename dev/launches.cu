// Prints what each kernel requests at launch: threads per block and dynamic shared memory. Training
// and generation run at the published widths and at widths that lead to the other instances; then
// the cases of all ops run (LLMC_OPS, see the Makefile). Compilers know neither value, so `make
// resources` reads them from this program. It is built with -DLLMC_COMPILED_KERNELS, so its
// launches are those of a GPU, and with LLMC_PTX_BLOCKS it runs every kernel as nvcc compiled it
// (test/ptx).
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

#include "dev/harness/op_case.h"
#include "llmc/base/signal_request.h"
#include "llmc/base/standard_output.h"
#include "llmc/device/device.h"
#include "llmc/infer/generation_runner.h"
#include "llmc/models/engine.h"
#include "llmc/ops/code_embedding.cu"  // in the layout of a GPU, which host programs do not use
#include "llmc/ops/gemm/invariant_gemm_kernels.h"
#include "llmc/parallel/training_engine.h"

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
// weights as a resumed run does. One more pass is quantized. Outputs of norms are recomputed.
template <class T>
void train(const ModelConfig& config, Attention attention, Printer& printer) {
  const RunShape shape{.B = 1,
                       .T = config.context,
                       .attention = attention,
                       .recompute = Recompute::selective,
                       .qat = QatMode::w8a8};
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
  engine.context().quantization.set({.weights = true, .activations = true, .zero_points = true});
  runner.forward_backward(batch, loss);
  stream.synchronize();
}

// Runs initialisation and a training step of an adapter, of one block; LoRA on codes.
template <class T>
void train_adapter(const ModelConfig& config, const AdapterShape& adapters, Printer& printer) {
  RunShape shape{.B = 1, .T = config.context};
  shape.adapters = adapters;
  shape.base_codes = adapters.kind == AdapterKind::lora;
  TrainingEngine<T> engine(config, shape);
  Stream& stream = engine.stream();
  stream.observe(&printer);
  engine.allocate();
  TrainingState<T>& state = engine.state();
  state.initialise(1, stream);
  state.begin_step(stream);
  const auto tokens = some_tokens(shape.rows(), config.vocabulary);
  const DeviceBatch batch = engine.runner().put(
      prepare({.B = shape.B, .T = shape.T, .inputs = tokens, .targets = tokens}));
  const LossOptions loss{.scale = 1, .sum = state.loss()};
  engine.runner().forward_backward(batch, loss, {.dropout = {.adapter = adapters.dropout}});
  stream.synchronize();
}

// Runs LoRA and both forms of IA3.
template <class T>
void train_adapters(const ModelConfig& config, Printer& printer) {
  AdapterShape lora{.kind = AdapterKind::lora, .dropout = 0.1};
  for (const char* layer : kLinearLayers) {
    lora.layers.push_back({.layer = std::string("h.0.") + layer, .rank = 8});
  }
  train_adapter<T>(config, lora, printer);
  AdapterShape ia3{.kind = AdapterKind::ia3,
                   .layers = {{.layer = "h.0.attn.c_attn"}, {.layer = "h.0.mlp.c_proj"}}};
  for (const bool fixes_query : {false, true}) {
    ia3.fixes_query = fixes_query;
    train_adapter<T>(config, ia3, printer);
  }
}

// Runs a prompt and one more token.
template <class T, class KV = T>
void generate(const ModelConfig& config, Printer& printer) {
  const auto runner = make_generation_runner(kDtypeOf<T>, config, decode_shape());
  const auto pass = runner->make_pass(kDtypeOf<KV>, {.slots = 1, .capacity = 9, .chunk = 8});
  Stream& stream = runner->stream();
  Tensor<std::int32_t, 1> token, position;
  runner->memory().reserve("batch", token, 1);
  runner->memory().reserve("batch", position, 1);
  stream.observe(&printer);
  runner->allocate();
  pass->clear();
  const auto tokens = some_tokens(8, config.vocabulary);
  pass->read_prompts({{.tokens = tokens, .wants_logits = true}});
  const std::int32_t next = 8;
  fill_zero(token.data, 1, stream);
  copy_to_device(position.data, &next, 1, stream);
  pass->step(token, position);
  stream.synchronize();
}

// The kernels that only a rank among several launches.
void run_rank_ops(Printer& printer) {
  Stream stream;
  stream.observe(&printer);
  const Buffer<float> partials(512), gathered(512);
  fill_zero(gathered.data(), gathered.size(), stream);
  partials_in_order(partials.data(), gathered.data(), 512, 256, 256, stream);
  stream.synchronize();
}

// The kernels of generation with INT8 codes: the embedding, and the products that write a cache.
// All numbers are 0.
template <class T, class KV>
void run_gpu_ops(std::int64_t C, Printer& printer) {
  constexpr std::int64_t kHeadSize = 64;
  const std::int64_t NH = C / kHeadSize, N = CodeMatrix::padded_columns(3 * C);
  Stream stream;
  stream.observe(&printer);
  const Buffer<std::int8_t> codes(code_bytes(C, 3 * C));
  const Buffer<KV> cache(2 * C);
  const Buffer<std::int32_t> ints(N + qkv_counters(1, NH));
  const Buffer<float> floats(N + qkv_scratch(1, C) + 2 * NH);
  const Buffer<T> rows(4 * C), weights(3 * C * C);
  fill_zero(codes.data(), codes.size(), stream);
  fill_zero(ints.data(), ints.size(), stream);
  fill_zero(floats.data(), floats.size(), stream);
  fill_zero(rows.data(), rows.size(), stream);
  fill_zero(weights.data(), weights.size(), stream);
  const CodeMatrix weight{codes.data(), floats.data(), ints.data(), C, 3 * C};
  const auto zero = make_tensor(static_cast<const std::int32_t*>(ints.data()), 1);
  const auto row = make_tensor(rows.data(), 1, C);
  code_embedding<T, WarpCodeLayout>(row, zero, weight, row, zero, stream);
  InvariantGemmCall<T, T, KV> call;
  call.epilogue = RowEpilogue::qkv;
  call.M = 1;
  call.N = 3 * C;
  call.K = C;
  call.inp = rows.data();
  call.codes = weight;
  call.out = rows.data() + C;
  call.out_stride = C;
  call.keys = cache.data();
  call.values = cache.data() + C;
  call.key_scales = floats.data() + N;
  call.value_scales = floats.data() + N + NH;
  call.head_sums = floats.data() + N + 2 * NH;
  call.head_counters = ints.data() + N;
  call.T_max = 1;
  call.NH = NH;
  call.position = ints.data();
  InvariantGemmCall<T, T, KV> floats_call = call;
  floats_call.codes = {};
  floats_call.weight = weights.data();
  for (const RowKind kind : {RowKind::generated, RowKind::prompt}) {
    call.kind = floats_call.kind = kind;
    for (const bool enabled : {false, true}) {
      call.quantizer.enabled = enabled;
      launch_invariant_gemm(call, stream);
    }
    launch_invariant_gemm(floats_call, stream);
  }
  stream.synchronize();
}

// Launches every variant of every op case once, without checking results. This includes ops that no
// model uses.
class CaseLauncher final : public llmc_dev::OpRunner {
 public:
  explicit CaseLauncher(Printer& printer) { stream().observe(&printer); }

  bool includes(llmc_dev::ShapeSet set) const override { return set == llmc_dev::ShapeSet::tiny; }
  bool includes(Dtype) const override { return true; }
  bool includes(const std::string&) override { return true; }
  int num_sets(double) const override { return 1; }
  void skipped(const std::string&, const std::string&) override {}
  void run(llmc_dev::OpCase& op_case) override {
    for (const llmc_dev::Variant& variant : op_case.variants()) {
      op_case.prepare(variant, 0, true);
      variant.run(0);
    }
    stream().synchronize();
  }
};

// One block of a width, with a small vocabulary: beyond some thousands of ids, no launch depends on
// its size.
ModelConfig width(std::int64_t channels, std::int64_t head_size) {
  return {.vocabulary = 4000,
          .context = 64,
          .layers = 1,
          .heads = channels / head_size,
          .channels = channels};
}

// Generates with a cache in another dtype than the model's.
template <class T, class KV>
void generate_with_cache(Printer& printer) {
  generate<T, KV>(width(128, 64), printer);
  for (const std::int64_t HS : {32, 64, 128}) generate<T, KV>(width(768, HS), printer);
  for (const std::int64_t C : {128, 768}) run_gpu_ops<T, KV>(C, printer);
}

template <class T>
void run_all(Printer& printer) {
  for (const std::int64_t C : {128, 768, 1024, 1280, 1600, 2112}) {
    train<T>(width(C, 64), Attention::flash, printer);
    generate<T>(width(C, 64), printer);
    train_adapters<T>(width(C, 64), printer);
  }
  train<T>(width(768, 64), Attention::standard, printer);
  for (const std::int64_t HS : {32, 128}) {
    train<T>(width(768, HS), Attention::flash, printer);
    generate<T>(width(768, HS), printer);
  }
  generate_with_cache<T, std::int8_t>(printer);
}

}  // namespace

int main() {
  SignalRequest::start_thread("launches");
  try {
    Printer printer;
    run_all<float>(printer);
    run_all<bf16>(printer);
    run_all<fp16>(printer);
    generate_with_cache<float, bf16>(printer);
    generate_with_cache<float, fp16>(printer);
    run_rank_ops(printer);
    CaseLauncher launcher(printer);
#define LLMC_LAUNCH_CASES(op) llmc_dev::op::cases(launcher);
    LLMC_OPS(LLMC_LAUNCH_CASES)
#undef LLMC_LAUNCH_CASES
    flush_stdout();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "launches: %s\n", error.what());
    return 1;
  }
}
