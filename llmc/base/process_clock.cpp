#include "llmc/base/process_clock.h"

#include <unistd.h>

#include <cstdint>
#include <ctime>
#include <sstream>
#include <string>

#include "llmc/base/error.h"
#include "llmc/base/file.h"

namespace llmc {

namespace {

// Clock ticks from the machine's boot to the start of the process: field 22 of the file (proc(5)).
std::int64_t start_ticks() {
  const std::string path = "/proc/self/stat", text = read_file(path);
  // Field 2 is the name in parentheses, and may have spaces and parentheses itself.
  const std::size_t name_end = text.rfind(") ");
  require(name_end != text.npos, path + " has no name of a process");
  std::istringstream fields(text.substr(name_end + 2));
  std::string field;
  constexpr int kFirst = 3, kStart = 22;
  for (int i = kFirst; i < kStart; ++i) fields >> field;
  std::int64_t ticks = -1;
  fields >> ticks;
  require(fields && ticks >= 0, path + " has no start time");
  return ticks;
}

}  // namespace

double seconds_since_process_start() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec) -
         static_cast<double>(start_ticks()) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

}  // namespace llmc
