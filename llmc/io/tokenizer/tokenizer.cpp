#include "llmc/io/tokenizer/tokenizer.h"

#include <string_view>
#include <system_error>

#include "llmc/base/error.h"
#include "llmc/io/tokenizer/bpe_tokenizer.h"
#include "llmc/io/tokenizer/byte_tokenizer.h"
#include "llmc/io/tokenizer/tokenizer_json.h"
#include "llmc/io/tokenizer/word_tokenizer.h"

namespace llmc {

bool has_tokenizer_files(const std::filesystem::path& directory) {
  std::error_code ignored;
  for (const char* name :
       {"tokenizer.json", "encoder.json", "vocab.bpe", "vocab.json", "merges.txt"}) {
    if (std::filesystem::exists(directory / name, ignored)) return true;
  }
  return false;
}

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& spec) {
  constexpr std::string_view kWords = "words:";
  if (spec == "bytes") return std::make_unique<ByteTokenizer>();
  if (spec.starts_with(kWords)) return std::make_unique<WordTokenizer>(spec.substr(kWords.size()));
  const std::filesystem::path path = spec;
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    check_tokenizer_config(path);
    const std::filesystem::path json_path = path / "tokenizer.json";
    if (std::filesystem::exists(json_path, ignored)) return read_tokenizer_json(json_path, spec);
    return std::make_unique<BpeTokenizer>(path);
  }
  const bool exists = std::filesystem::exists(path, ignored);
  if (exists && path.extension() == ".json") return read_tokenizer_json(path, spec);
  fail(exists ? spec + " is a file, not the directory of a tokenizer"
              : "there is no tokenizer \"" + spec + "\"",
       "give bytes, words:FILE, a tokenizer.json, or a directory with that, with encoder.json and "
       "vocab.bpe, or with vocab.json and merges.txt");
}

}  // namespace llmc
