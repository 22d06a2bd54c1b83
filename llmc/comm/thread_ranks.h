// Ranks as threads of one process, for tests: sanitizers and the race checker see all of them.
//
//   run_thread_ranks(4, [](World& world) {
//     const auto all = world.all();
//     ...
//   });
#pragma once

#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "llmc/comm/staged_communicator.h"
#include "llmc/comm/world.h"

namespace llmc {
namespace thread_ranks {

// One lock for all ranks, and which of them have ended.
struct Shared {
  explicit Shared(int ranks)
      : changed(static_cast<std::size_t>(ranks)),
        ended(static_cast<std::size_t>(ranks)),
        waits_for(static_cast<std::size_t>(ranks), -1) {}

  // Call after each change that `rank` may wait for.
  void notify(int rank) {
    waits_for[static_cast<std::size_t>(rank)] = -1;
    changed[static_cast<std::size_t>(rank)].notify_one();
  }
  void notify_all() {
    for (std::size_t rank = 0; rank < changed.size(); ++rank) notify(static_cast<int>(rank));
  }
  // Whether nothing can change any more: all ranks that have not ended wait for others.
  bool all_wait() const {
    for (std::size_t rank = 0; rank < ended.size(); ++rank) {
      if (!ended[rank] && waits_for[rank] < 0) return false;
    }
    return true;
  }

  std::mutex mutex;
  std::vector<std::condition_variable> changed;  // by rank
  std::vector<bool> ended;
  // The rank that a rank has waited for since the last change for it; -1: none.
  std::vector<int> waits_for;
  int failed_rank = -1;  // the first one that threw; -1: none
  std::exception_ptr error;
};

// A message from one rank of a group to another, in a copy of its own or in the sender's memory.
struct Message {
  CommCall call;
  std::span<const unsigned char> bytes = {};
  std::vector<unsigned char> copy = {};  // of a posted message
  bool is_posted = false;                // otherwise its sender waits until it is taken
};

// The messages from one rank of a group to another which the receiver has not taken yet, in their
// order. Only the last one can be in the sender's memory, because its sender waits.
struct Mailbox {
  std::deque<Message> messages;
  bool copying = false;  // the receiver copies the first one
};

struct Group {
  explicit Group(std::vector<int> members)
      : members(std::move(members)), mailboxes(this->members.size() * this->members.size()) {}
  int ranks() const { return static_cast<int>(members.size()); }
  Mailbox& mailbox(int from, int to) {
    return mailboxes[static_cast<std::size_t>(from * ranks() + to)];
  }
  std::vector<int> members;  // ranks of the run
  std::vector<Mailbox> mailboxes;
};

class ThreadTransport final : public Transport {
 public:
  ThreadTransport(Shared& shared, std::shared_ptr<Group> group, int rank)
      : shared_(shared), group_(std::move(group)), rank_(rank) {}

  int rank() const override { return rank_; }
  int ranks() const override { return group_->ranks(); }

  void exchange(const CommCall& call, std::span<const Outgoing> sends,
                std::span<const Incoming> receives) override {
    Lock lock(shared_.mutex);
    try {
      for (const Outgoing& send : sends) lend(call, send, lock);
      for (const Incoming& receive : receives) take(call, receive, lock);
      for (const Outgoing& send : sends) wait_until_taken(send.to, lock);
    } catch (...) {
      for (const Outgoing& send : sends) withdraw(send.to, lock);
      throw;
    }
  }

  void post(const CommCall& call, const Outgoing& send) override {
    Message message{.call = call, .is_posted = true};
    message.copy.assign(bytes_of(send).begin(), bytes_of(send).end());
    message.bytes = message.copy;
    const Lock lock(shared_.mutex);
    if (cannot_answer(send.to))
      fail_because_of(send.to, "has ended without receiving this message");
    group_->mailbox(rank_, send.to).messages.push_back(std::move(message));
    notify(send.to);
  }

 private:
  using Lock = std::unique_lock<std::mutex>;

  static std::span<const unsigned char> bytes_of(const Outgoing& send) {
    return {static_cast<const unsigned char*>(send.data), send.bytes};
  }

  // The receiver copies from the sender's memory, which stays valid until it is taken or withdrawn.
  void lend(const CommCall& call, const Outgoing& send, Lock& lock) {
    wait_until_taken(send.to, lock);
    group_->mailbox(rank_, send.to).messages.push_back({.call = call, .bytes = bytes_of(send)});
    notify(send.to);
  }

  void take(const CommCall& call, const Incoming& receive, Lock& lock) {
    Mailbox& box = group_->mailbox(receive.from, rank_);
    wait(receive.from, lock, [&] { return !box.messages.empty(); });
    const Message& message = box.messages.front();
    require_same_call(call, rank_, message.call, receive.from);
    require(message.bytes.size() == receive.bytes, "ranks disagree on the size of a message");
    box.copying = true;
    lock.unlock();
    if (receive.bytes > 0) std::memcpy(receive.data, message.bytes.data(), receive.bytes);
    lock.lock();
    box.messages.pop_front();
    box.copying = false;
    notify(receive.from);
  }

  void wait_until_taken(int to, Lock& lock) {
    const Mailbox& box = group_->mailbox(rank_, to);
    wait(to, lock, [&] { return !has_lent(box); });
  }

  // After an error: the sender's memory may be freed.
  void withdraw(int to, Lock& lock) {
    Mailbox& box = group_->mailbox(rank_, to);
    changed().wait(lock, [&] { return !box.copying; });
    if (has_lent(box)) box.messages.pop_back();
  }

  static bool has_lent(const Mailbox& box) {
    return !box.messages.empty() && !box.messages.back().is_posted;
  }

  void notify(int other) { shared_.notify(rank_of_run(other)); }
  std::condition_variable& changed() {
    return shared_.changed[static_cast<std::size_t>(rank_of_run(rank_))];
  }

  // Waits for a rank of the group.
  template <class Condition>
  void wait(int other, Lock& lock, const Condition& condition) {
    int& own = shared_.waits_for[static_cast<std::size_t>(rank_of_run(rank_))];
    changed().wait(lock, [&] {
      if (condition() || cannot_answer(other)) return true;
      own = rank_of_run(other);
      if (shared_.all_wait()) fail_deadlock();
      return false;
    });
    if (!condition()) fail_because_of(other, "has ended, and this rank waits for it");
  }

  [[noreturn]] void fail_deadlock() const {
    std::string text;
    for (std::size_t rank = 0; rank < shared_.waits_for.size(); ++rank) {
      if (shared_.ended[rank]) continue;
      text += (text.empty() ? "" : ", ") + std::string("rank ") + std::to_string(rank) + " for " +
              std::to_string(shared_.waits_for[rank]);
    }
    fail("all ranks wait for each other: " + text);
  }

  // Whether `other` of the group has ended, or any rank has failed.
  bool cannot_answer(int other) const {
    return shared_.failed_rank >= 0 || shared_.ended[static_cast<std::size_t>(rank_of_run(other))];
  }
  [[noreturn]] void fail_because_of(int other, const std::string& ended) const {
    const bool failed = shared_.failed_rank >= 0;
    fail("rank " + std::to_string(failed ? shared_.failed_rank : rank_of_run(other)) + " " +
         (failed ? "has failed" : ended));
  }
  int rank_of_run(int other) const { return group_->members[static_cast<std::size_t>(other)]; }

  Shared& shared_;
  std::shared_ptr<Group> group_;
  int rank_;
};

// The groups that ranks have made. A rank that makes a group of the same members again gets another
// one, as do its other members.
class Groups {
 public:
  std::shared_ptr<Group> join(const std::vector<int>& members, int number) {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<Group>& group = groups_[{members, number}];
    if (!group) group = std::make_shared<Group>(members);
    return group;
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<std::vector<int>, int>, std::shared_ptr<Group>> groups_;
};

class ThreadWorld final : public World {
 public:
  ThreadWorld(Shared& shared, Groups& groups, int rank, int ranks)
      : World({rank, ranks, rank, ranks}), shared_(shared), groups_(groups) {}
  void abort(int) override {}

 private:
  std::unique_ptr<Communicator> make_group(const std::string& name,
                                           const std::vector<int>& members) override {
    auto transport = std::make_unique<ThreadTransport>(
        shared_, groups_.join(members, made_[members]++), place_in(members));
    return std::make_unique<StagedCommunicator>(name, std::move(transport));
  }

  Shared& shared_;
  Groups& groups_;
  std::map<std::vector<int>, int> made_;  // number of groups of these members so far
};

}  // namespace thread_ranks

// Calls body(world) on `ranks` threads, one per rank, and returns when all are done. If a rank
// throws, the others throw at their next call of a communicator, and the first error is rethrown,
// with its rank.
template <class Body>
void run_thread_ranks(int ranks, const Body& body) {
  thread_ranks::Shared shared(ranks);
  thread_ranks::Groups groups;
  const auto run = [&](int rank) {
    std::exception_ptr error;
    try {
      thread_ranks::ThreadWorld world(shared, groups, rank, ranks);
      body(static_cast<World&>(world));
    } catch (...) {
      error = std::current_exception();
    }
    const std::lock_guard lock(shared.mutex);
    shared.ended[static_cast<std::size_t>(rank)] = true;
    shared.notify_all();
    if (!error || shared.failed_rank >= 0) return;
    shared.failed_rank = rank;
    shared.error = error;
  };
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(run, rank);
  }
  if (!shared.error) return;
  try {
    std::rethrow_exception(shared.error);
  } catch (const std::exception& error) {
    fail("rank " + std::to_string(shared.failed_rank) + ": " + error.what());
  }
}

}  // namespace llmc
