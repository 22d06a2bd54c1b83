// The ranks of a run, from the command line to the exit code: connects them, compares how they were
// started, and reports an error once.
//
// Before the run starts, all ranks exchange what they know, so rank 0 reports. Later a rank can
// fail while others wait for it in a collective: the first one of each machine reports
// (comm/first_report.h), then ends all. Errors that all ranks throw together are reported by rank
// 0.
#pragma once

#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "llmc/base/error.h"
#include "llmc/base/notice.h"
#include "llmc/base/signal_request.h"
#include "llmc/comm/first_report.h"
#include "llmc/comm/launcher.h"
#include "llmc/comm/open_world.h"
#include "llmc/config/exit_code.h"
#include "llmc/config/quantities.h"
#include "llmc/config/train_table.h"
#include "llmc/control/control.h"
#include "llmc/control/main_backtrace.h"
#include "llmc/train/run/interruption.h"
#include "llmc/train/run/start_agreement.h"

namespace llmc {

inline StartFailure start_failure(const std::exception& error) {
  return {exit_code_of(error), error_text(error, train_settings())};
}

// The limits that the flags set.
inline ControlSettings control_settings(const Request& request) {
  const ControlSettings fallback;
  return {.heartbeat_timeout = request.ranks.heartbeat_timeout.value_or(fallback.heartbeat_timeout),
          .comm_timeout = request.ranks.comm_timeout.value_or(fallback.comm_timeout)};
}

class RunRanks {
 public:
  explicit RunRanks(const ProcessInfo& process) : process_(process) {}
  RunRanks(const RunRanks&) = delete;
  RunRanks& operator=(const RunRanks&) = delete;

  // Connects the ranks and compares how they were started: the flags that were given, and the
  // failure of this rank, if there is one. Returns the exit code if the run must not start, which
  // is reported then.
  std::optional<int> start(const NamedValues& flags, const std::optional<StartFailure>& failure) {
    if (process_.ranks == 1) {
      if (!failure) return std::nullopt;
      print(failure->text);
      return failure->exit_code;
    }
    try {
      bootstrap_ = connect_ranks(process_);
      return compare(make_rank_start("a run", flags, failure));
    } catch (const std::exception& error) {
      return report_unconnected(failure.value_or(start_failure(error)));
    }
  }

  // For a rank that starts no run, because its command line is answered by a text: other ranks that
  // start one would wait for it inside MPI. Returns the exit code if there are any.
  std::optional<int> start_answer() {
    if (process_.ranks == 1 || !kHasMpi || is_tcp_launcher(process_)) return std::nullopt;
    try {
      bootstrap_ = connect_ranks(process_);
      return compare(make_rank_start("--help, --help-json or --version", {}, {}));
    } catch (const std::exception&) {  // the text needs no other ranks
      return std::nullopt;
    }
  }

  // The world of a run that may start. From now on a control thread looks after the ranks.
  World& open(CommChoice choice, const ControlSettings& settings) {
    if (process_.ranks > 1) {
      watch(settings);
      const auto limit = std::chrono::duration<double>(settings.comm_timeout);
      world_ = open_world(bootstrap_, process_, choice,
                          {.deadline = std::chrono::duration_cast<std::chrono::milliseconds>(limit),
                           .is_watched = true});
      world_->log_calls(control_->calls());
      control_->set_abort([this] { world_->abort_calls(); });
    } else {
      control_ = std::make_unique<Control>();
      world_ = open_world(process_, choice);
    }
    Interruption::set_observer([this](std::int64_t step, const std::string& work) {
      control_->calls().set_work(step, work);
    });
    SignalRequest::set_report(
        [this] { Notice::interject_error("SIGUSR2: " + control_->write_report("SIGUSR2")); });
    MainBacktrace::install();
    return *world_;
  }

  // Exists after open().
  Control& control() { return *control_; }

  ~RunRanks() {
    Interruption::set_observer({});
    SignalRequest::set_report({});
    SignalRequest::set_confirm([](int) { return true; });
    SignalRequest::set_leave({});
  }

  // Reports the error of this rank, if no other rank has, and ends all ranks. Returns the exit
  // code.
  int report(const std::exception& error) {
    const bool is_common = dynamic_cast<const ErrorOfAllRanks*>(&error) != nullptr;
    int exit_code = exit_code_of(error);
    // The control thread knows more about an error that follows from the loss of a rank.
    if (control_ && dynamic_cast<const PeerError*>(&error) != nullptr) {
      control_->wait_for_loss(std::chrono::seconds(2));
    }
    // The first rank that ends is no loss for the others, which have the same error.
    if (control_ && is_common) control_->leave(exit_code, "");
    const bool is_first = (!is_common || process_.rank == 0) && report_.begin();
    const std::optional<int> reported = is_first ? std::nullopt : report_.wait();
    if (!reported) {
      const std::string rank =
          process_.ranks > 1 && !is_common ? "rank " + std::to_string(process_.rank) + ": " : "";
      print(rank + error_text(error, train_settings()));
      report_.end(exit_code);
      if (control_ && !is_common) control_->leave(exit_code, error_text(error, train_settings()));
    }
    exit_code = reported.value_or(exit_code);
    if (world_) {
      world_->abort(exit_code);
    } else if (bootstrap_) {
      bootstrap_->abort(exit_code);
    }
    return exit_code;
  }

 private:
  std::optional<int> compare(const RankStart& own) {
    const std::optional<StartFailure> failure = agree_to_start(
        [this](const std::string& text) { return bootstrap_->all_gather(text); }, own);
    if (!failure) {
      report_ = FirstReport(*bootstrap_);
      SignalRequest::set_explained([report = report_] { return report.has_begun(); });
      return std::nullopt;
    }
    SignalRequest::set_explained([] { return true; });
    if (process_.rank == 0) print(failure->text);
    bootstrap_->all_gather("");  // a launcher ends all ranks when one ends
    return failure->exit_code;
  }

  void watch(const ControlSettings& settings) {
    const auto report = [this](const std::string& text, int exit_code) {
      if (!report_.begin()) return;
      Notice::interject_error(std::string(TrainProgram::kName) + ": " + text);
      report_.end(exit_code);
    };
    const auto warn = [](const std::string& text) {
      Notice::interject_error(std::string(TrainProgram::kName) + ": " + text);
    };
    control_ = std::make_unique<Control>(*bootstrap_, settings, ControlAnswers{report, warn});
    SignalRequest::set_confirm([this, warn](int signal) {
      std::string silent;
      if (!control_->asks_all_ranks(silent)) return false;
      if (!silent.empty()) {
        warn(std::string(signal_name(signal)) + ": " + silent +
             " did not answer; without it the run cannot save");
      }
      return true;
    });
    SignalRequest::set_leave([this](int signal) {
      control_->leave(128 + signal, "it was ended by " + std::string(signal_name(signal)));
    });
  }

  static void print(const std::string& text) {
    Notice::error(std::string(TrainProgram::kName) + ": " + text);
  }

  // Nothing connects the ranks. Mostly all have the same error, for instance a build without MPI:
  // rank 0 reports it, and the launcher ends the others. These report only if that does not happen.
  int report_unconnected(const StartFailure& failure) const {
    constexpr std::chrono::seconds kLauncherTime{10};
    if (process_.rank > 0) std::this_thread::sleep_for(kLauncherTime);
    print("rank " + std::to_string(process_.rank) + ": " + failure.text);
    return failure.exit_code;
  }

  ProcessInfo process_;
  std::unique_ptr<Bootstrap> bootstrap_;  // until the world has it
  FirstReport report_;
  std::unique_ptr<Control> control_;  // the world notes its calls in it
  std::unique_ptr<World> world_;
};

}  // namespace llmc
