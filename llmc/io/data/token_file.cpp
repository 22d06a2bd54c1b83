#include "llmc/io/data/token_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "llmc/base/error.h"
#include "llmc/io/data/compressed_file.h"
#include "llmc/io/data/packed_kind.h"

namespace llmc {

// ---- tokens in memory or in a file -----------------------------------------------------------

namespace {

// Calls f with a pointer of the type of the tokens.
template <class F>
decltype(auto) with_type(TokenType type, const std::byte* data, F&& f) {
  switch (type) {
    case TokenType::uint8:
      return f(reinterpret_cast<const std::uint8_t*>(data));
    case TokenType::int8:
      return f(reinterpret_cast<const std::int8_t*>(data));
    case TokenType::uint16:
      return f(reinterpret_cast<const std::uint16_t*>(data));
    case TokenType::int16:
      return f(reinterpret_cast<const std::int16_t*>(data));
    case TokenType::uint32:
      return f(reinterpret_cast<const std::uint32_t*>(data));
    case TokenType::int64:
      return f(reinterpret_cast<const std::int64_t*>(data));
    case TokenType::int32:
      break;
  }
  return f(reinterpret_cast<const std::int32_t*>(data));
}

template <class Token>
std::int32_t narrow(Token token) {
  return std::in_range<std::int32_t>(token) ? static_cast<std::int32_t>(token) : -1;
}

}  // namespace

std::int64_t token_bytes(TokenType type) {
  return with_type(type, nullptr, [](auto tokens) { return std::int64_t{sizeof *tokens}; });
}

const char* type_text(TokenType type) {
  constexpr std::array kTexts = {"8-bit",           "8-bit signed", "16-bit", "16-bit signed",
                                 "32-bit unsigned", "32-bit",       "64-bit"};
  return kTexts[static_cast<std::size_t>(type)];
}

TokenData::TokenData(std::vector<std::int32_t> tokens) {
  const auto shared = std::make_shared<const std::vector<std::int32_t>>(std::move(tokens));
  data_ = reinterpret_cast<const std::byte*>(shared->data());
  size_ = static_cast<std::int64_t>(shared->size());
  owner_ = shared;
}

TokenData::TokenData(MappedFile file, std::size_t begin, TokenType type) : type_(type) {
  const auto shared = std::make_shared<const MappedFile>(std::move(file));
  const std::span bytes = shared->bytes().subspan(begin);
  data_ = bytes.data();
  size_ = static_cast<std::int64_t>(bytes.size()) / token_bytes(type);
  owner_ = shared;
}

std::int64_t TokenData::stored(std::int64_t i) const {
  return with_type(type_, data_, [&](auto tokens) { return std::int64_t{tokens[i]}; });
}

std::int32_t TokenData::operator[](std::int64_t i) const {
  return narrow(stored(i));
}

TokenData TokenData::slice(std::int64_t begin, std::int64_t end) const {
  check_range(begin, end);
  TokenData part = *this;
  if (data_ != nullptr) part.data_ += begin * token_bytes(type_);
  part.size_ = end - begin;
  return part;
}

void TokenData::copy(std::int64_t begin, std::int64_t count, std::int32_t* out) const {
  check_range(begin, begin + count);
  if (count == 0) return;
  with_type(type_, data_, [&](auto tokens) {
    std::transform(tokens + begin, tokens + begin + count, out,
                   [](auto token) { return narrow(token); });
  });
}

void TokenData::check_range(std::int64_t begin, std::int64_t end) const {
  if (0 <= begin && begin <= end && end <= size_) return;
  fail("tokens " + std::to_string(begin) + " to " + std::to_string(end) + " of " +
       std::to_string(size_) + " are out of range");
}

// ---- token files -----------------------------------------------------------------------------

namespace {

constexpr const char* kTokenFileHint =
    "give a token file of llm.c: a header of 1024 bytes, then 16-bit or 32-bit tokens";

// Throws the error of a file that does not begin with the magic number of a token file.
[[noreturn]] void fail_magic(std::span<const std::byte> bytes, std::int32_t magic,
                             const std::string& path) {
  const std::string kind = packed_kind(
      {reinterpret_cast<const char*>(bytes.data()), std::min<std::size_t>(bytes.size(), 64)}, path);
  if (!kind.empty()) fail(path + " is not a token file: it is " + kind);
  fail(path + " is not a token file: it begins with " + std::to_string(magic) + ", not " +
           std::to_string(kTokenFileMagic),
       std::string(kTokenFileHint) +
           "; for 16-bit tokens without a header, as nanoGPT writes them, use " +
           quantity("format of token files") +
           " nanogpt; give a text a name that does not end in .bin");
}

}  // namespace

TokenType check_token_file(std::span<const std::byte> bytes, const std::string& path) {
  require(!bytes.empty(), path + " is empty", kTokenFileHint);
  TokenFileHeader header{};
  const bool has_header = bytes.size() >= sizeof header;
  std::memcpy(header.data(), bytes.data(), std::min(bytes.size(), sizeof header));
  const bool is_wide = header[0] == kWideTokenFileMagic;
  if (bytes.size() >= sizeof(std::int32_t) && header[0] != kTokenFileMagic && !is_wide) {
    fail_magic(bytes, header[0], path);
  }
  if (!has_header) {
    fail(path + " is truncated: its " + byte_text(static_cast<std::int64_t>(bytes.size())) +
             " are less than the header",
         kTokenFileHint);
  }
  if (header[1] != (is_wide ? kWideTokenFileVersion : kTokenFileVersion)) {
    fail(path + " is a token file of version " + std::to_string(header[1]),
         is_wide ? "supported version: 7 (32-bit tokens)" : "supported version: 1 (16-bit tokens)");
  }
  require(header[2] != 0, path + " has no tokens");
  const TokenType type = is_wide ? TokenType::uint32 : TokenType::uint16;
  const auto data_bytes = static_cast<std::int64_t>(bytes.size() - sizeof header);
  const std::int64_t expected_bytes = std::int64_t{header[2]} * token_bytes(type);
  if (header[2] < 0 || data_bytes != expected_bytes) {
    fail(path + (data_bytes < expected_bytes ? " is truncated" : " is damaged") +
         ": its header announces " + std::to_string(header[2]) + " tokens of " +
         std::to_string(token_bytes(type)) + " bytes, but " + std::to_string(data_bytes) +
         " bytes follow");
  }
  return type;
}

namespace {

bool has_token_file_header(std::span<const std::byte> bytes) {
  std::array<std::int32_t, 2> start{};
  if (bytes.size() < sizeof start) return false;
  std::memcpy(start.data(), bytes.data(), sizeof start);
  return start == std::array{kTokenFileMagic, kTokenFileVersion} ||
         start == std::array{kWideTokenFileMagic, kWideTokenFileVersion};
}

}  // namespace

TokenData read_token_file(const std::filesystem::path& path, BinFormat format) {
  if (uncompressed_name(path.string()) != path.string()) {
    fail(path.string() + " is compressed, and token files are mapped as they are",
         "unpack it first, with gzip -dk or zstd -d");
  }
  MappedFile file(path);
  if (format == BinFormat::nanogpt && !has_token_file_header(file.bytes())) {
    const std::size_t size = file.bytes().size();
    require(size > 0, path.string() + " is empty", "give a file of 16-bit tokens");
    if (size % 2 != 0) {
      fail(path.string() + " has " + std::to_string(size) +
               " bytes, which is no whole number of 16-bit tokens",
           "give the complete file that nanoGPT's prepare.py wrote");
    }
    return TokenData(std::move(file), 0);
  }
  const TokenType type = check_token_file(file.bytes(), path.string());
  return TokenData(std::move(file), sizeof(TokenFileHeader), type);
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
  fail_token(*bad, vocabulary_size, path, offset + (bad - tokens.begin()));
}

void fail_token(std::int64_t token, std::int64_t vocabulary_size, const std::string& path,
                std::int64_t position) {
  fail(path + ": token " + std::to_string(position) + " is " + std::to_string(token) +
           ", outside the vocabulary of " + std::to_string(vocabulary_size),
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
  for (std::int64_t i = 0; i < tokens.size(); ++i) {
    const std::int64_t token = tokens.stored(i);
    if (token < 0 || token >= vocabulary_size) fail_token(token, vocabulary_size, path, i);
  }
}

}  // namespace llmc
