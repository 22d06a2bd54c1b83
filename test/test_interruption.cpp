// SIGINT and SIGTERM as requests to stop in an orderly way.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "llmc/train/run/interruption.h"

using llmc::Interruption;
using llmc::RunActivity;
using llmc::RunMoment;
using llmc::SignalText;

namespace {

// Runs `action` in a child process; returns the signal that ends it, or its exit code, negated.
template <class Action>
int child_status(Action&& action) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    // The process that started the tests may have set these signals to be ignored.
    std::signal(SIGINT, SIG_DFL);
    std::signal(SIGTERM, SIG_DFL);
    const int sink = open("/dev/null", O_WRONLY);
    dup2(sink, STDERR_FILENO);  // the texts of the answers are tested below
    _exit(action());
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status) ? WTERMSIG(status) : -WEXITSTATUS(status);
}

void ignore_signal(int) {}

void sleep_milliseconds(int count) {
  usleep(1000u * static_cast<unsigned>(count));
}

}  // namespace

TEST_SUITE("interruption") {
  TEST_CASE(
      "signals within two seconds of the first one count as one, a later one ends the process") {
    for (const int first : {SIGINT, SIGTERM}) {
      for (const int later : {SIGINT, SIGTERM}) {
        CHECK(child_status([&] {
                const Interruption interruption;
                raise(first);
                if (!Interruption::requested()) return 1;
                if (std::string(Interruption::name()) != (first == SIGINT ? "SIGINT" : "SIGTERM"))
                  return 2;
                sleep_milliseconds(1);
                raise(later == SIGINT ? SIGTERM : SIGINT);  // the result shows which one ends it
                sleep_milliseconds(2050);
                raise(later);
                return 3;
              }) == later);
      }
    }
  }

  TEST_CASE("without a signal the destructor restores the previous handlers") {
    CHECK(child_status([] {
            std::signal(SIGINT, ignore_signal);
            { const Interruption interruption; }
            raise(SIGINT);
            if (Interruption::requested()) return 3;
            raise(SIGTERM);
            return 4;
          }) == SIGTERM);
    CHECK(child_status([] {
            { const Interruption first; }
            const Interruption second;
            raise(SIGTERM);
            return Interruption::requested() ? 7 : 1;
          }) == -7);
  }

  TEST_CASE(
      "after a signal the destructor keeps the handlers: a duplicate must not end the process") {
    CHECK(child_status([] {
            {
              const Interruption interruption;
              raise(SIGTERM);
            }
            raise(SIGTERM);
            raise(SIGINT);
            return 7;
          }) == -7);
  }

  TEST_CASE("a closed stderr does not end the process") {
    CHECK(child_status([] {
            int ends[2];
            if (pipe(ends) != 0 || dup2(ends[1], STDERR_FILENO) < 0) return 1;
            close(ends[0]);
            close(ends[1]);
            const Interruption interruption;
            raise(SIGINT);
            return 7;
          }) == -7);
  }

  TEST_CASE("the answer says what the run still does and what a second signal does") {
    const auto first = [](const RunMoment& run) {
      SignalText text;
      add_first_answer(text, run);
      return std::string(text.view());
    };
    const bool saves = true;
    CHECK(first({RunActivity::step, 67, 60, true, saves}) ==
          "finishing step 67, then saving; send the signal again to end without saving");
    CHECK(first({RunActivity::step, 67, -1, true, false}) ==
          "finishing step 67, without --out nothing is saved; send the signal again to end at "
          "once");
    CHECK(first({RunActivity::validation, 60, 50, true, saves}) ==
          "stopping the validation after step 60, then saving; send the signal again to end "
          "without saving");
    CHECK(first({RunActivity::validation, 0, -1, true, saves}) ==
          "stopping the validation before step 1, nothing to save yet; send the signal again to "
          "end at once");
    CHECK(first({RunActivity::sampling, 60, 60, true, saves}) ==
          "stopping the samples after step 60, which is saved; send the signal again to end at "
          "once");
    CHECK(first({RunActivity::saving, 1234567890123, 60, true, saves}) ==
          "finishing the save of step 1234567890123; send the signal again to end without saving");
    CHECK(first({RunActivity::evaluation, 0, -1, false, false}) ==
          "stopping the evaluation; send the signal again to end at once");
  }

  TEST_CASE("the message of a second signal says what was saved") {
    const auto last = [](const RunMoment& run) {
      SignalText text;
      add_final_message(text, run, SIGTERM);
      return std::string(text.view());
    };
    CHECK(last({RunActivity::step, 67, -1, true, true}) ==
          "ended at once by a second SIGTERM: nothing was saved");
    CHECK(last({RunActivity::step, 67, 60, true, true}) ==
          "ended at once by a second SIGTERM: nothing was saved after step 60");
    CHECK(last({RunActivity::sampling, 60, 60, true, true}) ==
          "ended at once by a second SIGTERM: step 60 is saved");
  }

  TEST_CASE("a text that is too long is cut") {
    SignalText text;
    for (int i = 0; i < 100; ++i) text.add("0123456789");
    CHECK(text.view().size() < 1000);
    CHECK(SignalText().add(std::int64_t{0}).view() == "0");
  }

  TEST_CASE("a signal that was ignored stays ignored") {
    CHECK(child_status([] {
            std::signal(SIGINT, SIG_IGN);
            const Interruption interruption;
            raise(SIGINT);
            if (Interruption::requested()) return 1;
            raise(SIGTERM);
            if (!Interruption::requested()) return 2;
            raise(SIGINT);  // still ignored
            return 7;
          }) == -7);
  }
}
