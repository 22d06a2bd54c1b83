#include "llmc/io/tokenizer/tokenizer.h"

#include <optional>
#include <string_view>
#include <system_error>

#include "llmc/base/error.h"
#include "llmc/base/notice.h"
#include "llmc/base/similar_path.h"
#include "llmc/io/tokenizer/bpe_tokenizer.h"
#include "llmc/io/tokenizer/byte_tokenizer.h"
#include "llmc/io/tokenizer/installed_gpt2.h"
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

namespace {

// The tokenizer of "gpt2" if that is no path: an installed vocabulary of GPT-2.
std::unique_ptr<Tokenizer> make_installed_gpt2() {
  const std::optional<std::filesystem::path> directory = find_gpt2_vocabulary();
  if (!directory) {
    fail(
        "there is no tokenizer \"gpt2\": no directory of that name, and no vocabulary of GPT-2 in "
        "data/gpt2, models/gpt2-124M, $LLMC_DATA/gpt2 and the cache of Hugging Face",
        "scripts/get_gpt2.sh downloads it to models/gpt2-124M, on request without the weights; "
        "or give the directory with its tokenizer.json, vocab.json and merges.txt, or encoder.json "
        "and vocab.bpe");
  }
  Notice::print("tokenizer gpt2: the vocabulary in " + directory->string());
  return make_tokenizer(directory->string());
}

}  // namespace

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
  if (!exists && spec == kGpt2Name) return make_installed_gpt2();
  if (exists && path.extension() == ".json") return read_tokenizer_json(path, spec);
  fail(exists ? spec + " is a file, not the directory of a tokenizer"
              : "there is no tokenizer \"" + spec + "\"" + did_you_mean_path(path),
       "give bytes, gpt2, words:FILE, a tokenizer.json, or a directory with that, with "
       "encoder.json and "
       "vocab.bpe, or with vocab.json and merges.txt");
}

}  // namespace llmc
