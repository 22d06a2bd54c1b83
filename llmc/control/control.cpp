#include "llmc/control/control.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <exception>

#include "llmc/base/error.h"
#include "llmc/base/number_text.h"
#include "llmc/base/threads.h"
#include "llmc/base/work_progress.h"
#include "llmc/comm/compare_ranks.h"
#include "llmc/control/connect_control.h"
#include "llmc/control/lost_file.h"
#include "llmc/control/main_backtrace.h"

namespace llmc {

namespace {

constexpr std::chrono::milliseconds kTurn{200};
// A thread that did not run for this long cannot judge how long others were silent.
constexpr std::chrono::seconds kPause{5};
// Ranks end by themselves, with their own errors, if they can.
constexpr std::chrono::milliseconds kFailureTime{1000};
constexpr std::chrono::seconds kEndTime{2};
constexpr std::chrono::milliseconds kCallTime{300};
constexpr double kWarning = 60;  // seconds before the end of a wait

}  // namespace

Control::Control(Bootstrap& ranks, const ControlSettings& settings, ControlAnswers answers)
    : rank_(ranks.places().rank),
      ranks_(ranks.places().ranks),
      settings_(settings),
      answers_(std::move(answers)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      table_(static_cast<std::size_t>(ranks_)) {
  hosts_ = ranks.all_gather(host_name());
  take_hosts();
  link_ = connect_control(ranks, settings);
  now_ = last_table_ = last_progress_ = ControlClock::now();
  thread_ = std::thread([this] { run(); });
}

Control::~Control() {
  if (!thread_.joinable()) return;
  leave(0, "");
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  wake();
  thread_.join();
}

void Control::set_abort(std::function<void()> abort) {
  const std::lock_guard lock(mutex_);
  abort_ = std::move(abort);
}

void Control::set_run(const std::filesystem::path& out, OnLoss on_loss) {
  const std::lock_guard lock(run_mutex_);  // not while on_loss() runs
  const std::lock_guard own(mutex_);
  out_ = out;
  on_loss_ = std::move(on_loss);
}

bool Control::asks_all_ranks(std::string& silent) {
  silent.clear();
  if (!thread_.joinable()) return true;
  std::unique_lock lock(mutex_);
  answer_.reset();
  outgoing_.push_back({tcp::MessageKind::ask, rank_, 0, ""});
  wake();
  const bool has_answer = changed_.wait_for(lock, std::chrono::seconds(4),
                                            [this] { return answer_ || has_loss_ || has_left_; });
  if (has_loss_) return false;
  silent = has_answer ? answer_.value_or("") : "rank 0";
  return true;
}

std::string Control::write_report(const std::string& reason) {
  std::filesystem::path out;
  {
    const std::lock_guard lock(mutex_);
    out = out_;
  }
  if (out.empty()) return "no report is written: the run has no --out, or has not begun";
  try {
    return write_lost_file(out, {.rank = rank_,
                                 .ranks = ranks_,
                                 .reason = reason,
                                 .own = own_state(),
                                 .calls = calls_.calls(),
                                 .backtrace = MainBacktrace::lines()})
        .string();
  } catch (const std::exception& error) {
    return error.what();
  }
}

void Control::leave(int exit_code, const std::string& reason) {
  if (!thread_.joinable()) return;
  std::unique_lock lock(mutex_);
  if (std::exchange(has_left_, true) || has_loss_) return;
  if (reason.empty()) {
    outgoing_.push_back({tcp::MessageKind::ended, rank_, 0, ""});
  } else {
    const Loss loss{
        .kind = Loss::Kind::failure, .ranks = {rank_}, .exit_code = exit_code, .reason = reason};
    outgoing_.push_back({tcp::MessageKind::loss, rank_, 0, pack_loss(loss)});
    outgoing_.push_back({tcp::MessageKind::ended, rank_, 0, ""});
  }
  wake();
  changed_.wait_for(lock, std::chrono::seconds(1), [this] { return outgoing_.empty(); });
}

void Control::wait_for_loss(std::chrono::milliseconds limit) {
  if (!thread_.joinable()) return;
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, limit, [this] { return has_loss_; })) return;
  lock.unlock();
  std::this_thread::sleep_for(2 * kEndTime);
}

void Control::run() {
  ::pthread_setname_np(::pthread_self(), "control");
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      if (is_stopping_ && outgoing_.empty()) return;
    }
    try {
      turn();
    } catch (const std::exception& error) {
      answers_.warn(std::string("control thread: ") + error.what());
      std::this_thread::sleep_for(kTurn);
    }
  }
}

void Control::turn() {
  std::vector<pollfd> entries = {{wake_.descriptor(), POLLIN, 0}};
  for (const int descriptor : link_->descriptors()) entries.push_back({descriptor, POLLIN, 0});
  const auto limit = std::min(kTurn, settings_.interval() / 2);
  ::poll(entries.data(), entries.size(), static_cast<int>(limit.count()));
  std::uint64_t count = 0;
  static_cast<void>(!::read(wake_.descriptor(), &count, sizeof count));
  const auto now = ControlClock::now();
  if (now - now_ > kPause) last_table_ = last_progress_ = now;
  now_ = now;
  send_outgoing();
  for (const tcp::Message& message : link_->receive(now_)) take(message);
  if (now_ >= next_state_) send(tcp::MessageKind::state, pack_state(own_state()));
  if (now_ >= next_state_) next_state_ = now_ + settings_.interval();
  check_silence();
  check_call();
  if (failure_ && now_ - failure_time_ > kFailureTime) end_because_of(*failure_);
}

void Control::take(const tcp::Message& message) {
  switch (message.kind) {
    case tcp::MessageKind::ask:
      return send(tcp::MessageKind::state, pack_state(own_state()));
    case tcp::MessageKind::table:
      return take_table(message.text);
    case tcp::MessageKind::ended:
      store_has_ended_ = true;
      return;
    case tcp::MessageKind::answer: {
      const std::lock_guard lock(mutex_);
      answer_ = message.text;
      changed_.notify_all();
      return;
    }
    case tcp::MessageKind::loss: {
      const Loss loss = unpack_loss(message.text);
      if (loss.kind != Loss::Kind::failure) return end_because_of(loss);
      if (loss.ranks != std::vector<int>{rank_} && !failure_) {
        failure_ = loss;
        failure_time_ = now_;
      }
      return;
    }
    default:
      return;
  }
}

void Control::take_table(const std::string& packed) {
  std::vector<SeenRank> table = unpack_table(packed);
  if (table.size() != table_.size()) return;
  for (std::size_t rank = 0; rank < table.size(); ++rank) {
    const bool has_advanced = table[rank].state.progress != table_[rank].state.progress;
    if (has_advanced && static_cast<int>(rank) != rank_) last_progress_ = now_;
  }
  table_ = std::move(table);
  last_table_ = now_;
  take_hosts();
}

void Control::take_hosts() {
  for (std::size_t rank = 0; rank < table_.size(); ++rank) table_[rank].state.host = hosts_[rank];
}

void Control::send_outgoing() {
  std::unique_lock lock(mutex_);
  while (!outgoing_.empty()) {
    const tcp::Message message = outgoing_.front();
    lock.unlock();
    link_->send(message);
    lock.lock();
    outgoing_.pop_front();
  }
  changed_.notify_all();
}

void Control::send(tcp::MessageKind kind, const std::string& text) {
  link_->send({kind, rank_, 0, text});
}

RankState Control::own_state() {
  RankState state = rank_state(calls_.state(), ProgressCount::value());
  if (!hosts_.empty()) state.host = hosts_[static_cast<std::size_t>(rank_)];
  return state;
}

// Ranks above 0 look after rank 0, which looks after them.
void Control::check_silence() {
  const double seconds = Seconds(now_ - last_table_).count();
  if (rank_ == 0 || store_has_ended_ || seconds < settings_.heartbeat_timeout) return;
  end_because_of({.kind = Loss::Kind::silence, .ranks = {0}, .seconds = seconds, .reason = {}});
}

void Control::check_call() {
  const RankState own = own_state();
  if (!own.is_in_call) return;
  // Since this rank entered the call, or another has made progress.
  const double waited = std::min(own.seconds, Seconds(now_ - last_progress_).count());
  const double left = settings_.comm_timeout - waited;
  table_[static_cast<std::size_t>(rank_)].state = own;
  if (left > 0) return warn_before_end(left);
  const Loss loss{.kind = Loss::Kind::hang, .ranks = ranks_behind(table_), .seconds = own.seconds};
  send(tcp::MessageKind::loss, pack_loss(loss));
  // The store answers with the places of all ranks, unless it hangs itself.
  if (left < -3) end_because_of(loss);
}

// The lowest rank that waits in a call warns.
void Control::warn_before_end(double left) {
  const double margin = std::min(kWarning, settings_.comm_timeout / 2);
  const RankState& own = table_[static_cast<std::size_t>(rank_)].state;
  if (left > margin || warned_call_ == own.num_calls) return;
  warned_call_ = own.num_calls;
  for (int lower = 0; lower < rank_; ++lower) {
    if (table_[static_cast<std::size_t>(lower)].state.is_in_call) return;
  }
  const std::vector<int> behind = ranks_behind(table_);
  answers_.warn(
      own.call_text() + " waits for " + (behind.empty() ? "its connections" : rank_list(behind)) +
      number_text("; the run ends in %.0f s if that does not change (--comm-timeout)", left) +
      places_text(table_, {}));
}

void Control::end_because_of(const Loss& loss) {
  const std::lock_guard run_lock(run_mutex_);
  std::function<void()> abort;
  OnLoss on_loss;
  std::filesystem::path out;
  {
    const std::lock_guard lock(mutex_);
    if (is_stopping_ || has_left_ || std::exchange(has_loss_, true)) return;
    abort = abort_;
    on_loss = on_loss_;
    out = out_;
    changed_.notify_all();
  }
  // Rank 0 asks all ranks where they are before it reports a loss. Without it, this rank comes to
  // the call in which it waits.
  if (loss.ranks == std::vector<int>{0}) std::this_thread::sleep_for(kCallTime);
  const auto end = std::chrono::steady_clock::now() + kEndTime;
  table_[static_cast<std::size_t>(rank_)].state = own_state();
  std::string text = loss_text(loss, table_);
  if (!out.empty() && loss.kind != Loss::Kind::failure) {
    text += "\n  hint: scripts/lost.py " + (out / kLostFolder).string() +
            " compares the last calls of the ranks; --resume continues from the last checkpoint";
  }
  answers_.report(text, loss.exit_code);
  run_for(kEndTime, [=, this] {
    if (on_loss) on_loss(loss.exit_code, text);
    write_report(text);
    if (abort) abort();
  });
  std::this_thread::sleep_until(end);
  ::_exit(loss.exit_code);
}

void Control::wake() {
  const std::uint64_t one = 1;
  static_cast<void>(!::write(wake_.descriptor(), &one, sizeof one));
}

}  // namespace llmc
