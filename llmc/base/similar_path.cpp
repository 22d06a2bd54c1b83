#include "llmc/base/similar_path.h"

#include <cstddef>
#include <system_error>
#include <vector>

#include "llmc/base/shell_word.h"
#include "llmc/base/suggestions.h"

namespace llmc {

namespace {

constexpr std::size_t kMaxEntries = 10'000;  // of a directory that are compared

std::vector<KnownName> names_in(const std::filesystem::path& directory) {
  std::vector<KnownName> names;
  std::error_code error;
  std::filesystem::directory_iterator entry(directory.empty() ? "." : directory, error);
  for (; !error && entry != std::filesystem::directory_iterator() && names.size() < kMaxEntries;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    // A token cache lies next to its text and begins with the same name.
    const bool is_typed = !name.starts_with('.') && !name.ends_with(".cache.bin");
    if (is_typed) names.push_back({name, name});
  }
  return names;
}

}  // namespace

std::string did_you_mean_path(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  fs::path existing;
  auto part = path.begin();
  while (part != path.end() && fs::exists(existing / *part, ignored)) existing /= *part++;
  if (part == path.end() || part->empty()) return {};
  const std::string missing = part->string();
  fs::path rest;
  while (++part != path.end()) rest /= *part;
  std::vector<std::string> answers;
  for (const std::string& name : nearest_answers(missing, names_in(existing))) {
    const fs::path meant = rest.empty() ? existing / name : existing / name / rest;
    if (fs::exists(meant, ignored)) answers.push_back(shell_word(meant.string()));
  }
  return did_you_mean(answers);
}

}  // namespace llmc
