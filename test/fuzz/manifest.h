// Fuzz target for a checkpoint's manifest. The input is the part before the checksum, and the
// target appends the checksum. An input that ends like a complete manifest is used unchanged. A
// manifest that is read and written again stays the same. Slices are accepted as the whole of a
// tensor only if copying them writes each of its elements once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/io/checkpoint/manifest.h"
#include "test/fuzz/fuzz.h"

namespace llmc_fuzz {

// Compares check_slices_cover with copies of the slices, which are valid and of one small tensor.
inline void check_coverage(const std::vector<llmc::Slice>& slices) {
  const std::int64_t num_elements = *llmc::checked_count(slices[0].shape);
  std::vector<float> whole(static_cast<std::size_t>(num_elements));
  std::int64_t count = 0;
  for (const llmc::Slice& slice : slices) {
    const std::vector<float> ones(static_cast<std::size_t>(slice.count()), 1.0f);
    llmc::copy_slice_into(slice, std::as_bytes(std::span(ones)),
                          reinterpret_cast<std::byte*>(whole.data()));
    count += slice.count();
  }
  const bool covers =
      count == num_elements && std::find(whole.begin(), whole.end(), 0.0f) == whole.end();
  const bool rejected = is_rejected("tensor ", [&] { llmc::check_slices_cover(slices); });
  expect(rejected != covers, "slices cover a tensor if they hold each element once");
}

inline void read_manifest(std::string_view text) {
  constexpr const char* kName = "manifest.json";
  constexpr std::int64_t kMaxElements = 1000;
  is_rejected(kName, [&] {
    const llmc::Manifest manifest = llmc::parse_manifest(text, kName);
    const std::string rewritten = llmc::manifest_text(manifest);
    expect(llmc::manifest_text(llmc::parse_manifest(rewritten, kName)) == rewritten,
           "reading a manifest and writing it again changes nothing");
    for (const llmc::ManifestFile& file : manifest.files) {
      std::vector<llmc::Slice> small;  // slices of the same small shape
      for (const llmc::Slice& slice : file.slices) {
        is_rejected("tensor ", [&] {
          slice.check();
          if (*llmc::checked_count(slice.shape) <= kMaxElements &&
              (small.empty() || small[0].shape == slice.shape)) {
            small.push_back(slice);
          }
          llmc::check_slices_cover({slice});
        });
      }
      if (!small.empty()) check_coverage(small);
    }
  });
}

inline void manifest(std::string_view input) {
  using namespace llmc::manifest_detail;
  read_manifest(std::string(input) + (input.ends_with(kSealEnd) ? std::string() : seal(input)));
}

}  // namespace llmc_fuzz
