// The numbers of a step that ranks exchange after it: decisions, times, memory.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "llmc/comm/exchange.h"
#include "llmc/comm/mesh.h"
#include "llmc/device/device.h"
#include "llmc/device/phase_clock.h"

namespace llmc {

// The numbers of one rank. -1: unknown.
struct StepNumbers {
  std::int64_t stop = 0;         // StopAgreement::own()
  std::uint64_t token_hash = 0;  // StepResult::token_hash
  std::int64_t applied = 1;      // whether this rank applied the update, or had nothing to learn
  std::int64_t comm_bytes = 0;   // that the rank sent since the step before
  // Of them, those in its tensor group, those to ranks of its pipeline, and those in its other
  // groups: of the gradients, the weights, the norm and the loss, and of the values of files.
  std::int64_t tensor_bytes = 0, pipeline_bytes = 0, data_bytes = 0;
  // Bytes moved for offloaded state since the step before: from and to host memory, from and to a
  // disk.
  std::array<std::int64_t, 4> offload_bytes{};
  double step_ms = 0;
  PhaseTimes phases{};
  double processors = -1;  // busy cores
  double host_memory = -1, gpu_memory = -1;
  double gpu_utilisation = -1;  // percent
};

// Bytes that a rank sends for the decisions and numbers of one step, of N ranks.
std::int64_t step_exchange_bytes(std::int64_t N);

// The numbers of all ranks.
class RankNumbers {
 public:
  // All ranks call this together. Throws on all of them if ranks with equal data ranks have read
  // different tokens.
  RankNumbers(Exchange& exchange, const StepNumbers& own, const Mesh& mesh = {});

  const std::vector<StepNumbers>& ranks() const { return ranks_; }

  std::vector<std::int64_t> stops() const;
  // The hash of the step's windows (token_hash.h).
  std::uint64_t token_hash() const;
  template <class Number>
  double sum(const Number& number) const {
    double sum = 0;
    for (const StepNumbers& rank : ranks_) sum += static_cast<double>(number(rank));
    return sum;
  }
  template <class Number>
  double mean(const Number& number) const {
    return sum(number) / static_cast<double>(ranks_.size());
  }
  template <class Number>
  double largest(const Number& number) const {
    double largest = static_cast<double>(number(ranks_[0]));
    for (const StepNumbers& rank : ranks_) {
      largest = std::max(largest, static_cast<double>(number(rank)));
    }
    return largest;
  }

 private:
  const StepNumbers& of(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  // The lowest of the ranks that have the same samples as `rank`. By default, each rank has its
  // own.
  int first_of_data_rank(int rank) const {
    return mesh_.ranks == 1 ? rank : mesh_.data_rank(rank) * mesh_.tensor_ranks;
  }

  void require_equal_tokens() const;

  Mesh mesh_;
  std::vector<StepNumbers> ranks_;
};

}  // namespace llmc
