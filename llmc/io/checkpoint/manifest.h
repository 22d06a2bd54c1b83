// manifest.json, the last file of a checkpoint to be written. It lists the content of a complete
// checkpoint.
//
//     {
//       "format": "llmc checkpoint",
//       "version": 1,                      2 if a slice has a view
//       "step": 100,
//       "state": {"seed": 42, ...},        scalars that the trainer needs to resume
//       "history": [...],                  stretches of steps (history.h), unless there are none
//       "files": [
//         {"name": "model.safetensors", "bytes": 123, "xxh64": "0123456789abcdef",
//          "slices": [...]},               only tensors that this file stores in part or renamed:
//         ...                              {"name", "shape", "offset", "extent", "range"}, and
//                                          "stored" if the file has it under another name, and
//                                          "view" if the box is cut from another shape (slice.h)
//       ],
//       "xxh64": "0123456789abcdef"        hash of the bytes of this file before the comma above
//     }
//
// A manifest has the lowest version that can express it, so that older programs read every
// checkpoint without views. This program reads versions 1 and 2.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/base/checksum.h"
#include "llmc/base/json_value.h"
#include "llmc/io/checkpoint/history.h"
#include "llmc/io/checkpoint/slice.h"

namespace llmc {

// Named values that a checkpoint stores next to its tensors.
using CheckpointState = std::map<std::string, Scalar>;

struct ManifestFile {
  std::string name;  // without a directory
  std::int64_t bytes = 0;
  std::string checksum;       // as checksum_text returns it
  std::vector<Slice> slices;  // tensors stored in part or renamed; the file has the dtype
};

struct Manifest {
  std::int64_t step = 0;
  CheckpointState state;
  TrainingHistory history;
  std::vector<ManifestFile> files;
};

inline constexpr const char* kManifestName = "manifest.json";

// "step_000100": the name of a checkpoint after this many steps.
std::string checkpoint_name(std::int64_t step);

namespace manifest_detail {

inline constexpr std::string_view kSealBegin = ",\n  \"xxh64\": \"";
inline constexpr std::string_view kSealEnd = "\"\n}\n";

// Returns the end of a manifest whose other bytes are `body`.
inline std::string seal(std::string_view body) {
  return std::string(kSealBegin) + checksum_text(checksum_of(body)) + std::string(kSealEnd);
}

}  // namespace manifest_detail

std::string manifest_text(const Manifest& manifest);

// Errors begin with `what` (the path). Throws if any byte differs from what was written.
Manifest parse_manifest(std::string_view text, const std::string& what);

}  // namespace llmc
