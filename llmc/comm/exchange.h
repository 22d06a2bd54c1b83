// Small exchanges of host memory between all ranks of a run: decisions, losses, measurements. All
// ranks call the same functions in the same order; each call returns when its result is there. With
// one rank they return their operands.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "llmc/base/error.h"
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
  std::vector<std::int64_t> all_gather(const std::vector<std::int64_t>& own) {
    if (!all_ || own.empty()) return own;
    const std::int64_t n = std::ssize(own), size = n * ranks_;
    const Tensor<std::int64_t, 1> values = space(size);
    copy_to_device(values.data + n * rank_, own.data(), n, *stream_);
    all_->all_gather<std::int64_t>(values, make_tensor(values.data + n * rank_, n), *stream_);
    return to_host(values);
  }

  // Each number becomes its sum over the ranks.
  void sum(std::vector<std::int64_t>& numbers) {
    if (!all_ || numbers.empty()) return;
    const Tensor<std::int64_t, 1> values = space(std::ssize(numbers));
    copy_to_device(values.data, numbers.data(), values.size(), *stream_);
    all_->all_reduce(values, *stream_);
    numbers = to_host(values);
  }

  // Whether it is true for any rank.
  bool any(bool own) {
    const std::vector<std::int64_t> all = all_gather({own ? 1 : 0});
    return std::ranges::find(all, 1) != all.end();
  }

  // The number of rank 0.
  double broadcast(double number) {
    return std::bit_cast<double>(all_gather({std::bit_cast<std::int64_t>(number)})[0]);
  }

  // The text of rank 0.
  std::string broadcast(std::string text) {
    if (!all_) return text;
    const std::int64_t size = all_gather({std::ssize(text)})[0];
    if (size == 0) return {};
    constexpr std::int64_t kWord = sizeof(std::int64_t);
    std::vector<std::int64_t> words(static_cast<std::size_t>(ceil_div(size, kWord)));
    text.resize(words.size() * kWord);
    std::memcpy(words.data(), text.data(), text.size());
    const Tensor<std::int64_t, 1> values = space(std::ssize(words));
    copy_to_device(values.data, words.data(), values.size(), *stream_);
    all_->broadcast(values, 0, *stream_);
    words = to_host(values);
    std::memcpy(text.data(), words.data(), text.size());
    text.resize(static_cast<std::size_t>(size));
    return text;
  }

  // The texts of all ranks, in their order.
  std::vector<std::string> gather_texts(const std::string& text) {
    if (!all_) return {text};
    const std::vector<std::int64_t> sizes = all_gather({std::ssize(text)});
    constexpr std::int64_t kWord = sizeof(std::int64_t);
    std::vector<std::int64_t> words(
        static_cast<std::size_t>(ceil_div(std::ranges::max(sizes), kWord)));
    text.copy(reinterpret_cast<char*>(words.data()), text.size());
    const std::size_t stride = words.size();
    words = all_gather(words);
    std::vector<std::string> texts;
    for (std::size_t rank = 0; rank < sizes.size(); ++rank) {
      texts.emplace_back(reinterpret_cast<const char*>(words.data() + rank * stride),
                         static_cast<std::size_t>(sizes[rank]));
    }
    return texts;
  }

  void barrier() { any(false); }

  // Calls work(), which exchanges nothing, on each rank. If it throws on any rank, all ranks throw
  // the error of the lowest one of these, which is named unless all have the same error.
  template <class Work>
  void together(const Work& work) {
    if (!all_) return work();
    std::string failure;  // empty: none; the first character is its kind
    try {
      work();
    } catch (const UsageError& error) {
      failure = kUsage + error.marked_text();
    } catch (const Error& error) {
      failure = kOther + error.marked_text();
    } catch (const std::exception& error) {
      failure = kOther + std::string(error.what());
    }
    const std::vector<std::string> all = gather_texts(failure);
    const auto first = std::ranges::find_if(all, [](const auto& text) { return !text.empty(); });
    if (first == all.end()) return;
    const bool is_common =
        std::ranges::all_of(all, [&](const auto& text) { return text == *first; });
    const std::string rank = "rank " + std::to_string(first - all.begin()) + ": ";
    const std::string text = (is_common ? "" : rank) + first->substr(1);
    if (first->front() == kUsage) fail_usage_together(text);
    fail_together(text);
  }

  // Calls work() once on each rank, as together(): first on one rank per machine, then on the
  // others. For work that leaves files in a cache.
  template <class Work>
  void one_per_machine_first(const Work& work) {
    for (const bool is_first : {true, false}) {
      together([&] {
        if ((local_rank_ == 0) == is_first) work();
      });
    }
  }

 private:
  static constexpr char kUsage = 'u', kOther = 'e';

  // Device memory for n numbers, the same for all calls.
  Tensor<std::int64_t, 1> space(std::int64_t n) {
    if (numbers_.size() < n) numbers_ = Buffer<std::int64_t>(n);
    return make_tensor(numbers_.data(), n);
  }
  std::vector<std::int64_t> to_host(const Tensor<std::int64_t, 1>& values) {
    std::vector<std::int64_t> numbers(static_cast<std::size_t>(values.size()));
    copy_to_host(numbers.data(), static_cast<const std::int64_t*>(values.data), values.size(),
                 *stream_);
    all_->wait(*stream_);
    return numbers;
  }

  int rank_ = 0, ranks_ = 1, local_rank_ = 0, local_ranks_ = 1;
  std::unique_ptr<Communicator> all_;
  std::unique_ptr<Stream> stream_;
  Buffer<std::int64_t> numbers_;
};

}  // namespace llmc
