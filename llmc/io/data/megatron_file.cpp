#include "llmc/io/data/megatron_file.h"

#include <array>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <utility>

#include "llmc/base/error.h"
#include "llmc/base/file.h"

namespace llmc {

namespace megatron_detail {

namespace {

constexpr std::int64_t kHeaderBytes = 34;

// A parsed PREFIX.idx. Errors about invalid content name the file.
class Index {
 public:
  explicit Index(const std::filesystem::path& path) : path_(path.string()), file_(path) {
    const std::string hint = "give an index that Megatron-LM's preprocess_data.py wrote";
    const auto size = static_cast<std::int64_t>(file_.bytes().size());
    if (size < kHeaderBytes) {
      fail(path_ + " is truncated: its " + byte_text(size) + " are less than the header", hint);
    }
    const std::string_view text(reinterpret_cast<const char*>(file_.bytes().data()), kMagic.size());
    if (text != kMagic) {
      fail(path_ + " is not a Megatron index: it begins with \"" + printable(text) + "\"", hint);
    }
    if (const auto version = number<std::uint64_t>(9); version != 1) {
      fail(path_ + " is a Megatron index of version " + std::to_string(version),
           "supported version: 1");
    }
    type_ = type_of(number<std::uint8_t>(17));
    sequences_ = count(18, "sequences");
    documents_ = count(26, "document boundaries");
    // Neither product can exceed 2^63: count() has checked that neither count exceeds the file
    // size.
    const std::int64_t expected_size = kHeaderBytes + 12 * sequences_ + 8 * documents_;
    if (size == expected_size + sequences_) {
      fail(path_ + " has a mode for each sequence: it is the index of a multimodal data set",
           "give the index of a text data set");
    }
    if (size != expected_size) {
      fail(path_ + (size < expected_size ? " is truncated" : " is damaged") + ": " +
           std::to_string(sequences_) + " sequences and " + std::to_string(documents_) +
           " document boundaries take " + std::to_string(expected_size) + " bytes, but it has " +
           std::to_string(size));
    }
  }

  TokenType type() const { return type_; }

  // Positions, in tokens, of the sequences in a file of `bytes` bytes, and of its end.
  std::vector<std::int64_t> sequence_starts(std::int64_t bytes, const std::string& bin) const {
    std::vector<std::int64_t> starts = {0};
    starts.reserve(static_cast<std::size_t>(sequences_) + 1);
    for (std::int64_t s = 0; s < sequences_; ++s) {
      const std::int64_t at = starts.back() * token_bytes(type_);
      const auto length = number<std::int32_t>(kHeaderBytes + 4 * s);
      const auto pointer = number<std::int64_t>(kHeaderBytes + 4 * sequences_ + 8 * s);
      if (length < 0 || length > (bytes - at) / token_bytes(type_)) {
        fail(path_ + ": sequence " + std::to_string(s) + " has " + std::to_string(length) +
             " tokens, but " + bin + " has " + std::to_string(bytes - at) +
             " bytes left when it begins");
      }
      if (pointer != at) {
        fail(path_ + ": sequence " + std::to_string(s) + " begins at byte " +
                 std::to_string(pointer) + " of " + bin + ", but the one before it ends at " +
                 std::to_string(at),
             "write the sequences one after another, without gaps, as Megatron-LM does");
      }
      starts.push_back(starts.back() + length);
    }
    return starts;
  }

  // Positions, in tokens, of the documents, without empty documents.
  std::vector<std::int64_t> document_starts(const std::vector<std::int64_t>& sequences) const {
    std::vector<std::int64_t> starts;
    std::int64_t previous = 0;
    for (std::int64_t d = 0; d < documents_; ++d) {
      const auto sequence = number<std::int64_t>(kHeaderBytes + 12 * sequences_ + 8 * d);
      const bool is_first = d == 0, is_last = d == documents_ - 1;
      if (sequence < previous || sequence > sequences_ || (is_first && sequence != 0) ||
          (is_last && sequence != sequences_)) {
        fail(path_ + ": document boundary " + std::to_string(d) + " is sequence " +
                 std::to_string(sequence) + " of " + std::to_string(sequences_) +
                 (is_first ? "" : ", after sequence " + std::to_string(previous)),
             "boundaries must begin at 0, never decrease, and end with the number of sequences");
      }
      previous = sequence;
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

  // The types of Megatron-LM's DType.
  TokenType type_of(std::uint8_t code) const {
    constexpr std::array<std::pair<std::uint8_t, TokenType>, 6> kTypes = {{{1, TokenType::uint8},
                                                                           {2, TokenType::int8},
                                                                           {3, TokenType::int16},
                                                                           {4, TokenType::int32},
                                                                           {5, TokenType::int64},
                                                                           {8, TokenType::uint16}}};
    for (const auto& [other, type] : kTypes) {
      if (other == code) return type;
    }
    fail(path_ + ": the tokens are of type " + std::to_string(code),
         "supported types: 1 (uint8), 2 (int8), 3 (int16), 4 (int32), 5 (int64) and 8 (uint16)");
  }

  std::int64_t count(std::int64_t at, const char* name) const {
    const auto value = number<std::uint64_t>(at);
    if (value == 0) fail(path_ + " has no " + name);
    if (value > file_.bytes().size()) {
      fail(path_ + " is damaged: its " + std::to_string(file_.bytes().size()) +
           " bytes cannot hold " + std::to_string(value) + " " + name);
    }
    return static_cast<std::int64_t>(value);
  }

  std::string path_;
  MappedFile file_;
  TokenType type_ = TokenType::uint16;
  std::int64_t sequences_ = 0, documents_ = 0;
};

}  // namespace

}  // namespace megatron_detail

MegatronTokens read_megatron_file(const std::string& prefix) {
  const megatron_detail::Index index(prefix + ".idx");
  const std::string bin = prefix + ".bin";
  MappedFile file(bin);
  const auto bytes = static_cast<std::int64_t>(file.bytes().size());
  const std::vector<std::int64_t> sequences = index.sequence_starts(bytes, bin);
  const std::int64_t sequence_bytes = sequences.back() * token_bytes(index.type());
  if (sequence_bytes != bytes) {
    fail(bin + " is damaged: it has " + std::to_string(bytes) + " bytes, but the sequences of " +
         prefix + ".idx take " + std::to_string(sequence_bytes));
  }
  require(bytes > 0, bin + " has no tokens");
  return {TokenData(std::move(file), 0, index.type()), index.type(),
          index.document_starts(sequences)};
}

}  // namespace llmc
