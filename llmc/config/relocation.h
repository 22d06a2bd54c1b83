// Names of files in the recorded settings of a run that is continued from another directory, or
// whose --out was moved. A name keeps its form if it leads to a file from the current directory
// too.
#pragma once

#include <glob.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include "llmc/config/setting.h"
#include "llmc/io/data/source_list.h"

namespace llmc {

// Whether a name leads to a file: a path, a pattern, or the prefix of Megatron's files.
inline bool leads_to_file(const std::string& name) {
  std::error_code ignored;
  if (std::filesystem::exists(name, ignored) || std::filesystem::exists(name + ".bin", ignored)) {
    return true;
  }
  glob_t matches{};
  const bool matched = ::glob(name.c_str(), GLOB_NOESCAPE | GLOB_NOSORT, nullptr, &matches) == 0;
  ::globfree(&matches);
  return matched;
}

namespace relocation_detail {

// Joins two paths, without "." and "..", and without a slash at the end.
inline std::filesystem::path joined(const std::filesystem::path& directory,
                                    const std::filesystem::path& path) {
  const std::filesystem::path whole = (directory / path).lexically_normal();
  return whole.has_filename() ? whole : whole.parent_path();
}

}  // namespace relocation_detail

// Returns the name for a file of the run. A file in the former --out is in the new one now. Another
// relative name becomes absolute if nothing of that name is here and the former directory exists.
inline std::string relocate_path(const std::string& name, const Relocation& relocation) {
  using namespace relocation_detail;
  namespace fs = std::filesystem;
  const fs::path here = fs::current_path();
  const fs::path path = joined(relocation.directory, name);
  const fs::path old_out = joined(relocation.directory, relocation.out);
  const fs::path in_out = path.lexically_relative(old_out);
  const bool inside = !in_out.empty() && *in_out.begin() != ".." && in_out != ".";
  if (inside && old_out != joined(here, relocation.new_out)) {
    return (fs::path(relocation.new_out) / in_out).string();
  }
  std::error_code ignored;
  if (fs::path(name).is_absolute() || here == relocation.directory || leads_to_file(name) ||
      !fs::is_directory(relocation.directory, ignored)) {
    return name;
  }
  return path.string();
}

// The same for the list of --train or --val: names are replaced, weights and order stay.
inline std::string relocate_sources(const std::string& text, const Relocation& relocation) {
  return replace_source_names(
      text, [&](const std::string& name) { return relocate_path(name, relocation); });
}

// The same for the part after the first colon: TASK:FILE, or words:FILE.
inline std::string relocate_after_colon(const std::string& text, const Relocation& relocation) {
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) return text;
  return text.substr(0, colon + 1) + relocate_path(text.substr(colon + 1), relocation);
}

// The same for --tokenizer: bytes and token ids are no files.
inline std::string relocate_tokenizer(const std::string& name, const Relocation& relocation) {
  if (name.starts_with("words:")) return relocate_after_colon(name, relocation);
  return leads_to_file(name) || name == "bytes" || name == "token ids"
             ? name
             : relocate_path(name, relocation);
}

}  // namespace llmc
