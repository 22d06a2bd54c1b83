#include <array>
#include <bit>
#include <iterator>
#include <string>
#include <type_traits>

#include "llmc/base/error.h"
#include "llmc/comm/step_numbers.h"

namespace llmc {

std::int64_t step_exchange_bytes(std::int64_t N) {
  constexpr std::int64_t kAgreement = sizeof(std::int64_t);  // StopAgreement::agree()
  return (static_cast<std::int64_t>(sizeof(StepNumbers)) + kAgreement) * (N - 1);
}

RankNumbers::RankNumbers(Exchange& exchange, const StepNumbers& own, const Mesh& mesh)
    : mesh_(mesh) {
  using Words = std::array<std::int64_t, sizeof(StepNumbers) / sizeof(std::int64_t)>;
  static_assert(std::is_trivially_copyable_v<StepNumbers>);
  const auto words = std::bit_cast<Words>(own);
  const std::vector<std::int64_t> all =
      exchange.all_gather(std::vector<std::int64_t>(words.begin(), words.end()));
  for (std::size_t first = 0; first < all.size(); first += words.size()) {
    Words of_rank{};
    std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(first), words.size(), of_rank.begin());
    ranks_.push_back(std::bit_cast<StepNumbers>(of_rank));
  }
  require_equal_tokens();
}

std::vector<std::int64_t> RankNumbers::stops() const {
  std::vector<std::int64_t> all;
  for (const StepNumbers& rank : ranks_) all.push_back(rank.stop);
  return all;
}

std::uint64_t RankNumbers::token_hash() const {
  std::uint64_t sum = 0;
  for (int rank = 0; rank < std::ssize(ranks_); ++rank) {
    if (rank == first_of_data_rank(rank)) sum += of(rank).token_hash;
  }
  return sum;
}

void RankNumbers::require_equal_tokens() const {
  for (int rank = 0; rank < std::ssize(ranks_); ++rank) {
    const int first = first_of_data_rank(rank);
    if (of(rank).token_hash == of(first).token_hash) continue;
    fail("ranks " + std::to_string(first) + " and " + std::to_string(rank) +
             ", which train on the same samples, have read different tokens",
         "give all ranks the same files and flags");
  }
}

}  // namespace llmc
