// SIGINT and SIGTERM as requests to stop in an orderly way.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "llmc/train/run/interruption.h"

using llmc::Interruption;

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
    _exit(action());
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status) ? WTERMSIG(status) : -WEXITSTATUS(status);
}

void ignore_signal(int) {}

}  // namespace

TEST_SUITE("interruption") {
  TEST_CASE("the first signal is recorded and the second ends the process for SIGINT and SIGTERM") {
    for (const int first : {SIGINT, SIGTERM}) {
      for (const int second : {SIGINT, SIGTERM}) {
        CHECK(child_status([&] {
                const Interruption interruption;
                raise(first);
                if (!Interruption::requested()) return 1;
                if (std::string(Interruption::name()) != (first == SIGINT ? "SIGINT" : "SIGTERM"))
                  return 2;
                raise(second);
                return 3;
              }) == second);
      }
    }
  }

  TEST_CASE("the destructor restores the previous handlers and clears the request") {
    CHECK(child_status([] {
            std::signal(SIGINT, ignore_signal);
            {
              const Interruption interruption;
              raise(SIGINT);
              if (!Interruption::requested()) return 1;
            }
            if (Interruption::requested()) return 2;
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
