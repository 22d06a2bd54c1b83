// The calls of functions in which the main thread is, seen from another thread.
//
// The main thread handles a signal on a stack of its own, because matrix products that oneDNN
// generates use the stack pointer as a pointer to data (base/signal_thread.h).
#pragma once

#include <string>
#include <vector>

namespace llmc {

class MainBacktrace {
 public:
  // The main thread calls this, once, before others call lines().
  static void install();

  // A line per call, the innermost first, such as "train_gpt2(+0x1234) [0x5555]", which addr2line
  // -e train_gpt2 0x1234 translates. Empty if the main thread does not answer within a second,
  // for example because it waits for a disk, or if install() was not called.
  static std::vector<std::string> lines();
};

}  // namespace llmc
