#include "llmc/base/byte_progress.h"

#include <cstdio>

#include "llmc/base/number_text.h"

namespace llmc {

void ByteProgress::show(std::int64_t bytes, const std::string& suffix) {
  if (bytes <= 0 || !timer_.due()) return;
  const double processed = static_cast<double>(bytes), total = static_cast<double>(total_);
  char text[128];
  std::snprintf(text, sizeof text, "%5.1f%% of %.1f MB | %.1f MB/s | ETA %s | ",
                100 * processed / total, total / 1e6, processed / 1e6 / seconds(),
                duration_text(seconds() * (total - processed) / processed).c_str());
  ProgressTimer::show(text + suffix);
}

}  // namespace llmc
