#include "llmc/control/rank_store.h"

#include <cstddef>
#include <utility>

#include "llmc/comm/compare_ranks.h"

namespace llmc {

namespace {

constexpr std::chrono::seconds kAnswerTime{3};
// For the ranks that live to tell where they are after a loss.
constexpr std::chrono::milliseconds kPlaceTime{300};
// A rank that has been silent for longer gets no tables, which would fill its connection.
constexpr std::chrono::seconds kTableSilence{3};

}  // namespace

RankStore::RankStore(std::shared_ptr<TcpHub> hub, int ranks, const ControlSettings& settings)
    : ControlLink(std::move(hub)), settings_(settings), ranks_(static_cast<std::size_t>(ranks)) {}

std::vector<tcp::Message> RankStore::receive(ControlClock::time_point now) {
  // After a pause of this process itself, the others have not been silent.
  if (now - now_ > std::chrono::seconds(5)) {
    for (Rank& rank : ranks_) rank.heard = now;
  }
  now_ = now;
  for (const tcp::Message& message : hub().receive(TcpHub::control)) take(message.from, message);
  find_silent();
  answer_questions();
  report_when_known();
  if (now_ >= next_table_) send_tables();
  return std::exchange(own_, {});
}

void RankStore::take(int from, const tcp::Message& message) {
  Rank& rank = ranks_[static_cast<std::size_t>(from)];
  rank.heard = now_;
  switch (message.kind) {
    case tcp::MessageKind::state:
      rank.seen.state = unpack_state(message.text);
      for (Question& question : questions_) question.missing.erase(from);
      loss_question_.missing.erase(from);
      break;
    case tcp::MessageKind::ask:
      questions_.push_back(ask_all(from, kAnswerTime));
      break;
    case tcp::MessageKind::loss:
      report(unpack_loss(message.text));
      break;
    case tcp::MessageKind::ended:
      rank.seen.is_ended = true;
      if (from > 0) break;
      for (int other = 1; other < std::ssize(ranks_); ++other) {
        deliver(other, {tcp::MessageKind::ended, 0, other, ""});
      }
      break;
    case tcp::MessageKind::closed:
      if (!rank.seen.is_ended) report({.kind = Loss::Kind::connection, .ranks = {from}});
      rank.seen.is_ended = true;
      break;
    default:
      break;
  }
}

RankStore::Question RankStore::ask_all(int from, std::chrono::milliseconds limit) {
  Question question{from, now_ + limit, {}};
  for (int rank = 0; rank < std::ssize(ranks_); ++rank) {
    if (ranks_[static_cast<std::size_t>(rank)].seen.is_ended) continue;
    question.missing.insert(rank);
    deliver(rank, {tcp::MessageKind::ask, 0, rank, ""});
  }
  return question;
}

void RankStore::answer_questions() {
  std::erase_if(questions_, [&](const Question& question) {
    if (!question.missing.empty() && now_ < question.end) return false;
    const std::vector<int> missing(question.missing.begin(), question.missing.end());
    deliver(question.from, {tcp::MessageKind::answer, 0, question.from,
                            missing.empty() ? "" : rank_list(missing)});
    return true;
  });
}

void RankStore::find_silent() {
  const std::chrono::duration<double> limit(settings_.heartbeat_timeout);
  Loss loss{.kind = Loss::Kind::silence, .seconds = limit.count(), .reason = {}};
  for (int rank = 1; rank < std::ssize(ranks_); ++rank) {
    const Rank& other = ranks_[static_cast<std::size_t>(rank)];
    if (!other.seen.is_ended && now_ - other.heard > limit) loss.ranks.push_back(rank);
  }
  if (!loss.ranks.empty()) report(loss);
}

std::vector<SeenRank> RankStore::send_tables() {
  next_table_ = now_ + settings_.interval();
  std::vector<SeenRank> table;
  for (Rank& rank : ranks_) {
    rank.seen.silent_seconds = std::chrono::duration<double>(now_ - rank.heard).count();
    table.push_back(rank.seen);
  }
  const std::string packed = pack_table(table);
  for (int rank = 0; rank < std::ssize(ranks_); ++rank) {
    const bool reads =
        rank == 0 || now_ - ranks_[static_cast<std::size_t>(rank)].heard <= kTableSilence;
    if (reads) deliver(rank, {tcp::MessageKind::table, 0, rank, packed});
  }
  return table;
}

void RankStore::report(const Loss& loss) {
  if (std::exchange(has_loss_, true)) return;
  loss_ = loss;
  reported_progress_ = progress();
  // A rank that reports its own end has left, and takes the store with it if it is rank 0.
  if (loss.kind == Loss::Kind::failure) return report_when_known();
  loss_question_ = ask_all(0, kPlaceTime);
  // A rank that hangs can tell that it works.
  if (loss.kind == Loss::Kind::hang) return;
  for (const int rank : loss.ranks) loss_question_.missing.erase(rank);
}

void RankStore::report_when_known() {
  if (!loss_ || (!loss_question_.missing.empty() && now_ < loss_question_.end)) return;
  // The rank that reported a hang knew the others as they were up to two seconds ago.
  if (loss_->kind == Loss::Kind::hang && progress() != reported_progress_) {
    loss_.reset();
    has_loss_ = false;
    send_tables();
    return;
  }
  const std::vector<SeenRank> table = send_tables();
  if (loss_->kind == Loss::Kind::hang) loss_->ranks = ranks_behind(table);
  for (int rank = 0; rank < std::ssize(ranks_); ++rank) {
    deliver(rank, {tcp::MessageKind::loss, 0, rank, pack_loss(*loss_)});
  }
  loss_.reset();
}

std::int64_t RankStore::progress() const {
  std::int64_t sum = 0;
  for (const Rank& rank : ranks_) sum += rank.seen.state.progress;
  return sum;
}

void RankStore::deliver(int rank, const tcp::Message& message) {
  if (rank == 0) {
    own_.push_back(message);
  } else {
    hub().send(message);
  }
}

}  // namespace llmc
