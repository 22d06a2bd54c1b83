#include <algorithm>
#include <string>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/notice.h"
#include "llmc/base/text_list.h"
#include "llmc/io/checkpoint/checkpoint_search.h"
#include "llmc/train/run/newest_checkpoint.h"

namespace llmc {

namespace {

// The checkpoints that rank 0 lists.
std::vector<std::string> listed_checkpoints(const std::filesystem::path& root, Exchange& exchange) {
  std::vector<std::string> paths;
  exchange.together([&] {
    if (!exchange.first()) return;
    const CheckpointList list = list_checkpoints(root);
    for (const std::string& warning : list.warnings) Notice::warn("warning: " + warning);
    for (const auto& path : list.newest_first) paths.push_back(path.string());
  });
  return unpack_texts(exchange.broadcast(pack_texts(paths)));
}

// The fault of this rank's share of the files; empty: none.
std::string fault_of_share(const CheckpointReader& reader, const Exchange& exchange) {
  try {
    reader.verify(exchange.rank(), exchange.ranks());
    return {};
  } catch (const Error& fault) {
    return fault.what();
  }
}

}  // namespace

std::optional<VerifiedCheckpoint> find_verified_checkpoint(const std::filesystem::path& root,
                                                           Exchange& exchange) {
  for (const std::string& path : listed_checkpoints(root, exchange)) {
    std::optional<CheckpointReader> reader;
    exchange.together([&] { reader.emplace(path); });
    std::string fault;
    VerifiedCheckpoint verified{.path = path, .stamps = {}};
    try {
      verified.stamps = reader->stamps();
    } catch (const Error& error) {
      fault = error.what();
    }
    if (fault.empty()) fault = fault_of_share(*reader, exchange);
    const std::vector<std::string> faults = exchange.gather_texts(fault);
    const auto first = std::ranges::find_if(faults, [](const auto& text) { return !text.empty(); });
    if (first == faults.end()) return verified;
    if (exchange.first()) Notice::warn("warning: " + skipped_text(path, *first));
  }
  return std::nullopt;
}

void require_unchanged(const std::vector<VerifiedCheckpoint>& checkpoints, Exchange& exchange) {
  exchange.together([&] {
    for (const VerifiedCheckpoint& checkpoint : checkpoints) {
      CheckpointReader(checkpoint.path).require_unchanged(checkpoint.stamps);
    }
  });
}

}  // namespace llmc
