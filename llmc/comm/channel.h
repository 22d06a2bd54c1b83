// Messages from one rank to another that never wait for their receiver, for pipeline parallelism.
//
// Two neighbours of a pipeline exchange activations and gradients, and each of them may have to
// send before it can receive. If sends waited for their receives, both ranks would wait forever. A
// channel therefore has a communicator of its own for one direction, and one of two strategies:
//
// - If calls occupy the host (staged_communicator.h), a send copies its message, and a receive runs
//   in arrive(), when the message is needed: earlier, it would block the thread.
// - Otherwise (NCCL), messages run on a stream of the channel, next to the computation, ordered by
//   events. A send holds this stream, and no other, until the receiver comes.
//
// Both ends create their channels in the same order, destroy them in the same order, and make the
// same messages.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/comm/communicator.h"
#include "llmc/device/memory.h"

namespace llmc {

class Channel {
 public:
  // `own` is for tests of the second strategy with backends that occupy the host.
  enum class StreamChoice { by_backend, own };

  // `pair` has two ranks, which both create a channel of it; exactly one of them has `sends` set.
  // Waits for the other rank if the backend connects them only now.
  Channel(std::unique_ptr<Communicator> pair, bool sends,
          StreamChoice choice = StreamChoice::by_backend)
      : sends_(sends), pair_(std::move(pair)) {
    require(pair_->ranks() == 2, "a channel has two ranks; group '" + pair_->name() + "' has " +
                                     std::to_string(pair_->ranks()));
    if (choice == StreamChoice::own || !pair_->occupies_host()) stream_.emplace();
    if (!pair_->occupies_host()) connect();
  }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // Bytes of all messages that this end has sent.
  std::int64_t bytes() const { return pair_->bytes() - connection_bytes_; }
  const Communicator& pair() const { return *pair_; }

  // Sends `values` as they are after the present work of `compute`, and returns the number of the
  // message, from 1. The host does not wait for the receiver. The values must stay unchanged and
  // allocated until sent() of this message; each message needs a sent(), of itself or a later one.
  // All calls of a channel name the same compute stream.
  template <class T>
  std::int64_t send(Tensor<T, 1> values, Stream& compute) {
    require(sends_, "this end of a channel receives");
    ++messages_;
    if (!stream_) {
      pair_->post(values, other(), compute);
      return messages_;
    }
    std::unique_ptr<Event> event = recorded_on(compute);
    stream_->wait(*event);
    pair_->post(values, other(), *stream_);
    event->record(*stream_);
    unsent_.push_back({messages_, std::move(event)});
    return messages_;
  }

  // Later work of `compute` may overwrite or free the values of the messages up to `message`. The
  // host does not wait.
  void sent(std::int64_t message, Stream& compute) {
    std::unique_ptr<Event> last;
    while (!unsent_.empty() && unsent_.front().message <= message) {
      recycle(std::exchange(last, std::move(unsent_.front().event)));
      unsent_.pop_front();
    }
    if (last == nullptr) return;
    compute.wait(*last);
    recycle(std::move(last));
  }
  // The same for all messages so far.
  void sent(Stream& compute) { sent(messages_, compute); }

  // The next message that is not expected yet goes to `values`, which the present work of `compute`
  // has finished with. They must stay allocated until arrive(). Any number of messages may be
  // expected at a time; size and type are those of the sender.
  template <class T>
  void expect(Tensor<T, 1> values, Stream& compute) {
    require(!sends_, "this end of a channel sends");
    expected_.push_back(
        {[this, values](Stream& stream) { pair_->receive(values, other(), stream); },
         stream_ ? recorded_on(compute) : nullptr});
  }

  // Later work of `compute` sees the oldest expected message that has not arrived yet. Throws if
  // none is expected, or as Communicator::receive() does.
  void arrive(Stream& compute) {
    require(!expected_.empty(), "a channel has no expected message that could arrive");
    Expected next = std::move(expected_.front());
    expected_.pop_front();
    if (!stream_) return next.receive(compute);
    stream_->wait(*next.event);
    next.receive(*stream_);
    next.event->record(*stream_);
    compute.wait(*next.event);
    recycle(std::move(next.event));
  }

 private:
  // A message whose values its sender may still read.
  struct Unsent {
    std::int64_t message;
    std::unique_ptr<Event> event;  // after it in stream_
  };
  struct Expected {
    std::function<void(Stream&)> receive;
    std::unique_ptr<Event> event;  // of the compute stream, which has finished with the values
  };

  int other() const { return 1 - pair_->rank(); }

  // NCCL connects two ranks at their first message, and the hosts of both wait for that: here,
  // where both ranks come, and not where both may send first.
  void connect() {
    const Buffer<unsigned char> byte(1);
    fill_zero(byte.data(), 1, *stream_);
    const Tensor<unsigned char, 1> message = make_tensor(byte.data(), 1);
    sends_ ? pair_->post(message, other(), *stream_) : pair_->receive(message, other(), *stream_);
    pair_->wait(*stream_);
    connection_bytes_ = pair_->bytes();
  }

  std::unique_ptr<Event> recorded_on(Stream& stream) {
    std::unique_ptr<Event> event;
    if (idle_events_.empty()) {
      event = std::make_unique<Event>();
    } else {
      event = std::move(idle_events_.back());
      idle_events_.pop_back();
    }
    event->record(stream);
    return event;
  }
  // A stream that waits for an event waits for its point at that time, so the event is free then.
  void recycle(std::unique_ptr<Event> event) {
    if (event != nullptr) idle_events_.push_back(std::move(event));
  }

  bool sends_;
  std::int64_t messages_ = 0;  // sent
  std::int64_t connection_bytes_ = 0;
  std::optional<Stream> stream_;
  std::deque<Unsent> unsent_;
  std::deque<Expected> expected_;
  std::vector<std::unique_ptr<Event>> idle_events_;
  std::unique_ptr<Communicator> pair_;  // ends first: its calls may use the stream
};

}  // namespace llmc
