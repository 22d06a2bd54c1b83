// Small exchanges of host memory between all ranks of a run: decisions, losses, measurements,
// weights of a file. All ranks call the same functions in the same order; each call returns when
// its result is there. With one rank they return their operands.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "llmc/comm/world.h"
#include "llmc/device/device.h"

namespace llmc {

class Exchange {
 public:
  // One rank.
  Exchange() = default;
  // The world must outlive the object.
  explicit Exchange(World& world)
      : rank_(world.rank()),
        ranks_(world.ranks()),
        local_rank_(world.local_rank()),
        local_ranks_(world.local_ranks()) {
    if (ranks_ == 1) return;
    all_ = world.all("exchange");
    stream_ = std::make_unique<Stream>();
  }

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  // The place among the ranks on the same machine.
  int local_rank() const { return local_rank_; }
  int local_ranks() const { return local_ranks_; }
  // Whether this rank writes the output of the run.
  bool first() const { return rank_ == 0; }
  // Bytes that this rank has sent.
  std::int64_t bytes() const { return all_ ? all_->bytes() : 0; }

  // The numbers of all ranks, in the order of ranks; each gives equally many.
  template <class Number>
  std::vector<Number> all_gather(const std::vector<Number>& own) {
    static_assert(sizeof(Number) == sizeof(std::int64_t));
    if (!all_ || own.empty()) return own;
    const std::int64_t n = std::ssize(own);
    std::vector<Number> gathered(static_cast<std::size_t>(n * ranks_));
    Buffer<std::int64_t> values(n * ranks_);
    copy_to_device(values.data() + n * rank_, reinterpret_cast<const std::int64_t*>(own.data()), n,
                   *stream_);
    all_->all_gather<std::int64_t>(make_tensor(values.data(), n * ranks_),
                                   make_tensor(values.data() + n * rank_, n), *stream_);
    copy_to_host(reinterpret_cast<std::int64_t*>(gathered.data()), values.data(), n * ranks_,
                 *stream_);
    all_->wait(*stream_);
    return gathered;
  }

  // Each number becomes its sum over the ranks.
  void sum(std::vector<std::int64_t>& numbers) {
    if (!all_ || numbers.empty()) return;
    const std::int64_t n = std::ssize(numbers);
    Buffer<std::int64_t> values(n);
    copy_to_device(values.data(), numbers.data(), n, *stream_);
    all_->all_reduce(make_tensor(values.data(), n), *stream_);
    copy_to_host(numbers.data(), values.data(), n, *stream_);
    all_->wait(*stream_);
  }

  // Whether it is true for any rank.
  bool any(bool own) {
    const std::vector<std::int64_t> all = all_gather<std::int64_t>({own ? 1 : 0});
    return std::ranges::find(all, 1) != all.end();
  }

  // The values of rank 0 replace those of the others.
  void broadcast(std::span<float> values) {
    if (!all_) return;
    Buffer<float> chunk(std::min(kChunk, std::ssize(values)));
    for (std::int64_t first = 0; first < std::ssize(values); first += kChunk) {
      const std::int64_t size = std::min(kChunk, std::ssize(values) - first);
      float* const host = values.data() + first;
      if (this->first()) {
        copy_to_device(chunk.data(), static_cast<const float*>(host), size, *stream_);
      }
      all_->broadcast(make_tensor(chunk.data(), size), 0, *stream_);
      if (!this->first()) copy_to_host(host, chunk.data(), size, *stream_);
      all_->wait(*stream_);
    }
  }

  // The number of rank 0.
  double broadcast(double number) {
    return std::bit_cast<double>(
        all_gather<std::int64_t>({std::bit_cast<std::int64_t>(number)})[0]);
  }

  // The text of rank 0.
  std::string broadcast(std::string text) {
    if (!all_) return text;
    const std::int64_t size = all_gather<std::int64_t>({std::ssize(text)})[0];
    const auto floats = static_cast<std::size_t>(ceil_div(size, std::int64_t{sizeof(float)}));
    std::vector<float> packed(floats);
    if (first() && size > 0) std::memcpy(packed.data(), text.data(), text.size());
    broadcast(std::span(packed));
    text.resize(static_cast<std::size_t>(size));
    if (size > 0) std::memcpy(text.data(), packed.data(), text.size());
    return text;
  }

  void barrier() { any(false); }

  // Calls work() once on each rank: first on one rank per machine, then on the others. For work
  // that leaves files in a cache.
  template <class Work>
  void one_per_machine_first(const Work& work) {
    if (local_rank_ == 0) work();
    barrier();
    if (local_rank_ != 0) work();
  }

 private:
  static constexpr std::int64_t kChunk = 1 << 20;  // floats

  int rank_ = 0, ranks_ = 1, local_rank_ = 0, local_ranks_ = 1;
  std::unique_ptr<Communicator> all_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace llmc
