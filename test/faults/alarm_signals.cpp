// Library for LD_PRELOAD that handles SIGALRM every millisecond, as profilers do with SIGPROF.
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

namespace {

volatile sig_atomic_t num_alarms = 0;

void count_alarm(int) {
  num_alarms = num_alarms + 1;
}

__attribute__((constructor)) void start_alarms() {
  struct sigaction action {};
  action.sa_handler = count_alarm;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGALRM, &action, nullptr);
  constexpr timeval kMillisecond{.tv_sec = 0, .tv_usec = 1000};
  const itimerval interval{.it_interval = kMillisecond, .it_value = kMillisecond};
  setitimer(ITIMER_REAL, &interval, nullptr);
}

// A program in which no handler ran would pass any test.
__attribute__((destructor)) void check_alarms() {
  constexpr char kNone[] = "alarm_signals: no alarm arrived\n";
  if (num_alarms == 0) (void)!write(STDERR_FILENO, kNone, sizeof kNone - 1);
}

}  // namespace
