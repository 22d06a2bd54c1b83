// Stop signals: received by the signal thread, as requests or as the end of the process.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <string>
#include <thread>

#include "llmc/base/file.h"
#include "llmc/train/run/interruption.h"

using llmc::final_message;
using llmc::first_answer;
using llmc::Interruption;
using llmc::RunActivity;
using llmc::RunMoment;
using llmc::SignalRequest;

namespace {

struct ChildResult {
  int status;  // the signal that ended the process, or its exit code, negated
  std::string messages;
};

// Runs `action` in a child process with a signal thread. `ignored`: a signal that the child ignores
// from its start; 0: none.
template <class Action>
ChildResult run_child(Action&& action, int ignored = 0) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    // The process that started the tests may ignore some signals.
    for (const int signal : llmc::kStopSignals) std::signal(signal, SIG_DFL);
    if (ignored != 0) std::signal(ignored, SIG_IGN);
    dup2(ends[1], STDERR_FILENO);
    SignalRequest::start_thread("test");
    _exit(action());
  }
  close(ends[1]);
  std::string messages;
  char text[256];
  for (ssize_t n; (n = read(ends[0], text, sizeof text)) > 0;) {
    messages.append(text, static_cast<std::size_t>(n));
  }
  close(ends[0]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return {WIFSIGNALED(status) ? WTERMSIG(status) : -WEXITSTATUS(status), messages};
}

template <class Action>
int child_status(Action&& action, int ignored = 0) {
  return run_child(action, ignored).status;
}

void send(int signal) {
  kill(getpid(), signal);
}

void sleep_milliseconds(int count) {
  usleep(1000u * static_cast<unsigned>(count));
}

// Waits until the signal thread has recorded a signal.
void wait_for_request() {
  while (!Interruption::requested()) sleep_milliseconds(1);
}

// Sends a signal until it ends the process, for the first time after 100 ms.
int send_until_end(int signal) {
  for (;;) {
    sleep_milliseconds(100);
    send(signal);
  }
}

// Waits for a signal that ends the process.
int wait_for_end() {
  for (;;) pause();
}

}  // namespace

TEST_SUITE("interruption") {
  TEST_CASE(
      "signals within two seconds of the first one count as one, a later one ends the process") {
    for (const int first : {SIGINT, SIGTERM}) {
      for (const int later : {SIGINT, SIGTERM}) {
        const auto begin = std::chrono::steady_clock::now();
        CHECK(child_status([&] {
                Interruption interruption;
                interruption.begin();
                send(first);
                wait_for_request();
                if (Interruption::name() != (first == SIGINT ? "SIGINT" : "SIGTERM")) return 2;
                send(first);
                return send_until_end(later);
              }) == later);
        CHECK(std::chrono::steady_clock::now() - begin >= std::chrono::seconds(2));
      }
    }
  }

  TEST_CASE("all stop signals are requests of a run") {
    for (const int signal : llmc::kStopSignals) {
      CHECK(child_status([&] {
              Interruption interruption;
              interruption.begin();
              send(signal);
              wait_for_request();
              return Interruption::signal() == signal ? 7 : 1;
            }) == -7);
    }
  }

  TEST_CASE("without a request a signal ends the process and names what it interrupts") {
    for (const int signal : llmc::kStopSignals) {
      const ChildResult result = run_child([&] {
        SignalRequest::set_work("in a test");
        { const SignalRequest request(SignalRequest::AfterRequest::restore); }  // in the past
        send(signal);
        return wait_for_end();
      });
      CHECK(result.status == signal);
      const std::string name(llmc::signal_name(signal));
      CHECK(result.messages == "test: interrupted by " + name + " in a test\n");
    }
  }

  TEST_CASE("a signal that follows a reported error prints nothing") {
    const ChildResult result = run_child([] {
      SignalRequest::set_explained([] { return true; });
      send(SIGTERM);
      return wait_for_end();
    });
    CHECK(result.status == SIGTERM);
    CHECK(result.messages == "");
  }

  TEST_CASE("a signal that ends the process is answered first, unless the end is explained") {
    const auto answer = [](int signal) {
      llmc::Notice::interject("answer: " + std::string(llmc::signal_name(signal)));
    };
    const ChildResult before = run_child([&] {
      SignalRequest::set_end(answer);
      send(SIGTERM);
      return wait_for_end();
    });
    CHECK(before.messages == "answer: SIGTERM\ntest: interrupted by SIGTERM\n");
    const ChildResult second = run_child([&] {
      Interruption interruption;
      interruption.begin();
      SignalRequest::set_end(answer);
      send(SIGINT);
      wait_for_request();
      return send_until_end(SIGUSR1);
    });
    CHECK(second.messages.find("answer: SIGINT") == std::string::npos);
    CHECK(second.messages.find("answer: SIGUSR1\nended at once by a second SIGUSR1") !=
          std::string::npos);
    const ChildResult explained = run_child([&] {
      SignalRequest::set_explained([] { return true; });
      SignalRequest::set_end(answer);
      send(SIGTERM);
      return wait_for_end();
    });
    CHECK(explained.messages == "");
  }

  TEST_CASE("an answer that does not return does not keep the process") {
    const ChildResult result = run_child([] {
      SignalRequest::set_end([](int) { wait_for_end(); });
      send(SIGTERM);
      return wait_for_end();
    });
    CHECK(result.status == SIGTERM);
  }

  TEST_CASE("before its first step, a run does not take signals as requests") {
    const ChildResult result = run_child([] {
      const Interruption interruption;
      SignalRequest::set_work("before step 1");
      send(SIGTERM);
      return wait_for_end();
    });
    CHECK(result.status == SIGTERM);
    CHECK(result.messages == "test: interrupted by SIGTERM before step 1\n");
  }

  TEST_CASE("after a request, duplicates of the signal do not end the process") {
    CHECK(child_status([] {
            {
              Interruption interruption;
              interruption.begin();
              send(SIGTERM);
              wait_for_request();
            }
            send(SIGTERM);
            send(SIGINT);
            sleep_milliseconds(100);
            return 7;
          }) == -7);
    // A text of an interactive program has ended; the next signal ends the program.
    CHECK(child_status([] {
            {
              const SignalRequest request(SignalRequest::AfterRequest::restore);
              send(SIGINT);
              wait_for_request();
            }
            send(SIGINT);
            return wait_for_end();
          }) == SIGINT);
  }

  TEST_CASE("a signal after the end of the work does not end the process") {
    const ChildResult result = run_child([] {
      SignalRequest::set_work("in a test");
      {
        Interruption interruption;
        interruption.begin();
      }
      send(SIGTERM);
      sleep_milliseconds(100);
      return 7;
    });
    CHECK(result.status == -7);
    CHECK(result.messages == "");
  }

  TEST_CASE("a signal that ends the process removes its unfinished files, and no other") {
    const std::filesystem::path folder =
        std::filesystem::temp_directory_path() / ("interruption-" + std::to_string(getpid()));
    std::filesystem::create_directory(folder);
    CHECK(child_status([&] {
            llmc::write_file(folder / "finished", "text");
            llmc::AtomicFile unfinished(folder / "unfinished");
            unfinished.write("text");
            send(SIGTERM);
            return wait_for_end();
          }) == SIGTERM);
    CHECK(llmc::read_file(folder / "finished") == "text");
    CHECK(std::distance(std::filesystem::directory_iterator(folder), {}) == 1);
    std::filesystem::remove_all(folder);
  }

  TEST_CASE("all threads block asynchronous signals; handlers run in the signal thread") {
    static pthread_t handler_thread;
    CHECK(child_status([] {
            std::signal(SIGALRM, [](int) { handler_thread = pthread_self(); });
            int wrong = 0;
            const auto check = [&] {
              sigset_t blocked;
              pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
              for (const int signal : {SIGALRM, SIGCHLD, SIGTERM, SIGPROF, SIGTSTP, SIGRTMIN}) {
                wrong += sigismember(&blocked, signal) == 1 ? 0 : 1;
              }
              for (const int signal : {SIGSEGV, SIGFPE, SIGABRT, SIGPIPE, SIGTRAP}) {
                wrong += sigismember(&blocked, signal) == 0 ? 0 : 1;
              }
            };
            check();
            std::thread(check).join();
            send(SIGALRM);
            while (*static_cast<volatile pthread_t*>(&handler_thread) == pthread_t{}) {
              sleep_milliseconds(1);
            }
            return wrong == 0 && pthread_equal(handler_thread, pthread_self()) == 0 ? 7 : 1;
          }) == -7);
  }

  TEST_CASE("a thread that blocks nothing forwards stop signals") {
    CHECK(child_status([] {
            Interruption interruption;
            interruption.begin();
            std::thread([] {
              sigset_t all;
              sigfillset(&all);
              pthread_sigmask(SIG_UNBLOCK, &all, nullptr);
              pthread_kill(pthread_self(), SIGTERM);
            }).join();
            wait_for_request();
            return 7;
          }) == -7);
  }

  TEST_CASE("an exec'd program gets the signals with which this one started") {
    const ChildResult result = run_child(
        [] {
          dup2(STDERR_FILENO, STDOUT_FILENO);
          const llmc::SignalThread::Pause pause;
          execlp("grep", "grep", "^Sig", "/proc/self/status", nullptr);
          return 1;
        },
        SIGUSR1);
    CHECK(result.status == 0);
    CHECK(result.messages.find("SigBlk:\t0000000000000000\n") != std::string::npos);
    // SIGUSR1 was ignored from the start.
    const std::size_t mask = result.messages.find("SigIgn:\t");
    REQUIRE(mask != std::string::npos);
    const std::uint64_t is_ignored = std::stoull(result.messages.substr(mask + 8, 16), nullptr, 16);
    CHECK((is_ignored >> (SIGUSR1 - 1) & 1) == 1);
  }

  TEST_CASE("signals are received again after an exec that failed") {
    CHECK(child_status([] {
            Interruption interruption;
            interruption.begin();
            {
              const llmc::SignalThread::Pause pause;
              execl("/nowhere/none", "none", nullptr);
            }
            send(SIGTERM);
            wait_for_request();
            return 7;
          }) == -7);
  }

  TEST_CASE("a stderr that is closed or stuck does not prevent the end of the process") {
    for (const bool is_closed : {true, false}) {
      CHECK(child_status([&] {
              int ends[2];
              if (pipe(ends) != 0 || dup2(ends[1], STDERR_FILENO) < 0) return 1;
              if (is_closed) {
                close(ends[0]);
              } else {  // a reader that does not read
                fcntl(ends[1], F_SETFL, O_NONBLOCK);
                const std::string text(4096, '.');
                while (write(ends[1], text.data(), text.size()) > 0) continue;
                fcntl(ends[1], F_SETFL, 0);
              }
              {
                Interruption interruption;
                interruption.begin();
                send(SIGINT);
                wait_for_request();
              }
              return send_until_end(SIGTERM);
            }) == SIGTERM);
    }
  }

  TEST_CASE("the answer says what the run still does and what a second signal does") {
    const bool saves = true;
    CHECK(first_answer({RunActivity::step, 67, 60, true, saves}) ==
          "finishing step 67, then saving; send the signal again to end without saving");
    CHECK(first_answer({RunActivity::step, 67, -1, true, false}) ==
          "finishing step 67, without --out nothing is saved; send the signal again to end at "
          "once");
    CHECK(first_answer({RunActivity::validation, 60, 50, true, saves}) ==
          "stopping the validation after step 60, then saving; send the signal again to end "
          "without saving");
    CHECK(first_answer({RunActivity::between, 0, -1, true, saves}) ==
          "ending before step 1, nothing to save yet; send the signal again to end at once");
    CHECK(first_answer({RunActivity::sampling, 60, 60, true, saves}) ==
          "stopping the samples after step 60, which is saved; send the signal again to end at "
          "once");
    CHECK(first_answer({RunActivity::saving, 1234567890123, 60, true, saves}) ==
          "finishing the save of step 1234567890123; send the signal again to end without saving");
    CHECK(first_answer({RunActivity::evaluation, 0, -1, false, false}) ==
          "stopping the evaluation; send the signal again to end at once");
  }

  TEST_CASE("the message of a second signal says what was saved") {
    CHECK(final_message({RunActivity::step, 67, -1, true, true}, SIGTERM) ==
          "ended at once by a second SIGTERM: nothing was saved");
    CHECK(final_message({RunActivity::step, 67, 60, true, true}, SIGHUP) ==
          "ended at once by a second SIGHUP: nothing was saved after step 60");
    CHECK(final_message({RunActivity::sampling, 60, 60, true, true}, SIGTERM) ==
          "ended at once by a second SIGTERM: step 60 is saved");
  }

  TEST_CASE("a signal that was ignored at the start stays ignored") {
    for (const int signal : llmc::kStopSignals) {
      CHECK(child_status(
                [&] {
                  send(signal);
                  Interruption interruption;
                  interruption.begin();
                  send(signal);
                  sleep_milliseconds(100);
                  if (Interruption::requested()) return 1;
                  send(signal == SIGTERM ? SIGINT : SIGTERM);
                  wait_for_request();
                  send(signal);  // still ignored
                  sleep_milliseconds(100);
                  return 7;
                },
                signal) == -7);
    }
  }
}
