// Decides which checkpoints of a run are kept, and removes the others.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "llmc/base/json_value.h"

namespace llmc {

// The key of a checkpoint's state that is true if the checkpoint was saved only because its
// validation loss was the lowest so far.
inline constexpr const char* kOnlyBestKey = "only_best";
// The key of a checkpoint's state that is true if the last loss before the save was not finite.
inline constexpr const char* kLossNotFiniteKey = "loss_not_finite";

// The `keep` newest checkpoints are kept (0: all). Milestones are kept too: checkpoints whose step
// is a multiple of `milestone_every` (0: none). So are the checkpoint of step `best`, the one with
// the lowest validation loss, and the one named `protected_name`. Checkpoints that were saved only
// as the best one are not counted, and are removed when another is the best. Checkpoints whose loss
// is not finite are not counted either, and are removed when there is a newer checkpoint.
struct Retention {
  std::int64_t keep = 0;
  std::int64_t milestone_every = 0;
  std::optional<std::int64_t> best = {};
  std::string protected_name = {};

  bool is_milestone(std::int64_t step) const {
    return milestone_every > 0 && step % milestone_every == 0;
  }
};

// Removes the checkpoints that are older than `newest`, from the same run and not kept by
// `retention`. Returns their names. Reads every byte of `newest` again before the first removal, so
// that the last valid checkpoint is never removed. Newer checkpoints, which a resumed run has
// skipped, are not touched.
std::vector<std::string> remove_old_checkpoints(const std::filesystem::path& newest,
                                                const Retention& retention);

// Returns the name of the newest checkpoint of the run in `root` from before its losses were not
// finite; empty if there is none. The weights after `step` steps are the first ones with such a
// loss, so a checkpoint of an earlier step is preferred to one of this step.
std::string checkpoint_before_divergence(const std::filesystem::path& root, const Scalar& seed,
                                         std::int64_t step);

// Names of links in a run's directory: to the newest checkpoint, and to the one with the lowest
// validation loss.
inline constexpr const char* kLatestLink = "latest";
inline constexpr const char* kBestLink = "best";

// Makes ROOT/LINK a link to the checkpoint NAME next to it. An existing link is replaced
// atomically. Throws if that fails, for example because ROOT/LINK is a directory.
void set_checkpoint_link(const std::filesystem::path& root, const char* link,
                         const std::string& name);

}  // namespace llmc
