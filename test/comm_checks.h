// Checks of communicators that hold for every backend: the ranks of a run call them with their
// world.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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
// for a receive that comes later.
template <class T>
void check_messages(Communicator& group, std::int64_t n, Stream& stream) {
  const int ranks = group.ranks(), rank = group.rank();
  if (ranks == 1) return;
  const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
  const auto mine = upload(comm_operand<T>(rank, n), stream);
  const llmc::Buffer<T> received(n);
  const auto send = [&] { group.send(llmc::make_tensor(mine.data(), n), next, stream); };
  if (rank != ranks - 1) send();
  group.receive(llmc::make_tensor(received.data(), n), previous, stream);
  if (rank == ranks - 1) send();
  require_equal(same_bits(download(received, stream), comm_operand<T>(previous, n)), "message",
                group);
}

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
