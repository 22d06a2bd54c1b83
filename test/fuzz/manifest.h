// Fuzz target for a checkpoint's manifest. The input is the part before the checksum, and the
// target appends the checksum. An input that ends like a complete manifest is used unchanged. A
// manifest that is read and written again stays the same.
#pragma once

#include "llmc/io/checkpoint/manifest.h"
#include "test/fuzz/fuzz.h"

namespace llmc_fuzz {

inline void read_manifest(std::string_view text) {
  constexpr const char* kName = "manifest.json";
  is_rejected(kName, [&] {
    const llmc::Manifest manifest = llmc::parse_manifest(text, kName);
    const std::string rewritten = llmc::manifest_text(manifest);
    expect(llmc::manifest_text(llmc::parse_manifest(rewritten, kName)) == rewritten,
           "reading a manifest and writing it again changes nothing");
    for (const llmc::ManifestFile& file : manifest.files) {
      for (const llmc::Slice& slice : file.slices) {
        is_rejected("tensor ", [&] {
          slice.check();
          llmc::check_slices_cover({slice});
        });
      }
    }
  });
}

inline void manifest(std::string_view input) {
  using namespace llmc::manifest_detail;
  read_manifest(std::string(input) + (input.ends_with(kSealEnd) ? std::string() : seal(input)));
}

}  // namespace llmc_fuzz
