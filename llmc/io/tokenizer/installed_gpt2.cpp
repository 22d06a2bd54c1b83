#include "llmc/io/tokenizer/installed_gpt2.h"

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <string>
#include <system_error>

#include "llmc/base/program_folders.h"

namespace llmc {

namespace {

namespace fs = std::filesystem;

// The value of an environment variable; empty if it is not set.
fs::path directory_of_variable(const char* variable) {
  const char* const value = std::getenv(variable);
  return value == nullptr ? "" : value;
}

// The directory for the hub's cache, as the library huggingface_hub determines it.
fs::path hub_cache() {
  const fs::path cache = directory_of_variable("HF_HUB_CACHE");
  if (!cache.empty()) return cache;
  const fs::path home = directory_of_variable("HF_HOME");
  if (!home.empty()) return home / "hub";
  const fs::path user_cache = directory_of_variable("XDG_CACHE_HOME");
  if (!user_cache.empty()) return user_cache / "huggingface" / "hub";
  const fs::path user = directory_of_variable("HOME");
  return user.empty() ? "" : user / ".cache" / "huggingface" / "hub";
}

// The snapshots of a model in the hub's cache, sorted.
void append_snapshots(std::vector<fs::path>& directories, const fs::path& model) {
  std::vector<fs::path> snapshots;
  std::error_code error;
  fs::directory_iterator entry(model / "snapshots", error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    snapshots.push_back(entry->path());
  }
  std::ranges::sort(snapshots);
  directories.insert(directories.end(), snapshots.begin(), snapshots.end());
}

bool has_vocabulary(const fs::path& directory) {
  std::error_code ignored;
  const auto has = [&](std::initializer_list<const char*> names) {
    return std::ranges::all_of(
        names, [&](const char* name) { return fs::is_regular_file(directory / name, ignored); });
  };
  return has({"tokenizer.json"}) || has({"vocab.json", "merges.txt"}) ||
         has({"encoder.json", "vocab.bpe"});
}

}  // namespace

std::vector<fs::path> gpt2_directories() {
  std::vector<fs::path> directories;
  for (const fs::path& root : program_folders()) {
    directories.push_back(root / "data" / "gpt2");
    for (const char* size : {"124M", "355M", "774M", "1558M"}) {
      directories.push_back(root / "models" / (std::string("gpt2-") + size));
    }
  }
  const fs::path data = directory_of_variable("LLMC_DATA");
  if (!data.empty()) directories.push_back(data / "gpt2");
  const fs::path cache = hub_cache();
  if (cache.empty()) return directories;
  for (const char* model : {"models--gpt2", "models--openai-community--gpt2"}) {
    append_snapshots(directories, cache / model);
  }
  return directories;
}

std::optional<fs::path> find_gpt2_vocabulary() {
  const std::vector<fs::path> directories = gpt2_directories();
  const auto first = std::ranges::find_if(directories, has_vocabulary);
  if (first == directories.end()) return std::nullopt;
  return *first;
}

}  // namespace llmc
