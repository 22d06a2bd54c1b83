// Messages on stderr. All messages of the programs that are neither results nor errors are printed
// here, so that --quiet has one place to switch them off.
#pragma once

#include <unistd.h>

#include <atomic>
#include <iostream>
#include <string>

#include "llmc/base/terminal.h"

namespace llmc {

// Not thread-safe, except quiet() and take_live_line(). A live line is the last line of a terminal,
// without a line break, which the next live line overwrites.
class Notice {
 public:
  // --quiet: only warnings and errors are printed from now on.
  static void set_quiet(bool quiet) { quiet_.store(quiet); }
  static bool quiet() { return quiet_.load() || muted_.load(); }

  // Nothing except errors is printed from now on: for all ranks of a run but one.
  static void mute() { muted_.store(true); }

  // Whether stderr is a terminal.
  static bool terminal() { return isatty(STDERR_FILENO) != 0; }

  // Prints `text` on lines of its own, unless --quiet is set.
  static void print(const std::string& text) {
    if (!quiet()) warn(text);
  }

  // Prints a warning on lines of its own, also with --quiet.
  static void warn(const std::string& text) {
    if (!muted_.load()) error(text);
  }

  // Prints an error on lines of its own.
  static void error(const std::string& text) {
    end_live_line();
    std::cerr << text + "\n" << std::flush;
  }

  // Overwrites the live line by `text`, which is cut at the width of the terminal.
  static void show_live(const std::string& text) {
    if (quiet()) return;
    std::cerr << live_line(text) << std::flush;
    live_line_open_.store(true);
  }

  // Keeps the live line, if there is one, and moves to the next line.
  static void end_live_line() {
    if (live_line_open_.exchange(false)) std::cerr << '\n';
  }

  // Like end_live_line(), but only reports whether a line break is due. For signal handlers, which
  // may not use std::cerr.
  static bool take_live_line() { return live_line_open_.exchange(false); }

 private:
  static_assert(std::atomic<bool>::is_always_lock_free, "a handler must not wait for a lock");
  static inline std::atomic<bool> quiet_{false}, muted_{false}, live_line_open_{false};
};

}  // namespace llmc
