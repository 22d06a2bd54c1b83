// Collectives over the ranks of a group, on device memory, in stream order.
//
// - All ranks of the group make the same calls in the same order. Every collective has a number;
//   backends that exchange host memory compare the calls of the ranks.
// - The operands are ready when the stream reaches the call, and the result when it reaches later
//   work of the stream. Another stream needs an event. A communicator is used by one stream at a
//   time.
// - An all-reduce is a reduce-scatter and an all-gather, so every rank gets the same bits.
// - An operand may be the rank's own piece of the other operand; otherwise they do not overlap.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "llmc/comm/call.h"
#include "llmc/comm/call_log.h"
#include "llmc/device/math.h"
#include "llmc/device/profiler.h"
#include "llmc/device/stream.h"
#include "llmc/device/tensor.h"

namespace llmc {

// The data that a rank has sent in calls of one kind.
struct CommTraffic {
  std::int64_t calls = 0;
  // Bytes that this rank sends in a ring: payload x (n - 1) / n for n ranks, twice for an
  // all-reduce, rounded up. The payload is the larger operand. A message is a call at both ends;
  // its bytes count at its sender.
  std::int64_t bytes = 0;
};

class Communicator {
 public:
  // `name` of the group, for errors and reports.
  Communicator(std::string name, int rank, int ranks)
      : name_(std::move(name)), rank_(rank), ranks_(ranks) {}
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  const std::string& name() const { return name_; }
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  // Notes all later calls in this log, which must outlive the object. `members`: the ranks of the
  // run that are in the group.
  void log_calls(CallLog& log, const std::vector<int>& members) {
    log_ = &log;
    log_group_ = log.add_group(name_, members);
  }

  const CommTraffic& traffic(CommKind kind) const { return traffic_[static_cast<int>(kind)]; }
  std::int64_t bytes() const {
    std::int64_t sum = 0;
    for (const CommTraffic& traffic : traffic_) sum += traffic.bytes;
    return sum;
  }

  // values (n) = sum over ranks.
  template <class T>
  void all_reduce(Tensor<T, 1> values, Stream& stream) {
    const CommCall call = collective(CommKind::all_reduce, kElementOf<T>, values.size());
    const OpenCall open = begin(call, 2, stream);
    if (values.size() > 0) do_all_reduce(call, values.data, stream);
  }

  // out (n) = this rank's piece of the sum of in (ranks x n).
  template <class T>
  void reduce_scatter(Tensor<T, 1> out, In<T, 1> in, Stream& stream) {
    check_shape("in", in, {ranks_ * out.size()});
    const CommCall call = collective(CommKind::reduce_scatter, kElementOf<T>, in.size());
    const OpenCall open = begin(call, 1, stream);
    if (in.size() > 0) do_reduce_scatter(call, out.data, in.data, stream);
  }

  // out (ranks x n) = in (n) of all ranks, in their order.
  template <class T>
  void all_gather(Tensor<T, 1> out, In<T, 1> in, Stream& stream) {
    check_shape("out", out, {ranks_ * in.size()});
    const CommCall call = collective(CommKind::all_gather, kElementOf<T>, out.size());
    const OpenCall open = begin(call, 1, stream);
    if (out.size() > 0) do_all_gather(call, out.data, in.data, stream);
  }

  // values (n) = values of `root`.
  template <class T>
  void broadcast(Tensor<T, 1> values, int root, Stream& stream) {
    require_rank(root);
    CommCall call = collective(CommKind::broadcast, kElementOf<T>, values.size());
    call.root = root;
    const OpenCall open = begin(call, 1, stream);
    if (values.size() > 0) do_broadcast(call, values.data, stream);
  }

  // The stream waits here for the streams of all ranks.
  void barrier(Stream& stream) {
    const CommCall call = collective(CommKind::barrier, Element::byte, 0);
    const OpenCall open = begin(call, 0, stream);
    do_barrier(call, stream);
  }

  // Waits until all work submitted to the stream so far is complete. A backend that detects failed
  // ranks throws instead of waiting forever for a call that they did not make.
  virtual void wait(Stream& stream) { stream.synchronize(); }

  // Whether calls run on the calling thread when the host submits them. If so, a receive() blocks
  // the host until its message is there, and a rank may post() and then receive() on the same
  // stream. If not, calls run when their stream reaches them and only the stream waits.
  virtual bool occupies_host() const = 0;

  // A message to one rank, which receives as many elements of the same type. Messages between two
  // ranks arrive in their order. send() may wait for its receive(); post() differs in this only:
  // the host never waits for the receiver, so two ranks may both post first. Later work of the
  // stream may overwrite the values in both cases. A backend that does not occupy the host keeps
  // the message in the stream: later work of the stream waits for the receiver, and so does later
  // work of this communicator. The first message between two ranks may also connect them, which
  // both hosts wait for (Channel in channel.h avoids all of these waits).
  template <class T>
  void send(Tensor<T, 1> values, int to, Stream& stream) {
    require_other_rank(to);
    const CommCall call = message(sent_[to], kElementOf<std::remove_const_t<T>>, values.size());
    const OpenCall open = begin_message(call, to, stream);
    do_send(call, values.data, to, stream);
  }
  template <class T>
  void post(Tensor<T, 1> values, int to, Stream& stream) {
    require_other_rank(to);
    const CommCall call = message(sent_[to], kElementOf<std::remove_const_t<T>>, values.size());
    const OpenCall open = begin_message(call, to, stream);
    do_post(call, values.data, to, stream);
  }
  template <class T>
  void receive(Tensor<T, 1> values, int from, Stream& stream) {
    require_other_rank(from);
    const CommCall call = message(received_[from], kElementOf<T>, values.size());
    const OpenCall open = begin(call, from, 0, stream);
    do_receive(call, values.data, from, stream);
  }

 protected:
  // The same with untyped operands of call.count elements in all; not called for empty operands,
  // except messages.
  virtual void do_all_reduce(const CommCall& call, void* values, Stream& stream) = 0;
  virtual void do_reduce_scatter(const CommCall& call, void* out, const void* in,
                                 Stream& stream) = 0;
  virtual void do_all_gather(const CommCall& call, void* out, const void* in, Stream& stream) = 0;
  virtual void do_broadcast(const CommCall& call, void* values, Stream& stream) = 0;
  virtual void do_barrier(const CommCall& call, Stream& stream) = 0;
  virtual void do_send(const CommCall& call, const void* values, int to, Stream& stream) = 0;
  virtual void do_post(const CommCall& call, const void* values, int to, Stream& stream) = 0;
  virtual void do_receive(const CommCall& call, void* values, int from, Stream& stream) = 0;

  // Null: nothing is logged.
  CallLog* log() const { return log_; }

 private:
  CommCall collective(CommKind kind, Element element, std::int64_t count) {
    const bool sums = kind == CommKind::all_reduce || kind == CommKind::reduce_scatter;
    require(!sums || element != Element::byte, "bytes have no sum");
    return {.number = ++collectives_, .kind = kind, .element = element, .count = count};
  }
  static CommCall message(std::int64_t& number, Element element, std::int64_t count) {
    return {.number = ++number, .kind = CommKind::message, .element = element, .count = count};
  }

  // A call that is logged and profiled from the construction to the destruction of the object.
  struct OpenCall {
    CallLog::Scope log;
    ProfileScope profile;
  };

  OpenCall begin(const CommCall& call, int passes, Stream& stream) {
    const std::int64_t payload = call.count * element_size(call.element);
    return begin(call, -1, ceil_div(passes * payload * (ranks_ - 1), ranks_), stream);
  }
  OpenCall begin_message(const CommCall& call, int to, Stream& stream) {
    return begin(call, to, call.count * element_size(call.element), stream);
  }
  // `peer` of a message, in the group; `bytes` that this rank sends.
  OpenCall begin(const CommCall& call, int peer, std::int64_t bytes, Stream& stream) {
    CommTraffic& traffic = traffic_[static_cast<int>(call.kind)];
    traffic.calls += 1;
    traffic.bytes += bytes;
    return {{log_, log_group_, call, peer},
            {kind_name(call.kind), stream, {.bytes = static_cast<double>(bytes)}}};
  }

  void require_rank(int rank) const {
    if (0 <= rank && rank < ranks_) return;
    fail("group '" + name_ + "' has the ranks 0 to " + std::to_string(ranks_ - 1) + ", not " +
         std::to_string(rank));
  }
  void require_other_rank(int rank) const {
    require_rank(rank);
    require(rank != rank_, "a rank sends no message to itself");
  }

  std::string name_;
  int rank_, ranks_;
  std::int64_t collectives_ = 0;
  std::vector<std::int64_t> sent_ = std::vector<std::int64_t>(static_cast<std::size_t>(ranks_));
  std::vector<std::int64_t> received_ = sent_;
  std::array<CommTraffic, kCommKinds> traffic_{};
  CallLog* log_ = nullptr;
  int log_group_ = 0;
};

}  // namespace llmc
