// Megatron-LM's token files. PREFIX.bin holds only the tokens. PREFIX.idx holds the type of the
// tokens and where sequences and documents begin:
//
//   bytes 0-8     "MMIDIDX\0\0"
//         9-16    version, 1                                             64-bit
//         17      type of the tokens: 4 is int32, 8 is uint16
//         18-25   S, the number of sequences                             64-bit
//         26-33   D, the number of documents, plus 1                     64-bit
//         then    S lengths of sequences, in tokens                      int32
//                 S positions of sequences in PREFIX.bin, in bytes       int64
//                 D sequence numbers: document d is [d] .. [d + 1] - 1   int64
//
// All integers are little-endian. The reader trusts none of them: sequences must follow each other
// without gap or overlap and fill PREFIX.bin. Document boundaries must not descend and must cover
// all sequences.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/io/data/token_file.h"

namespace llmc {

struct MegatronTokens {
  TokenData tokens;                           // mapped
  TokenWidth width = TokenWidth::bits16;      // width of the tokens in the file
  std::vector<std::int64_t> document_starts;  // ascending positions in `tokens`; the first is 0
};

namespace megatron_detail {

inline constexpr std::string_view kMagic("MMIDIDX\0\0", 9);
inline constexpr std::int64_t kHeaderBytes = 34;

// A parsed PREFIX.idx. Errors about invalid content name the file.
class Index {
 public:
  explicit Index(const std::filesystem::path& path) : path_(path.string()), file_(path) {
    const std::string ours = "an index that Megatron-LM's preprocess_data.py wrote";
    const auto size = static_cast<std::int64_t>(file_.bytes().size());
    if (size < kHeaderBytes) {
      fail(path_ + " is truncated: its " + byte_text(size) + " are less than the header", ours);
    }
    const std::string_view text(reinterpret_cast<const char*>(file_.bytes().data()), kMagic.size());
    if (text != kMagic) {
      fail(path_ + " is not a Megatron index: it begins with \"" + printable(text) + "\"", ours);
    }
    if (const auto version = number<std::uint64_t>(9); version != 1) {
      fail(path_ + " is a Megatron index of version " + std::to_string(version),
           "version 1 can be read");
    }
    width_ = width_of(number<std::uint8_t>(17));
    sequences_ = count(18, "sequences");
    documents_ = count(26, "document boundaries");
    // Neither product can exceed 2^63: count() has checked that neither count exceeds the file
    // size.
    const std::int64_t want = kHeaderBytes + 12 * sequences_ + 8 * documents_;
    if (size == want + sequences_) {
      fail(path_ + " has a mode for each sequence: it is the index of a multimodal data set",
           "data sets of text alone can be read");
    }
    if (size != want) {
      fail(path_ + (size < want ? " is truncated" : " is garbled") + ": " +
           std::to_string(sequences_) + " sequences and " + std::to_string(documents_) +
           " document boundaries take " + std::to_string(want) + " bytes, and it has " +
           std::to_string(size));
    }
  }

  TokenWidth width() const { return width_; }

  // Positions, in tokens, of the sequences in a file of `bytes` bytes, and of its end.
  std::vector<std::int64_t> sequence_places(std::int64_t bytes, const std::string& bin) const {
    std::vector<std::int64_t> places = {0};
    places.reserve(static_cast<std::size_t>(sequences_) + 1);
    for (std::int64_t s = 0; s < sequences_; ++s) {
      const std::int64_t at = places.back() * token_bytes(width_);
      const auto length = number<std::int32_t>(kHeaderBytes + 4 * s);
      const auto pointer = number<std::int64_t>(kHeaderBytes + 4 * sequences_ + 8 * s);
      if (length < 0 || length > (bytes - at) / token_bytes(width_)) {
        fail(path_ + ": sequence " + std::to_string(s) + " has " + std::to_string(length) +
             " tokens, and " + bin + " has " + std::to_string(bytes - at) +
             " bytes left when it begins");
      }
      if (pointer != at) {
        fail(path_ + ": sequence " + std::to_string(s) + " is said to begin at byte " +
                 std::to_string(pointer) + " of " + bin + ", and the one before it ends at " +
                 std::to_string(at),
             "sequences that follow each other, as Megatron-LM writes them, can be read");
      }
      places.push_back(places.back() + length);
    }
    return places;
  }

  // Positions, in tokens, of the documents, without empty documents.
  std::vector<std::int64_t> document_starts(const std::vector<std::int64_t>& sequences) const {
    std::vector<std::int64_t> starts;
    std::int64_t last = 0;
    for (std::int64_t d = 0; d < documents_; ++d) {
      const auto sequence = number<std::int64_t>(kHeaderBytes + 12 * sequences_ + 8 * d);
      const bool is_first = d == 0, is_last = d == documents_ - 1;
      if (sequence < last || sequence > sequences_ || (is_first && sequence != 0) ||
          (is_last && sequence != sequences_)) {
        fail(path_ + ": document boundary " + std::to_string(d) + " is sequence " +
                 std::to_string(sequence) + " of " + std::to_string(sequences_) +
                 (is_first ? "" : ", after sequence " + std::to_string(last)),
             "boundaries begin at 0, do not fall and end with the number of sequences");
      }
      last = sequence;
      const std::int64_t place = sequences[static_cast<std::size_t>(sequence)];
      if (!starts.empty() && starts.back() == place) continue;
      if (place < sequences.back()) starts.push_back(place);
    }
    return starts;
  }

 private:
  template <class Number>
  Number number(std::int64_t at) const {
    Number value;
    std::memcpy(&value, file_.bytes().data() + at, sizeof value);
    return value;
  }

  TokenWidth width_of(std::uint8_t code) const {
    if (code == 8) return TokenWidth::bits16;
    if (code == 4) return TokenWidth::bits32;
    fail(path_ + ": the tokens are of type " + std::to_string(code),
         "8 (uint16) and 4 (int32) can be read");
  }

  std::int64_t count(std::int64_t at, const char* of_what) const {
    const auto found = number<std::uint64_t>(at);
    if (found == 0) fail(path_ + " has no " + of_what);
    if (found > file_.bytes().size()) {
      fail(path_ + " is garbled: its " + std::to_string(file_.bytes().size()) +
           " bytes cannot hold " + std::to_string(found) + " " + of_what);
    }
    return static_cast<std::int64_t>(found);
  }

  std::string path_;
  MappedFile file_;
  TokenWidth width_ = TokenWidth::bits16;
  std::int64_t sequences_ = 0, documents_ = 0;
};

}  // namespace megatron_detail

// Returns the tokens of `prefix`.bin, mapped: they are read from disk at first use. Throws an error
// that names the file and what is wrong with it.
inline MegatronTokens read_megatron_file(const std::string& prefix) {
  const megatron_detail::Index index(prefix + ".idx");
  const std::string bin = prefix + ".bin";
  MappedFile file(bin);
  const auto bytes = static_cast<std::int64_t>(file.bytes().size());
  const std::vector<std::int64_t> sequences = index.sequence_places(bytes, bin);
  const std::int64_t used = sequences.back() * token_bytes(index.width());
  if (used != bytes) {
    fail(bin + " is garbled: it has " + std::to_string(bytes) + " bytes, and the sequences of " +
         prefix + ".idx take " + std::to_string(used));
  }
  require(bytes > 0, bin + " holds no tokens");
  return {TokenData(std::move(file), 0, index.width()), index.width(),
          index.document_starts(sequences)};
}

}  // namespace llmc
