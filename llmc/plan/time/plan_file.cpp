#include "llmc/plan/time/plan_file.h"

#include <algorithm>
#include <system_error>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/program_folders.h"

namespace llmc {

namespace {

namespace fs = std::filesystem;

// The repository's folder; empty: it was not installed with the program.
fs::path folder_of(const std::string& kind) {
  std::error_code ignored;
  for (const fs::path& base : program_folders()) {
    fs::path folder = base / "scripts" / "machines";
    if (kind == "software") folder /= "software";
    if (fs::is_directory(folder, ignored)) return folder;
  }
  return {};
}

bool is_machine(const fs::path& path) {
  return path.extension() == ".json" && path.stem() != "published";
}

}  // namespace

fs::path plan_file(const std::string& name, const std::string& kind) {
  if (name.ends_with(".json")) return name;
  const fs::path folder = folder_of(kind);
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (is_machine(entry.path())) names.push_back(entry.path().stem().string());
  }
  if (std::ranges::find(names, name) != names.end()) return folder / (name + ".json");
  std::ranges::sort(names);
  std::string list;
  for (const std::string& one : names) list += (list.empty() ? "" : ", ") + one;
  fail("no " + kind + " is called '" + name + "'",
       names.empty() ? "give the path of a " + kind + " file, which ends in .json"
                     : "allowed: " + list + ", or a file that ends in .json");
}

}  // namespace llmc
