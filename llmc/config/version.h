// The text of --version.
#pragma once

#include <CLI/Version.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "llmc/base/checksum.h"
#include "llmc/base/version.h"
#include "llmc/device/libraries.h"
#include "llmc/io/tokenizer/gpt2_splitter.h"

// The commit of the last build, from a file that the Makefile writes and links into each program.
// Null in a binary that is linked without that file, such as the tests.
extern "C" const char llmc_commit[] __attribute__((weak));

namespace llmc {

// The commit that this program was built from, with ", modified" if the sources were changed;
// "unknown" if they were no repository.
inline std::string commit_text() {
  return llmc_commit == nullptr ? "unknown" : llmc_commit;
}

// The compiler of the host code; g++ states only its number.
inline std::string compiler_text() {
  const std::string version = __VERSION__;
  return version[0] >= '0' && version[0] <= '9' ? "g++ " + version : version;
}

// Four lines: version and commit, target, compiler, libraries.
inline std::string version_text(const std::string& program) {
  const auto versions = [](auto... parts) {
    std::string text;
    ((text += (text.empty() ? "" : ".") + std::to_string(parts)), ...);
    return text;
  };
  char pcre2[64] = {};
  pcre2_config(PCRE2_CONFIG_VERSION, pcre2);
  const std::string pcre2_text(pcre2);  // "10.42 2022-12-11"
  const unsigned xxhash = XXH_versionNumber();
  return program + " " + kVersion + " (commit " + commit_text() + ")\n" +
         "target: " + target_text() + "\n" + "compiler: " + compiler_text() + "\n" +
         "libraries: " + compute_libraries_text() + ", CLI11 " + CLI11_VERSION +
         ", nlohmann-json " +
         versions(NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR,
                  NLOHMANN_JSON_VERSION_PATCH) +
         ", PCRE2 " + pcre2_text.substr(0, pcre2_text.find(' ')) + ", xxHash " +
         versions(xxhash / 10000, xxhash / 100 % 100, xxhash % 100) + "\n";
}

}  // namespace llmc
