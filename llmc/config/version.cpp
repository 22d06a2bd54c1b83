#include "llmc/config/version.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <xxhash.h>
#include <zlib.h>
#include <zstd.h>

#include "llmc/base/json.h"
#include "llmc/base/version.h"
#include "llmc/config/command_line.h"

// The commit of the last build, from a file that the Makefile writes and links into each program.
// Null in a binary that is linked without that file, such as the tests.
extern "C" const char llmc_commit[] __attribute__((weak));

namespace llmc {

namespace {

// The compiler of the host code; g++ states only its number.
std::string compiler_text() {
  const std::string version = __VERSION__;
  return version[0] >= '0' && version[0] <= '9' ? "g++ " + version : version;
}

}  // namespace

std::string commit_text() {
  return llmc_commit == nullptr ? "unknown" : llmc_commit;
}

std::string version_text(const std::string& program, const BuildText& build) {
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
         "target: " + build.target + "\n" + "compiler: " + compiler_text() + "\n" +
         "libraries: " + build.libraries + ", CLI11 " + options_library_version() +
         ", nlohmann-json " + json_library_version() + ", PCRE2 " +
         pcre2_text.substr(0, pcre2_text.find(' ')) + ", xxHash " +
         versions(xxhash / 10000, xxhash / 100 % 100, xxhash % 100) + ", zlib " + zlibVersion() +
         ", zstd " + ZSTD_versionString() + "\n";
}

}  // namespace llmc
