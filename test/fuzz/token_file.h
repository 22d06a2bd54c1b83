// Fuzz target for llm.c's and nanoGPT's token files. An input that begins with a magic number of
// llm.c is the file. Any other input is the tokens, and the target adds a header.
#pragma once

#include <array>
#include <numeric>

#include "llmc/io/data/token_file.h"
#include "test/fuzz/fuzz.h"

namespace llmc_fuzz {

inline void token_file(std::string_view input) {
  static const Folder folder;
  const auto read_as = [](const std::string& path, llmc::BinFormat format) {
    is_rejected(path, [&] {
      const llmc::TokenData tokens = llmc::read_token_file(path, format);
      std::int64_t sum = 0;
      for (std::int64_t i = 0; i < tokens.size(); ++i) sum += tokens[i];
      const std::int64_t half = tokens.size() / 2;
      const llmc::TokenData tail = tokens.slice(half, tokens.size());
      std::vector<std::int32_t> copy(static_cast<std::size_t>(tail.size()));
      tail.copy(0, tail.size(), copy.data());
      for (std::int64_t i = 0; i < half; ++i) sum -= tokens[i];
      expect(sum == std::accumulate(copy.begin(), copy.end(), std::int64_t{0}),
             "a slice holds the tokens of its positions");
      llmc::check_tokens(tokens, 50257, path);
    });
  };
  const auto read = [&](std::string_view bytes) {
    const std::string path = folder.write("tokens.bin", bytes);
    read_as(path, llmc::BinFormat::llmc);
    read_as(path, llmc::BinFormat::nanogpt);
  };
  for (const std::int32_t magic : {llmc::kTokenFileMagic, llmc::kWideTokenFileMagic}) {
    if (input.starts_with({reinterpret_cast<const char*>(&magic), sizeof magic}))
      return read(input);
  }
  llmc::TokenFileHeader header{llmc::kTokenFileMagic, llmc::kTokenFileVersion,
                               static_cast<std::int32_t>(input.size() / 2)};
  std::string file(sizeof header, '\0');
  std::memcpy(file.data(), header.data(), sizeof header);
  read(file.append(input));
}

}  // namespace llmc_fuzz
