// The hint of a run that does not fit: the cheapest flags with which it does.
#include <doctest/doctest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "llmc/config/model_name.h"
#include "llmc/nn/context.h"
#include "llmc/parallel/training_runner.h"
#include "llmc/plan/default_batch.h"
#include "llmc/plan/fit_hint.h"
#include "llmc/plan/memory_hint.h"
#include "test/support.h"

using namespace llmc;

TEST_SUITE("fit hint") {
  TEST_CASE("the hint of a run that does not fit names a batch that fits") {
    const ModelConfig config = config_from_name("d12");
    Context context;
    RunShape shape{.B = 8, .T = 1024, .logits_rows = 0};
    RunShape fewer_rows = shape;
    fewer_rows.logits_rows = 4096;
    const auto hint = [&](const RunShape& run, std::int64_t free_bytes) {
      return fit_hint({Dtype::bf16, config, run, {}, free_bytes});
    };
    const std::int64_t bytes = planned_bytes(Dtype::bf16, config, fewer_rows, context);
    CHECK(hint(shape, bytes) == "use --logits-rows 4096, which fits");
    RunShape smaller = shape;
    smaller.B = 3;
    const std::int64_t smaller_bytes = planned_bytes(Dtype::bf16, config, smaller, context);
    const std::string batch = "use --batch-size 3, which fits (";
    const std::string accumulate = "; --grad-accum keeps the global batch large";
    CHECK(hint(shape, smaller_bytes).starts_with(batch));
    CHECK(hint(shape, smaller_bytes).ends_with(accumulate));
    // With no more rows of logits than the default, the hint does not suggest fewer rows.
    smaller.logits_rows = fewer_rows.logits_rows = 7;
    CHECK(
        hint(fewer_rows, planned_bytes(Dtype::bf16, config, smaller, context)).starts_with(batch));
  }

  TEST_CASE("the CPU updates no state on a disk, so the hint of such a run names the device") {
    RunShape shape{.B = 1, .T = 1024};
    shape.offload.optimizer = {Place::host, {}};
    shape.offload.optimizer_on_cpu = true;
    RunShape smaller = shape;
    smaller.recompute = Recompute::full;
    smaller.offload.optimizer = {Place::disk, "DIR"};
    smaller.offload.optimizer_on_cpu = false;
    const ModelConfig config = config_from_name("d12");
    FitRequest request;
    request.dtype = Dtype::bf16;
    request.config = config;
    request.shape = smaller;
    request.is_host_memory = true;
    request.free_bytes = largest_memory(Dtype::bf16, config, smaller, request.mesh, true);
    request.shape = shape;
    const std::string hint = fit_hint(request);
    CHECK_MESSAGE(llmc_test::contains(hint, "--offload optimizer=DIR --optimizer-on device"), hint);
  }

  TEST_CASE("host memory has room for the offloaded state of all ranks of a machine") {
    CHECK_NOTHROW(require_host_memory(100 << 20, 100 << 20, 2, 0));
    const std::string error =
        llmc_test::complaint([] { require_host_memory(101 << 20, 100 << 20, 2, 0); });
    for (const char* text : {"needs 101.0 MiB of host memory", "100.0 MiB are free",
                             "2 ranks on this machine", "--offload KIND=DIR", "--zero 1"}) {
      CHECK_MESSAGE(llmc_test::contains(error, text), error);
    }
  }

  TEST_CASE("the hint of a run that does not fit names the cheapest flags, and they fit") {
    const ModelConfig config = config_from_name("d12");
    Context context;
    const RunShape shape{.B = 1, .T = 1024};
    const auto bytes_of = [&](const std::function<void(RunShape&)>& change) {
      RunShape run = shape;
      change(run);
      return planned_bytes(Dtype::bf16, config, run, context);
    };
    const OffloadPlace place =
        kCudaTarget ? OffloadPlace{Place::host, {}} : OffloadPlace{Place::disk, "DIR"};
    const std::string at = kCudaTarget ? "" : "=DIR";
    std::int64_t before = bytes_of([](RunShape&) {});
    const auto check = [&](const std::string& flags, const auto& change) {
      CAPTURE(flags);
      const std::int64_t bytes = bytes_of(change);
      CHECK(bytes < before);
      before = bytes;
      const std::string hint = fit_hint({Dtype::bf16, config, shape, {}, bytes});
      CHECK_MESSAGE(hint.starts_with("use " + flags + ", which fits (" + megabytes(bytes) + " of "),
                    hint);
    };
    check("--recompute selective", [](RunShape& run) { run.recompute = Recompute::selective; });
    check("--recompute full", [](RunShape& run) { run.recompute = Recompute::full; });
    check("--recompute full --offload optimizer" + at, [&](RunShape& run) {
      run.recompute = Recompute::full;
      run.offload.optimizer = place;
    });
    check("--recompute full --offload optimizer" + at + ",gradients" + at, [&](RunShape& run) {
      run.recompute = Recompute::full;
      run.offload.optimizer = run.offload.gradients = place;
    });
    CHECK(100 * recompute_flops(config, {.T = 1, .recompute = Recompute::full}) ==
          doctest::Approx(15.3).epsilon(0.01));
    for (const auto& [name, percent] : {std::pair("d36", 20.0), std::pair("d48", 21.0)}) {
      CHECK(100 * recompute_flops(config_from_name(name), {.T = 1, .recompute = Recompute::full}) ==
            doctest::Approx(percent).epsilon(0.02));
    }
  }
}
