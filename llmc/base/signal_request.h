// Stop signals: SIGHUP, SIGINT, SIGTERM, SIGUSR1 and SIGUSR2. By default they end the program at
// once. While a SignalRequest exists, they are requests to end the work in an orderly way: programs
// call requested() between two parts of their work. Signals within two seconds of the first one
// count as the same request: `timeout`, Slurm and mpirun signal a process and its group. A later
// one ends the process.
#pragma once

#include <signal.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

namespace llmc {

// Functions that the signal thread calls; empty: none.
struct SignalAnswers {
  std::function<void()> first;           // after the first signal
  std::function<void(int signal)> last;  // before a later signal ends the process
};

// A closed stdout or stderr is an error of the next write while an object exists. Otherwise SIGPIPE
// ends the process, before a program has saved what it has to save.
class IgnoredPipeSignal {
 public:
  IgnoredPipeSignal();
  IgnoredPipeSignal(const IgnoredPipeSignal&) = delete;
  IgnoredPipeSignal& operator=(const IgnoredPipeSignal&) = delete;
  ~IgnoredPipeSignal();

  // The signal stays ignored after the object.
  void keep() { is_kept_ = true; }

 private:
  struct sigaction action_ {};
  bool is_kept_ = false;
};

// A process may have only one object at a time.
class SignalRequest {
 public:
  // Whether signals end the process again after the object. They do not if the process ends then: a
  // duplicate of the signal, or one that arrives when the work is done, must not kill it.
  enum class AfterRequest { keep, restore };

  explicit SignalRequest(AfterRequest after_request = AfterRequest::keep,
                         SignalAnswers answers = {});
  SignalRequest(const SignalRequest&) = delete;
  SignalRequest& operator=(const SignalRequest&) = delete;
  ~SignalRequest();

  // Whether a signal has arrived.
  static bool requested() { return signal_.load() != 0; }

  // The first signal that arrived; 0: none.
  static int signal() { return signal_.load(); }
  // Another process of the run has received a signal: it counts as received here.
  static void adopt(int signal);

  // The first statement of main: starts the signal thread. `program`: its name, for messages.
  static void start_thread(const std::string& program);

  // Sets what a signal that ends the process at once interrupts from now on, as the end of the
  // sentence "interrupted by SIGINT ...".
  static void set_work(const std::string& work);

  // Sets a function that returns whether the user knows already why the process ends, for example
  // by the error of another rank, after which a launcher sends signals. Signals print nothing then.
  static void set_explained(std::function<bool()> is_explained);

  // Sets a function that is called before a signal ends the process, unless that is explained. It
  // runs in a thread of its own and must not throw. The process ends without it if it takes longer
  // than two seconds, for example because a disk does not answer. Empty: none.
  static void set_end(std::function<void(int signal)> end);

  // Sets a function that is called before the first signal becomes a request, and returns whether
  // it does: the signal has no effect otherwise, because the process ends for another reason. It
  // may take a few seconds.
  static void set_confirm(std::function<bool(int signal)> confirm);

  // Sets a function that is called just before a signal ends the process, also if that is
  // explained, and must not take longer than a second. Empty: none.
  static void set_leave(std::function<void(int signal)> leave);

  // Sets a function that SIGUSR2 calls, which then is no stop signal.
  static void set_report(std::function<void()> report);

  // Ends the process by a signal: removes unfinished files and prints what was interrupted.
  [[noreturn]] static void end_process(int signal);

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kSameRequest{2};

  struct State {
    std::mutex mutex;
    bool is_recording = false;                    // a SignalRequest exists, or was to be kept
    std::optional<Clock::time_point> first_time;  // the first signal was answered then
    SignalAnswers answers;
    std::string program, work;
    std::function<bool()> is_explained = [] { return false; };
    std::function<void(int signal)> end, leave;
    std::function<bool(int signal)> confirm = [](int) { return true; };
    std::function<void()> report;
  };

  // Never destroyed: a signal may arrive while the program exits.
  static State& state();

  // The signal thread calls this.
  static void receive(int signal);

  // Calls the function of set_end(), and waits for it.
  static void answer_end(int signal);

  [[noreturn]] static void end(int signal);

  static inline std::atomic<int> signal_{0};  // the first one; 0: none

  AfterRequest after_request_;
  IgnoredPipeSignal pipe_;
};

}  // namespace llmc
