#include "llmc/io/data/token_file.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "llmc/base/error.h"

namespace llmc {

// ---- tokens in memory or in a file -----------------------------------------------------------

TokenData::TokenData(std::vector<std::int32_t> tokens) {
  const auto shared = std::make_shared<const std::vector<std::int32_t>>(std::move(tokens));
  tokens32_ = shared->data();
  size_ = static_cast<std::int64_t>(shared->size());
  owner_ = shared;
}

TokenData::TokenData(MappedFile file, std::size_t begin, TokenWidth width) {
  const auto shared = std::make_shared<const MappedFile>(std::move(file));
  const std::span bytes = shared->bytes().subspan(begin);
  if (width == TokenWidth::bits16) {
    tokens16_ = reinterpret_cast<const std::uint16_t*>(bytes.data());
  } else {
    tokens32_ = reinterpret_cast<const std::int32_t*>(bytes.data());
  }
  size_ = static_cast<std::int64_t>(bytes.size()) / token_bytes(width);
  owner_ = shared;
}

TokenData TokenData::slice(std::int64_t begin, std::int64_t end) const {
  check_range(begin, end);
  TokenData part = *this;
  if (tokens16_ != nullptr) part.tokens16_ += begin;
  if (tokens32_ != nullptr) part.tokens32_ += begin;
  part.size_ = end - begin;
  return part;
}

void TokenData::copy(std::int64_t begin, std::int64_t count, std::int32_t* out) const {
  check_range(begin, begin + count);
  if (tokens16_ != nullptr) {
    std::copy_n(tokens16_ + begin, count, out);
  } else if (count > 0) {
    std::copy_n(tokens32_ + begin, count, out);
  }
}

void TokenData::check_range(std::int64_t begin, std::int64_t end) const {
  if (0 <= begin && begin <= end && end <= size_) return;
  fail("tokens " + std::to_string(begin) + " to " + std::to_string(end) + " of " +
       std::to_string(size_) + " are out of range");
}

// ---- token files -----------------------------------------------------------------------------

void check_token_file(std::span<const std::byte> bytes, const std::string& path) {
  const std::string hint = "give a token file of llm.c: a header of 1024 bytes, then 16-bit tokens";
  require(!bytes.empty(), path + " is empty", hint);
  TokenFileHeader header{};
  const bool has_header = bytes.size() >= sizeof header;
  std::memcpy(header.data(), bytes.data(), std::min(bytes.size(), sizeof header));
  if (bytes.size() >= sizeof(std::int32_t) && header[0] != kTokenFileMagic) {
    fail(path + " is not a token file: it begins with " + std::to_string(header[0]) + ", not " +
             std::to_string(kTokenFileMagic),
         hint + "; give a text a name that does not end in .bin");
  }
  if (!has_header) {
    fail(path + " is truncated: its " + byte_text(static_cast<std::int64_t>(bytes.size())) +
             " are less than the header",
         hint);
  }
  if (header[1] != kTokenFileVersion) {
    fail(path + " is a token file of version " + std::to_string(header[1]),
         "supported version: 1 (16-bit tokens)");
  }
  require(header[2] != 0, path + " has no tokens");
  const auto data_bytes = static_cast<std::int64_t>(bytes.size() - sizeof header);
  if (header[2] < 0 || data_bytes != std::int64_t{header[2]} * 2) {
    const bool is_short = data_bytes < std::int64_t{header[2]} * 2;
    fail(path + (is_short ? " is truncated" : " is damaged") + ": its header announces " +
         std::to_string(header[2]) + " tokens of 2 bytes, but " + std::to_string(data_bytes) +
         " bytes follow");
  }
}

TokenData read_token_file(const std::filesystem::path& path) {
  MappedFile file(path);
  check_token_file(file.bytes(), path.string());
  return TokenData(std::move(file), sizeof(TokenFileHeader));
}

void check_token_file_vocabulary(std::int64_t vocabulary_size, const std::string& path) {
  if (vocabulary_size <= kTokenFileVocabulary) return;
  fail("the tokens of a vocabulary of " + std::to_string(vocabulary_size) +
           " do not fit into the 16 bits per token of " + path,
       "use a vocabulary of at most " + std::to_string(kTokenFileVocabulary) +
           " tokens, or give the text itself, which is tokenized in memory");
}

void check_tokens(std::span<const std::int32_t> tokens, std::int64_t vocabulary_size,
                  const std::string& path, std::int64_t offset) {
  const auto bad = std::find_if(tokens.begin(), tokens.end(), [&](std::int32_t token) {
    return token < 0 || token >= vocabulary_size;
  });
  if (bad == tokens.end()) return;
  fail(path + ": token " + std::to_string(offset + (bad - tokens.begin())) + " is " +
           std::to_string(*bad) + ", outside the vocabulary of " + std::to_string(vocabulary_size),
       "give the tokenizer that the tokens were made with");
}

void TokenFileWriter::append(std::span<const std::int32_t> tokens) {
  const std::string path = file_.path().string();
  check_tokens(tokens, vocabulary_size_, path, num_written_);
  const auto n = static_cast<std::int64_t>(tokens.size());
  if (n > max_count_ - num_written_)
    fail(path + ": more tokens than " + std::to_string(max_count_));
  constexpr std::size_t kPiece = std::size_t{1} << 16;
  for (; !tokens.empty(); tokens = tokens.subspan(std::min(kPiece, tokens.size()))) {
    const std::span piece = tokens.first(std::min(kPiece, tokens.size()));
    buffer_.resize(piece.size());
    std::transform(piece.begin(), piece.end(), buffer_.begin(),
                   [](std::int32_t token) { return static_cast<std::uint16_t>(token); });
    file_.write(std::as_bytes(std::span(buffer_)));
  }
  num_written_ += n;
}

void TokenFileWriter::finish() {
  if (num_written_ < min_count_) {
    fail(file_.path().string() + ": " + std::to_string(num_written_) + " tokens of " +
         std::to_string(min_count_) + " were written");
  }
  if (min_count_ != num_written_) write_header(num_written_);
  file_.commit();
}

TokenFileWriter::TokenFileWriter(const std::filesystem::path& path, std::int64_t vocabulary_size,
                                 std::int64_t min_count, std::int64_t max_count,
                                 std::span<const std::int32_t> note)
    : vocabulary_size_(vocabulary_size),
      min_count_(min_count),
      max_count_(max_count),
      note_(note.begin(), note.end()),
      file_(check_arguments(path, vocabulary_size, min_count)) {
  if (min_count == max_count) file_.reserve(kHeaderBytes + 2 * max_count);
  write_header(min_count);
}

void TokenFileWriter::write_header(std::int64_t count) {
  TokenFileHeader header{};
  header[0] = kTokenFileMagic;
  header[1] = kTokenFileVersion;
  header[2] = static_cast<std::int32_t>(count);
  std::copy(note_.begin(), note_.end(), header.begin() + kTokenFileNote);
  const std::span bytes = std::as_bytes(std::span(header));
  if (file_.size() == 0) {
    file_.write(bytes);
  } else {
    file_.rewrite_start(bytes);
  }
}

const std::filesystem::path& TokenFileWriter::check_arguments(const std::filesystem::path& path,
                                                              std::int64_t vocabulary_size,
                                                              std::int64_t count) {
  check_token_file_vocabulary(vocabulary_size, path.string());
  if (count < 1 || count > kTokenFileMaxTokens) {
    fail(path.string() + ": " + std::to_string(count) + " tokens cannot be in one token file",
         "write 1 to " + std::to_string(kTokenFileMaxTokens) + " tokens");
  }
  return path;
}

void write_token_file(const std::filesystem::path& path, std::span<const std::int32_t> tokens,
                      std::int64_t vocabulary_size) {
  TokenFileWriter writer(path, vocabulary_size, static_cast<std::int64_t>(tokens.size()));
  writer.append(tokens);
  writer.finish();
}

void check_tokens(const TokenData& tokens, std::int64_t vocabulary_size, const std::string& path) {
  constexpr std::int64_t kPiece = 1 << 16;
  std::vector<std::int32_t> piece(static_cast<std::size_t>(std::min(kPiece, tokens.size())));
  for (std::int64_t at = 0; at < tokens.size(); at += kPiece) {
    const std::int64_t n = std::min(kPiece, tokens.size() - at);
    tokens.copy(at, n, piece.data());
    check_tokens(std::span(piece).first(static_cast<std::size_t>(n)), vocabulary_size, path, at);
  }
}

}  // namespace llmc
