// The data of a run: the number of steps in epochs, and whether documents are known.
#include <doctest/doctest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "llmc/config/resolve.h"
#include "llmc/config/train_rules.h"
#include "llmc/io/tokenizer/byte_tokenizer.h"
#include "llmc/io/tokenizer/word_tokenizer.h"
#include "llmc/parallel/training_runner.h"
#include "llmc/plan/default_batch.h"
#include "llmc/train/run/run_data.h"
#include "llmc/train/run/run_tokenizer.h"
#include "test/support.h"

using namespace llmc;
using llmc_test::complaint;
using llmc_test::contains;

TEST_SUITE("run_data") {
  TEST_CASE("--epochs is the smallest number of steps that covers its samples") {
    CHECK(steps_of_epochs(1, 20, 4) == 5);
    CHECK(steps_of_epochs(1, 21, 4) == 6);
    CHECK(steps_of_epochs(2, 21, 4) == 11);
    CHECK(steps_of_epochs(0.5, 21, 1) == 11);
    CHECK(steps_of_epochs(1e-6, 10, 8) == 1);
    // 0.1 and similar numbers have no exact double; the product must not round up to one more step.
    for (std::int64_t tenths = 1; tenths < 100; ++tenths) {
      CHECK(steps_of_epochs(static_cast<double>(tenths) / 10, 30, 1) == 3 * tenths);
    }
    CHECK(contains(complaint([] { steps_of_epochs(1e6, std::int64_t{1} << 50, 1); }), "--epochs"));
  }

  TEST_CASE("a run with --epochs has the schedule of its number of steps") {
    Request request;
    request.schedule.epochs = 2;
    request.batch.batch_size = 2;
    request.batch.seq_len = 8;
    RunFacts facts;
    CHECK(requests_training(request, facts));
    CHECK(resolve_inputs(request, facts).batch.seq_len == 8);
    facts.windows = 20;
    facts.preset.schedule.steps = 5;
    const RunConfig config = resolve(request, facts);
    CHECK(config.schedule.steps == 20);
    CHECK(config.schedule.warmup == 1);
    CHECK(config.validation.every == 2);
    CHECK(config.samples.every == 4);
  }

  TEST_CASE("a document mask needs at least one source with document boundaries") {
    const ByteTokenizer bytes;
    TokenSource plain("plain", 257, 256), marked("marked", 257, 256);
    plain.add("plain", TokenData({1, 2, 3}));
    marked.add("marked", TokenData({1, 256, 3}));
    CHECK(complaint([&] { check_documents({plain, marked}, bytes); }).empty());
    CHECK(contains(complaint([&] {
                     check_documents({plain, plain}, bytes);
                   }),
                   "no end-of-text token is in the data"));
    CHECK(contains(complaint([&] { check_documents({plain}, WordTokenizer({"a"}, "two")); }),
                   "has no end-of-text token"));
  }

  TEST_CASE("the default micro-batch is the largest power of two that fits") {
    const std::int64_t GiB = std::int64_t{1} << 30;
    const auto batch = [&](std::int64_t memory, std::optional<std::int64_t> step_tokens = {}) {
      return default_batch_size(memory, 1024, step_tokens, [&](std::int64_t B) { return B * GiB; });
    };
    CHECK(batch(80 * GiB) == 64);
    CHECK(batch(64 * GiB + kMemoryReserve) == 64);
    CHECK(batch(64 * GiB + kMemoryReserve - 1) == 32);
    CHECK(batch(6 * GiB) == 4);
    CHECK(batch(1 * GiB) == 1);
    CHECK(batch(80 * GiB, 12 * 1024) == 4);
    CHECK(batch(80 * GiB, 1000) == 1);
  }

  TEST_CASE("the default batch on a GPU fits into its memory and makes 524288 tokens per step") {
    Request request;
    request.model.layers = request.model.heads = 2;
    request.model.channels = 64;
    request.model.context = 256;
    RunFacts facts;
    facts.default_shape.vocabulary = 257;
    const auto bytes_of = [&](std::int64_t B) {
      Context context;
      const ModelConfig shape{
          .vocabulary = 257, .context = 256, .layers = 2, .heads = 2, .channels = 64};
      return planned_bytes(Dtype::bf16, shape, {.B = B, .T = 256}, context);
    };
    request.precision.dtype = Dtype::bf16;
    set_gpu_batch(facts, request, bytes_of(16) + kMemoryReserve);
    RunConfig config = resolve(request, facts);
    CHECK(config.batch.batch_size == 16);
    CHECK(config.tokens_per_step() == 524288);
    set_gpu_batch(facts, request, bytes_of(16) + kMemoryReserve - 1);
    config = resolve(request, facts);
    CHECK(config.batch.batch_size == 8);
    CHECK(config.tokens_per_step() == 524288);

    request.batch.batch_size = 6;  // 341.3 micro-batches of 1536 tokens
    config = resolve(request, facts);
    CHECK(config.batch.grad_accum == 341);
    request.batch.grad_accum = 3;
    CHECK(resolve(request, facts).batch.grad_accum == 3);
    request.batch.grad_accum = {};
    request.batch.total_batch_tokens = 3 * 6 * 256;
    CHECK(resolve(request, facts).batch.grad_accum == 3);
    request.batch.total_batch_tokens = 1000;
    CHECK(contains(complaint([&] { resolve(request, facts); }), "is not a multiple"));

    // Two data ranks of two tensor ranks each: a step of 16 sequences has 8 on each.
    facts = {.default_shape = facts.default_shape, .ranks = 4};
    request.ranks.tp = 2;
    request.batch.batch_size = {};
    request.batch.total_batch_tokens = 16 * 256;
    set_gpu_batch(facts, request, bytes_of(16) + kMemoryReserve);
    config = resolve(request, facts);
    CHECK(config.batch.batch_size == 8);
    CHECK(config.batch.grad_accum == 1);

    // The rank of a pipeline that needs the most decides, and micro-batches are a multiple of them.
    facts = {.default_shape = facts.default_shape, .ranks = 2};
    request.ranks.tp = {};
    request.ranks.pp = 2;
    request.batch.total_batch_tokens = {};
    const auto memory_at = [&](std::int64_t B) {
      RunShape shape{.B = B, .T = 256};
      shape.pipeline = make_pipeline({.ranks = 2, .micro_batches = 8}, 2);
      const ModelConfig model{
          .vocabulary = 257, .context = 256, .layers = 2, .heads = 2, .channels = 64};
      return largest_memory(Dtype::bf16, model, shape, make_mesh(2, 1, 1, 2));
    };
    request.ranks.zero = 0;
    set_gpu_batch(facts, request, memory_at(16) + kMemoryReserve);
    config = resolve(request, facts);
    CHECK(config.batch.batch_size == 16);
    CHECK(config.batch.grad_accum == 128);
    set_gpu_batch(facts, request, memory_at(16) + kMemoryReserve - 1);
    CHECK(resolve(request, facts).batch.batch_size == 8);
    request.batch.batch_size = 6;  // 341.3 micro-batches, rounded up to an even number
    CHECK(resolve(request, facts).batch.grad_accum == 342);
  }

  TEST_CASE("a resumed run takes the batch of its checkpoint unless flags set it") {
    RunFacts facts{.default_batch_size = 64, .default_step_tokens = kGpuStepTokens};
    facts.preset.batch.batch_size = 3;
    facts.preset.batch.grad_accum = 5;
    Request request;
    CHECK(resolve(request, facts).batch.batch_size == 3);
    CHECK(resolve(request, facts).batch.grad_accum == 5);
    request.batch.batch_size = 2;
    CHECK(resolve(request, facts).batch.batch_size == 2);
    CHECK(resolve(request, facts).batch.grad_accum == 5);
    request.batch.total_batch_tokens = 4 * 2 * resolve(request, facts).batch.seq_len;
    CHECK(resolve(request, facts).batch.grad_accum == 4);
  }

  TEST_CASE("only token files are used without a tokenizer") {
    const llmc_test::TemporaryDirectory folder;
    write_file(folder.file("a.txt"), "a text");
    write_file(folder.file("b.bin"), "tokens");
    const auto name = [&](const std::string& train, const std::optional<std::string>& val = {},
                          const std::optional<StartingWeights>& weights = {}) {
      Request request;
      request.data.train = folder.file(train);
      if (val) request.data.val = folder.file(*val);
      const auto tokenizer = make_run_tokenizer(request, {}, weights);
      return tokenizer->name() + " " + std::to_string(tokenizer->vocabulary_size());
    };
    CHECK(name("a.txt") == "bytes 257");
    CHECK(name("b.bin") == "token ids 50257");
    CHECK(name("*.bin") == "token ids 50257");
    CHECK(name("*") == "bytes 257");
    CHECK(name("b.bin", "a.txt") == "bytes 257");
    StartingWeights weights{.path = folder.path().string(), .shape = {.vocabulary = 61}};
    CHECK(name("b.bin", {}, weights) == "token ids 61");
  }

  TEST_CASE("a resumed run has the tokenizer of its checkpoint") {
    const llmc_test::TemporaryDirectory folder;
    write_file(folder.file("a.txt"), "a text");
    write_file(folder.file("words.txt"), "one\ntwo\n");
    StartingWeights checkpoint{
        .path = folder.path().string(), .shape = {.vocabulary = 2}, .resumed = true};
    Request known;
    known.data.train = folder.file("a.txt");
    known.data.tokenizer = "words:" + folder.file("words.txt");  // recorded
    CHECK(make_run_tokenizer(known, {}, checkpoint)->vocabulary_size() == 2);
    CHECK(make_run_tokenizer(known, "bytes", checkpoint)->name() == "bytes");
    known.data.vocab_size = 3;
    CHECK(contains(complaint([&] { make_run_tokenizer(known, {}, checkpoint); }),
                   "--vocab-size 3 does not agree with 2"));
  }
}
