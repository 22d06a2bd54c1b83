// Retention: which checkpoints of a run are kept.
#include <string>
#include <vector>

#include "llmc/io/checkpoint/checkpoint_search.h"
#include "llmc/io/checkpoint/retention.h"
#include "test/checkpoint_samples.h"
#include "test/support.h"

TEST_SUITE_BEGIN("checkpoint");

using namespace llmc_test;
using llmc::remove_old_checkpoints;
using Names = std::vector<std::string>;

TEST_CASE("only old checkpoints of the run that are not milestones are removed") {
  const TemporaryDirectory root;
  fs::path newest;
  for (const std::int64_t step : {2, 4, 6, 8, 10, 12}) newest = save(root.path(), step);
  CHECK(remove_old_checkpoints(newest, {}) == Names{});
  CHECK(remove_old_checkpoints(newest, {.keep = 9}) == Names{});
  CHECK(remove_old_checkpoints(newest, {.keep = 6}) == Names{});

  // Older entries that must not be removed: copies under other names, a link, an empty directory,
  // damaged checkpoints and a checkpoint of another run.
  fs::copy(root.path() / "step_000002", root.path() / "best");
  fs::copy(root.path() / "step_000002", root.path() / "step_000003");
  fs::create_directory_symlink(root.path() / "step_000002", root.path() / "step_000005");
  fs::create_directory(root.path() / "step_000001");
  fs::remove(root.path() / "step_000004" / "manifest.json");
  fs::resize_file(root.path() / "step_000006" / "optimizer.safetensors", 10);
  {
    CheckpointWriter other_run(root.path(), "step_000007");
    other_run.commit(7, {{"seed", 43}});
  }
  const Names names_before = names_in(root.path());
  CHECK(remove_old_checkpoints(newest, {.keep = 2, .milestone_every = 4}) == Names{"step_000002"});
  Names names_after = names_before;
  std::erase(names_after, "step_000002");
  CHECK(names_in(root.path()) == names_after);
  CHECK(remove_old_checkpoints(newest, {.keep = 1, .milestone_every = 4}) == Names{"step_000010"});
  CHECK(remove_old_checkpoints(newest, {.keep = 1, .milestone_every = 5}) == Names{"step_000008"});
  CHECK(remove_old_checkpoints(newest, {.keep = 1}) == Names{});
  CHECK(fault(newest) == "");
}

TEST_CASE("newer checkpoints, which a resumed run skipped, are not removed") {
  const TemporaryDirectory root;
  for (const std::int64_t step : {1, 2, 5}) save(root.path(), step);
  CHECK(remove_old_checkpoints(root.path() / "step_000002", {.keep = 1}) == Names{"step_000001"});
  CHECK(names_in(root.path()) == Names{"step_000002", "step_000005"});
}

TEST_CASE("nothing is removed if the newest checkpoint is damaged") {
  const TemporaryDirectory root;
  for (const std::int64_t step : {1, 2, 3}) save(root.path(), step);
  const fs::path newest = root.path() / "step_000003", model = newest / "model.safetensors";
  std::string bytes = llmc::read_file(model);
  bytes.back() ^= 1;
  overwrite(model, bytes);
  CHECK(contains(complaint([&] { remove_old_checkpoints(newest, {.keep = 1}); }),
                 model.string() + " is damaged"));
  CHECK(names_in(root.path()) == Names{"step_000001", "step_000002", "step_000003"});
}

namespace {

// A checkpoint whose state has a flag.
fs::path save_with(const char* flag, const fs::path& root, std::int64_t step) {
  CheckpointWriter writer(root, llmc::checkpoint_name(step));
  writer.commit(step, {{"seed", 42}, {flag, true}});
  return writer.path();
}

// A checkpoint that was saved only because of its validation loss.
fs::path save_only_best(const fs::path& root, std::int64_t step) {
  return save_with(llmc::kOnlyBestKey, root, step);
}

// A checkpoint whose loss was not finite.
fs::path save_diverged(const fs::path& root, std::int64_t step) {
  return save_with(llmc::kLossNotFiniteKey, root, step);
}

}  // namespace

TEST_CASE(
    "the best checkpoint is kept, and one that was saved only as the best is removed after it") {
  const TemporaryDirectory root;
  for (const std::int64_t step : {1, 2, 4}) save(root.path(), step);
  save_only_best(root.path(), 3);
  fs::path newest = save(root.path(), 5);
  CHECK(remove_old_checkpoints(newest, {.best = 3}) == Names{});
  CHECK(remove_old_checkpoints(newest, {.keep = 1, .best = 3}) ==
        Names{"step_000004", "step_000002", "step_000001"});
  newest = save_only_best(root.path(), 6);  // not counted, so step 5 is still the newest one
  CHECK(remove_old_checkpoints(newest, {.keep = 1, .best = 6}) == Names{"step_000003"});
  CHECK(names_in(root.path()) == Names{"step_000005", "step_000006"});
  newest = save(root.path(), 7);
  CHECK(remove_old_checkpoints(newest, {.keep = 1, .best = 5}) == Names{"step_000006"});
  CHECK(names_in(root.path()) == Names{"step_000005", "step_000007"});
}

TEST_CASE("checkpoints whose loss is not finite push out no other one") {
  const TemporaryDirectory root;
  for (const std::int64_t step : {1, 2, 3}) save(root.path(), step);
  fs::path newest = save_diverged(root.path(), 4);
  CHECK(remove_old_checkpoints(newest, {.keep = 2}) == Names{"step_000001"});
  newest = save_diverged(root.path(), 5);
  CHECK(remove_old_checkpoints(newest, {}) == Names{});
  CHECK(remove_old_checkpoints(newest, {.keep = 2, .milestone_every = 4}) == Names{});
  CHECK(remove_old_checkpoints(newest, {.keep = 2, .best = 4}) == Names{});
  CHECK(remove_old_checkpoints(newest, {.keep = 2}) == Names{"step_000004"});
  // Later ones with a finite loss count again, and only the protected one stays.
  for (const std::int64_t step : {6, 7}) newest = save(root.path(), step);
  CHECK(remove_old_checkpoints(newest, {.keep = 2, .protected_name = "step_000002"}) ==
        Names{"step_000005", "step_000003"});
  CHECK(names_in(root.path()) == Names{"step_000002", "step_000006", "step_000007"});
  CHECK(remove_old_checkpoints(newest, {.keep = 1, .protected_name = "step_000002"}) ==
        Names{"step_000006"});
}

TEST_CASE("the checkpoint from before the divergence has a finite loss of its own weights") {
  const TemporaryDirectory root;
  const auto before = [&](std::int64_t step, std::int64_t seed = 42) {
    return llmc::checkpoint_before_divergence(root.path(), seed, step);
  };
  CHECK(before(9) == "");
  CHECK(llmc::checkpoint_before_divergence(root.path() / "none", 42, 9) == "");
  for (const std::int64_t step : {2, 4, 8}) save(root.path(), step);
  save_diverged(root.path(), 3);
  CHECK(before(9) == "step_000008");
  CHECK(before(8) == "step_000004");  // the weights of step 8 have the loss that is not finite
  CHECK(before(7) == "step_000004");
  CHECK(before(4) == "step_000002");
  CHECK(before(2) == "step_000002");  // no other one was saved before
  CHECK(before(1) == "");
  CHECK(before(9, 43) == "");
}

TEST_CASE("links name checkpoints, are replaced, and are not searched for checkpoints") {
  const TemporaryDirectory root;
  save(root.path(), 1);
  save(root.path(), 2);
  llmc::set_checkpoint_link(root.path(), llmc::kLatestLink, "step_000001");
  llmc::set_checkpoint_link(root.path(), llmc::kLatestLink, "step_000002");
  CHECK(fs::read_symlink(root.path() / "latest") == "step_000002");
  fs::create_directory(root.path() / "best");
  CHECK(contains(
      complaint([&] { llmc::set_checkpoint_link(root.path(), llmc::kBestLink, "step_000001"); }),
      "cannot create the link"));
  CHECK(names_in(root.path()) == Names{"best", "latest", "step_000001", "step_000002"});
  CHECK(llmc::find_newest_checkpoint(root.path()).path->filename() == "step_000002");
  // A copy may have a directory in place of the link.
  fs::remove(root.path() / "latest");
  fs::copy(root.path() / "step_000002", root.path() / "latest");
  CHECK(llmc::find_newest_checkpoint(root.path()).path->filename() == "step_000002");
}

TEST_SUITE_END();
