// Messages on stderr. All messages of the programs that are neither results nor errors are printed
// here, so that --quiet has one place to switch them off.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <utility>

namespace llmc {

// Each call prints whole lines; other threads may print at the same time. A live line is the last
// line of a terminal, without a line break, which the next live line overwrites.
class Notice {
 public:
  // --quiet: only warnings and errors are printed from now on.
  static void set_quiet(bool quiet) { quiet_.store(quiet); }
  static bool quiet() { return quiet_.load() || muted_.load(); }

  // Nothing except errors is printed from now on: for all ranks of a run but one.
  static void mute() { muted_.store(true); }

  // Whether stderr is a terminal.
  static bool terminal();

  // Prints `text` on lines of its own, unless --quiet is set.
  static void print(const std::string& text) {
    if (!quiet()) warn(text);
  }

  // Prints a warning on lines of its own, also with --quiet.
  static void warn(const std::string& text) {
    if (!muted_.load()) error(text);
  }

  // Prints an error on lines of its own.
  static void error(const std::string& text);

  // Prints a line of the signal thread. Prints nothing if stderr is closed, or if its reader or
  // another thread prevents that for a second: a signal must end a program whose stderr is stuck.
  static void interject(const std::string& text) {
    if (!muted_.load()) interject_error(text);
  }
  // The same after mute(), for an error of this rank.
  static void interject_error(const std::string& text);

  // Overwrites the live line by `text`, which is cut at the width of the terminal.
  static void show_live(const std::string& text);

  // Keeps the live line, if there is one, and moves to the next line.
  static void end_live_line();

 private:
  // Returns the line break after a live line, if there is one.
  static std::string take_line_break() { return std::exchange(live_line_open_, false) ? "\n" : ""; }

  static inline std::atomic<bool> quiet_{false}, muted_{false};
  static inline std::timed_mutex mutex_;  // for stderr and live_line_open_
  static inline bool live_line_open_ = false;
};

}  // namespace llmc
