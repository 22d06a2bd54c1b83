// The store: the part of rank 0's control thread that knows the state of all ranks. It receives
// their states, sends each the table of all of them at each interval of ControlSettings, notices
// ranks whose connection ends or that are silent, and passes on what a rank reports.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "llmc/control/control_link.h"
#include "llmc/control/control_settings.h"
#include "llmc/control/loss.h"

namespace llmc {

class RankStore final : public ControlLink {
 public:
  RankStore(std::shared_ptr<TcpHub> hub, int ranks, const ControlSettings& settings);

  std::vector<tcp::Message> receive(ControlClock::time_point now) override;
  void send(const tcp::Message& message) override { take(0, message); }

 private:
  struct Rank {
    SeenRank seen;
    ControlClock::time_point heard = ControlClock::now();
  };
  // A rank that asked whether all ranks live.
  struct Question {
    int from = 0;
    ControlClock::time_point end{};
    std::set<int> missing = {};
  };

  void take(int from, const tcp::Message& message);
  Question ask_all(int from, std::chrono::milliseconds limit);
  void answer_questions();
  void find_silent();
  std::vector<SeenRank> send_tables();
  void report(const Loss& loss);
  void report_when_known();
  void deliver(int rank, const tcp::Message& message);
  std::int64_t progress() const;  // of all ranks

  ControlSettings settings_;
  std::vector<Rank> ranks_;
  std::vector<Question> questions_;
  std::vector<tcp::Message> own_;  // for rank 0
  ControlClock::time_point now_ = ControlClock::now(), next_table_{};
  // The first loss, until the ranks that live have told where they are.
  std::optional<Loss> loss_;
  Question loss_question_{};
  std::int64_t reported_progress_ = 0;  // when the loss was reported
  bool has_loss_ = false;
};

}  // namespace llmc
