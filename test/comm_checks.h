// Checks of communicators that hold for every backend: the ranks of a run call them with their
// world.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "llmc/comm/channel.h"
#include "llmc/comm/world.h"
#include "test/support.h"

namespace llmc_test {

using llmc::Communicator;
using llmc::Stream;

// Element i of rank r's operand.
template <class T>
T comm_value(int rank, std::int64_t i) {
  if constexpr (std::is_same_v<T, std::int64_t>) {
    return (std::int64_t{1} << 40) * rank + i * (rank + 1);
  } else if constexpr (std::is_same_v<T, unsigned char>) {
    return static_cast<unsigned char>(17 * rank + i);
  } else {
    // Sums depend on the order of additions.
    return llmc::from_float<T>(std::ldexp(1.0f + static_cast<float>((i * 37 + rank * 11) % 101),
                                          (static_cast<int>(i) + 5 * rank) % 9 - 6));
  }
}

template <class T>
std::vector<T> comm_operand(int rank, std::int64_t n) {
  std::vector<T> values;
  for (std::int64_t i = 0; i < n; ++i) values.push_back(comm_value<T>(rank, i));
  return values;
}

// The sum over ranks by definition: added in ascending order, in fp32 for half precision.
template <class T>
std::vector<T> sum_over_ranks(int ranks, std::int64_t n) {
  std::vector<T> sums;
  for (std::int64_t i = 0; i < n; ++i) {
    if constexpr (std::is_same_v<T, std::int64_t>) {
      std::int64_t sum = 0;
      for (int rank = 0; rank < ranks; ++rank) sum += comm_value<T>(rank, i);
      sums.push_back(sum);
    } else {
      float sum = llmc::to_float(comm_value<T>(0, i));
      for (int rank = 1; rank < ranks; ++rank) sum += llmc::to_float(comm_value<T>(rank, i));
      sums.push_back(llmc::from_float<T>(sum));
    }
  }
  return sums;
}

template <class T>
std::vector<T> piece_of(const std::vector<T>& values, int index, std::int64_t n) {
  return {values.begin() + index * n, values.begin() + (index + 1) * n};
}

inline void require_equal(bool equal, const std::string& what, const Communicator& group) {
  llmc::require(equal, what + " is wrong on rank " + std::to_string(group.rank()) + " of '" +
                           group.name() + "'");
}

template <class T>
void check_sums(Communicator& group, std::int64_t n, Stream& stream) {
  const int ranks = group.ranks();
  const auto mine = upload(comm_operand<T>(group.rank(), n), stream);
  group.all_reduce(llmc::make_tensor(mine.data(), n), stream);
  require_equal(same_bits(download(mine, stream), sum_over_ranks<T>(ranks, n)), "all-reduce",
                group);

  const auto all = upload(comm_operand<T>(group.rank(), n * ranks), stream);
  const auto expected = piece_of(sum_over_ranks<T>(ranks, n * ranks), group.rank(), n);
  const llmc::Buffer<T> piece(n);
  group.reduce_scatter(llmc::make_tensor(piece.data(), n), llmc::make_tensor(all.data(), n * ranks),
                       stream);
  require_equal(same_bits(download(piece, stream), expected), "reduce-scatter", group);
  T* const own = all.data() + group.rank() * n;
  group.reduce_scatter(llmc::make_tensor(own, n), llmc::make_tensor(all.data(), n * ranks), stream);
  require_equal(same_bits(download(own, n, stream), expected), "reduce-scatter in place", group);
}

template <class T>
void check_moves(Communicator& group, std::int64_t n, Stream& stream) {
  const int ranks = group.ranks();
  std::vector<T> expected;
  for (int rank = 0; rank < ranks; ++rank) {
    for (const T& value : comm_operand<T>(rank, n)) expected.push_back(value);
  }
  const auto mine = upload(comm_operand<T>(group.rank(), n), stream);
  const llmc::Buffer<T> all(n * ranks);
  group.all_gather(llmc::make_tensor(all.data(), n * ranks), llmc::make_tensor(mine.data(), n),
                   stream);
  require_equal(same_bits(download(all, stream), expected), "all-gather", group);

  const llmc::Buffer<T> in_place(n * ranks);
  T* const own = in_place.data() + group.rank() * n;
  llmc::copy_on_device(own, static_cast<const T*>(mine.data()), n, stream);
  group.all_gather(llmc::make_tensor(in_place.data(), n * ranks), llmc::make_tensor(own, n),
                   stream);
  require_equal(same_bits(download(in_place, stream), expected), "all-gather in place", group);

  for (const int root : {0, ranks - 1}) {
    const auto values = upload(comm_operand<T>(group.rank(), n), stream);
    group.broadcast(llmc::make_tensor(values.data(), n), root, stream);
    require_equal(same_bits(download(values, stream), comm_operand<T>(root, n)), "broadcast",
                  group);
  }
}

// Every rank sends to the next one, in a ring; the last one receives first, so that no rank waits
// for a receive that comes later. Each rank calls before_receive() before its receive.
template <class T, class Before>
void check_messages(Communicator& group, std::int64_t n, Stream& stream,
                    const Before& before_receive) {
  const int ranks = group.ranks(), rank = group.rank();
  if (ranks == 1) return;
  const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
  const auto mine = upload(comm_operand<T>(rank, n), stream);
  const llmc::Buffer<T> received(n);
  const auto send = [&] { group.send(llmc::make_tensor(mine.data(), n), next, stream); };
  if (rank != ranks - 1) send();
  before_receive();
  group.receive(llmc::make_tensor(received.data(), n), previous, stream);
  if (rank == ranks - 1) send();
  require_equal(same_bits(download(received, stream), comm_operand<T>(previous, n)), "message",
                group);
}

template <class T>
void check_messages(Communicator& group, std::int64_t n, Stream& stream) {
  check_messages<T>(group, n, stream, [] {});
}

template <class T>
void post_and_overwrite(Communicator& group, std::int64_t n, int to, Stream& stream) {
  const auto values = upload(comm_operand<T>(group.rank(), n), stream);
  group.post(llmc::make_tensor(values.data(), n), to, stream);
  llmc::fill_zero(values.data(), n, stream);
}

template <class T>
void check_receive(Communicator& group, std::int64_t n, int from, Stream& stream) {
  const llmc::Buffer<T> values(n);
  group.receive(llmc::make_tensor(values.data(), n), from, stream);
  require_equal(same_bits(download(values, stream), comm_operand<T>(from, n)), "posted message",
                group);
}

// Elements of a message that no library buffers as a whole: several MiB.
inline std::int64_t large_message() {
  return (tiny_shapes() ? std::int64_t{1} << 16 : std::int64_t{1} << 20) + 3;
}

// Every rank posts to the next one in a ring, all messages before it receives the first one. Posted
// messages and one that its sender waits for arrive in their order.
inline void check_posts(Communicator& group, Stream& stream) {
  const int ranks = group.ranks(), rank = group.rank();
  if (ranks == 1 || !group.occupies_host()) return;
  const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
  post_and_overwrite<float>(group, large_message(), next, stream);
  for (std::int64_t n = 0; n < 40; ++n) {
    post_and_overwrite<float>(group, n * n % 23, next, stream);
    post_and_overwrite<llmc::bf16>(group, 100 * n, next, stream);
  }
  check_receive<float>(group, large_message(), previous, stream);
  for (std::int64_t n = 0; n < 40; ++n) {
    check_receive<float>(group, n * n % 23, previous, stream);
    check_receive<llmc::bf16>(group, 100 * n, previous, stream);
  }
  post_and_overwrite<llmc::fp16>(group, 5, next, stream);
  check_messages<std::int64_t>(group, 7, stream,
                               [&] { check_receive<llmc::fp16>(group, 5, previous, stream); });
}

// ---- channels --------------------------------------------------------------------------------

// Both channels of the ranks `lower` and `lower` + 1, which create and destroy them in equal order.
struct ChannelPair {
  using Choice = llmc::Channel::StreamChoice;

  ChannelPair(llmc::World& world, int lower, Choice choice)
      : rank(world.rank() - lower),
        forward(world.group("forward", {lower, lower + 1}), rank == 0, choice),
        backward(world.group("backward", {lower, lower + 1}), rank == 1, choice) {}

  int rank;  // 0: the lower one
  llmc::Channel forward, backward;
  llmc::Channel& out = rank == 0 ? forward : backward;
  llmc::Channel& in = rank == 0 ? backward : forward;
};

// Memory with values that the stream writes last, not the host: the race checker reports a channel
// that does not wait for them.
template <class T>
llmc::Buffer<T> copy_in_stream(const llmc::Buffer<T>& source, Stream& stream) {
  const auto n = static_cast<std::int64_t>(source.size());
  llmc::Buffer<T> values(n);
  llmc::copy_on_device(values.data(), static_cast<const T*>(source.data()), n, stream);
  return values;
}

// Messages of three types, the first one large: both ranks send all of them before one arrives, and
// expect all of them before that.
inline void check_both_send_first(ChannelPair& pair, Stream& stream) {
  const std::int64_t n = large_message(), small = 11;
  const auto first_source = upload(comm_operand<float>(pair.rank, n), stream);
  const auto second_source = upload(comm_operand<llmc::bf16>(pair.rank, small), stream);
  const auto last_source = upload(comm_operand<llmc::fp16>(pair.rank, small), stream);
  const auto x = copy_in_stream(first_source, stream);
  const auto y = copy_in_stream(second_source, stream);
  const auto z = copy_in_stream(last_source, stream);
  const std::int64_t first = pair.out.send(llmc::make_tensor(x.data(), n), stream);
  pair.out.send(llmc::make_tensor(y.data(), small), stream);
  pair.out.sent(first, stream);
  llmc::fill_zero(x.data(), n, stream);
  pair.out.send(llmc::make_tensor(y.data(), 0), stream);
  pair.out.send(llmc::make_tensor(z.data(), small), stream);
  pair.out.sent(stream);
  llmc::fill_zero(y.data(), small, stream);
  llmc::fill_zero(z.data(), small, stream);

  const llmc::Buffer<float> a(n);
  const llmc::Buffer<llmc::bf16> b(small), empty(1);
  const llmc::Buffer<llmc::fp16> c(small);
  llmc::fill_zero(a.data(), n, stream);
  pair.in.expect(llmc::make_tensor(a.data(), n), stream);
  pair.in.expect(llmc::make_tensor(b.data(), small), stream);
  pair.in.expect(llmc::make_tensor(empty.data(), 0), stream);
  pair.in.expect(llmc::make_tensor(c.data(), small), stream);

  const int other = 1 - pair.rank;
  const Communicator& group = pair.in.pair();
  pair.in.arrive(stream);
  require_equal(same_bits(download(a, stream), comm_operand<float>(other, n)), "first message",
                group);
  for (int i = 0; i < 3; ++i) pair.in.arrive(stream);
  require_equal(same_bits(download(b, stream), comm_operand<llmc::bf16>(other, small)) &&
                    same_bits(download(c, stream), comm_operand<llmc::fp16>(other, small)),
                "later message", group);
  llmc::require(pair.out.bytes() == 4 * n + 4 * small, "the bytes of a channel are wrong");
}

// Each answer depends on the message before it, and all answers are expected before the first
// message is sent, into the same memory for every second one.
inline void check_answers(ChannelPair& pair, Stream& stream) {
  constexpr int kMessages = 6;
  constexpr std::int64_t n = 1000;
  const llmc::Buffer<float> slots(2 * n);
  const auto slot = [&](int i) { return llmc::make_tensor(slots.data() + i % 2 * n, n); };
  pair.in.expect(slot(0), stream);
  pair.in.expect(slot(1), stream);
  std::vector<float> values = comm_operand<float>(0, n);
  auto message = upload(values, stream);
  if (pair.rank == 0) pair.out.send(llmc::make_tensor(message.data(), n), stream);
  for (int i = 0; i < kMessages; ++i) {
    pair.in.arrive(stream);
    const std::vector<float> arrived = download(static_cast<const float*>(slot(i).data), n, stream);
    require_equal(same_bits(arrived, values), "answer", pair.in.pair());
    if (i + 2 < kMessages) pair.in.expect(slot(i), stream);
    if (pair.rank == 0) values = comm_operand<float>(i + 1, n);
    const bool is_last = i + 1 == kMessages && pair.rank == 0;
    if (!is_last) {
      pair.out.sent(stream);
      copy_to_device(message.data(), values.data(), n, stream);
      stream.synchronize();
      pair.out.send(llmc::make_tensor(message.data(), n), stream);
    }
    if (pair.rank == 1) values = comm_operand<float>(i + 1, n);
  }
}

inline void check_channels(llmc::World& world, Stream& stream) {
  using Choice = ChannelPair::Choice;
  for (const Choice choice : {Choice::by_backend, Choice::own}) {
    std::vector<std::unique_ptr<ChannelPair>> pairs;
    for (int lower = 0; lower + 1 < world.ranks(); ++lower) {
      if (world.rank() - lower != 0 && world.rank() - lower != 1) continue;
      pairs.push_back(std::make_unique<ChannelPair>(world, lower, choice));
    }
    for (const auto& pair : pairs) {
      check_both_send_first(*pair, stream);
      check_answers(*pair, stream);
    }
  }
}

// ----------------------------------------------------------------------------------------------

// All calls on operands of about n elements.
inline void check_group(Communicator& group, std::int64_t n, Stream& stream) {
  check_sums<float>(group, n, stream);
  check_sums<llmc::bf16>(group, n, stream);
  check_sums<llmc::fp16>(group, n, stream);
  check_sums<std::int64_t>(group, n, stream);
  check_moves<float>(group, n, stream);
  check_moves<llmc::bf16>(group, n, stream);
  check_moves<unsigned char>(group, n, stream);
  check_messages<float>(group, n, stream);
  group.barrier(stream);
}

// Sizes: one element, fewer than ranks, uneven pieces, more than one chunk.
inline std::vector<std::int64_t> comm_sizes() {
  if (tiny_shapes()) return {1, 3, 1000};
  return {1, 3, 1000, 1024, (1 << 16) + 5};
}

// All groups of neighbouring ranks, and of ranks with equal places in them, as hybrid sharding has
// them, for each size of groups that divides the ranks.
inline void check_world(llmc::World& world) {
  Stream stream;
  const auto all = world.all();
  for (const std::int64_t n : comm_sizes()) check_group(*all, n, stream);
  check_posts(*all, stream);
  check_channels(world, stream);
  for (int size = 1; size <= world.ranks(); ++size) {
    if (world.ranks() % size != 0) continue;
    std::vector<int> neighbours, peers;
    for (int rank = 0; rank < world.ranks(); ++rank) {
      if (rank / size == world.rank() / size) neighbours.push_back(rank);
      if (rank % size == world.rank() % size) peers.push_back(rank);
    }
    check_group(*world.group("shard", neighbours), 100, stream);
    check_group(*world.group("replica", peers), 100, stream);
  }
}

}  // namespace llmc_test
