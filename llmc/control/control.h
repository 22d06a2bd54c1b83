// Looks after the ranks of a run: each rank has a control thread and a connection to a store at
// rank 0. The thread tells the store at least every second where its rank is. A rank that ends
// without a goodbye, gives no sign of life or does not enter a call that others wait in is lost:
// the other ranks report it, with the place of each rank, and end.
//
//   rank_state.h     the place of a rank: its call, its work, its progress
//   loss.h           who is lost, and the text that reports it
//   control_link.h   messages to the store; rank_store.h at rank 0, store_client.h elsewhere
//   lost_file.h      OUT/lost/RANK.json
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "llmc/comm/bootstrap.h"
#include "llmc/comm/call_log.h"
#include "llmc/control/control_link.h"
#include "llmc/control/control_settings.h"
#include "llmc/control/loss.h"

namespace llmc {

// The control thread calls these; none may throw or wait for long.
struct ControlAnswers {
  // Reports a loss as an error that ends the process. At most once.
  std::function<void(const std::string& text, int exit_code)> report;
  std::function<void(const std::string& text)> warn;
};

class Control {
 public:
  // One rank: there are no others to look after.
  Control() = default;

  // All ranks call this together; the bootstrap is used only now, but its connections may be
  // shared.
  Control(Bootstrap& ranks, const ControlSettings& settings, ControlAnswers answers);

  // The rank ends without an error.
  ~Control();
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  CallLog& calls() { return calls_; }

  // Called after a loss is reported, to end this rank's calls.
  void set_abort(std::function<void()> abort);

  using OnLoss = std::function<void(int exit_code, const std::string& text)>;

  // While an object exists, reports are written to OUT/lost, and on_loss() is called after a loss
  // is reported. If an exception ends it, which may follow from a loss, a report is still written.
  // `out` may be empty.
  class Run {
   public:
    Run(Control& control, const std::filesystem::path& out, OnLoss on_loss)
        : control_(control), out_(out) {
      control_.set_run(out, std::move(on_loss));
    }
    ~Run() { control_.set_run(std::uncaught_exceptions() > exceptions_ ? out_ : "", {}); }
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;

   private:
    Control& control_;
    std::filesystem::path out_;
    int exceptions_ = std::uncaught_exceptions();
  };

  // Asks all ranks for a sign of life. False if a rank is lost: then the run ends, and the caller
  // does nothing. `silent`: the ranks that did not answer in time, such as "rank 2".
  bool asks_all_ranks(std::string& silent);

  // Writes the file of this rank, without ending anything. Returns its path, or the reason why
  // there is none.
  std::string write_report(const std::string& reason);

  // This rank ends because of an error or a signal, before it has to: the others end too.
  void leave(int exit_code, const std::string& reason);

  // Waits for at most this time until a loss is known, which then ends the process. For an error
  // that may follow from a loss.
  void wait_for_loss(std::chrono::milliseconds limit);

 private:
  using Seconds = std::chrono::duration<double>;

  void set_run(const std::filesystem::path& out, OnLoss on_loss);

  void run();
  void turn();
  void take(const tcp::Message& message);
  void take_table(const std::string& packed);
  void take_hosts();
  void send_outgoing();
  void send(tcp::MessageKind kind, const std::string& text);
  RankState own_state();
  void check_silence();
  void check_call();
  void warn_before_end(double left);
  void end_because_of(const Loss& loss);
  void wake();

  int rank_ = 0, ranks_ = 1;
  std::vector<std::string> hosts_;  // by rank
  ControlSettings settings_;
  ControlAnswers answers_;
  CallLog calls_;
  tcp::Socket wake_;  // an eventfd, which wakes the thread

  std::mutex run_mutex_;  // before mutex_: the run must not end while its loss is noted
  std::mutex mutex_;      // for the members of this part
  std::condition_variable changed_;
  std::filesystem::path out_;
  std::function<void()> abort_;
  OnLoss on_loss_;
  std::deque<tcp::Message> outgoing_;
  std::optional<std::string> answer_;  // to asks_all_ranks()
  bool is_stopping_ = false, has_loss_ = false, has_left_ = false;

  // Only the thread uses these.
  std::unique_ptr<ControlLink> link_;
  std::vector<SeenRank> table_;
  std::optional<Loss> failure_;  // of another rank, reported at failure_time_
  ControlClock::time_point failure_time_{};
  ControlClock::time_point now_{}, next_state_{}, last_table_{}, last_progress_{};
  std::int64_t warned_call_ = 0;  // number of the call
  bool store_has_ended_ = false;

  std::thread thread_;  // last: it uses the others
};

}  // namespace llmc
