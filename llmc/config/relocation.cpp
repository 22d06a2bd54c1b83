#include "llmc/config/relocation.h"

#include <glob.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <system_error>

#include "llmc/io/data/source_list.h"
#include "llmc/io/tokenizer/tokenizer.h"

namespace llmc {

bool leads_to_file(const std::string& name) {
  std::error_code ignored;
  if (std::filesystem::exists(name, ignored) || std::filesystem::exists(name + ".bin", ignored)) {
    return true;
  }
  glob_t matches{};
  const bool matched = ::glob(name.c_str(), GLOB_NOESCAPE | GLOB_NOSORT, nullptr, &matches) == 0;
  ::globfree(&matches);
  return matched;
}

namespace {

// Joins two paths, without "." and "..", and without a slash at the end.
std::filesystem::path joined(const std::filesystem::path& directory,
                             const std::filesystem::path& path) {
  const std::filesystem::path whole = (directory / path).lexically_normal();
  return whole.has_filename() ? whole : whole.parent_path();
}

}  // namespace

std::string relocate_path(const std::string& name, const Relocation& relocation) {
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

std::string relocate_sources(const std::string& text, const Relocation& relocation) {
  return replace_source_names(
      text, [&](const std::string& name) { return relocate_path(name, relocation); });
}

std::string relocate_label_files(const std::string& text, const Relocation& relocation) {
  using namespace source_list_detail;
  if (text.find('=') == text.npos || leads_to_file(text)) return relocate_path(text, relocation);
  std::string out;
  for (const std::string& item : split_list(text)) {
    const std::size_t begin = std::min(item.find('='), item.size() - 1) + 1;
    const std::string name = unescape(item.substr(begin));
    out +=
        (out.empty() ? "" : ",") + item.substr(0, begin) + escape(relocate_path(name, relocation));
  }
  return out;
}

std::string relocate_after_colon(const std::string& text, const Relocation& relocation) {
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) return text;
  return text.substr(0, colon + 1) + relocate_path(text.substr(colon + 1), relocation);
}

std::string relocate_tokenizer(const std::string& name, const Relocation& relocation) {
  if (name.starts_with("words:")) return relocate_after_colon(name, relocation);
  if (leads_to_file(name) || name == "bytes" || name == "token ids") return name;
  const std::string path = relocate_path(name, relocation);
  // An installed vocabulary has no path.
  return name == kGpt2Name && !leads_to_file(path) ? name : path;
}

}  // namespace llmc
