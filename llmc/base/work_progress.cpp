#include "llmc/base/work_progress.h"

#include "llmc/base/notice.h"
#include "llmc/base/number_text.h"

namespace llmc {

bool ProgressTimer::due() {
  ProgressCount::add();
  const double time = seconds();
  if (time < kFirst || (shown_ && time - last_ < (Notice::terminal() ? 0.2 : 5.0))) return false;
  shown_ = true;
  last_ = time;
  return true;
}

void ProgressTimer::show(const std::string& line) {
  Notice::terminal() ? Notice::show_live(line) : Notice::print(line);
}

std::string progress_text(const std::string& name, double fraction, double seconds) {
  return name + number_text(": %.0f%% | ETA ", 100 * fraction) +
         duration_text(seconds * (1 / fraction - 1));
}

void WorkProgress::show(std::int64_t done) {
  if (done <= 0 || !timer_.due()) return;
  const double fraction = static_cast<double>(done) / static_cast<double>(total_);
  ProgressTimer::show(progress_text(name_, fraction, timer_.seconds()));
}

}  // namespace llmc
