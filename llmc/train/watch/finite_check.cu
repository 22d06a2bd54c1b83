#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "llmc/base/error.h"
#include "llmc/comm/compare_ranks.h"
#include "llmc/device/device.h"
#include "llmc/train/watch/finite_check.h"

namespace llmc {

namespace {

// The index of the first value that is not finite, or -1. `host` is memory for the values.
std::int64_t first_not_finite(const OperationOutput& output, std::vector<std::byte>& host,
                              Stream& stream) {
  const std::int64_t bytes = output.size * element_bytes(output.dtype);
  host.resize(static_cast<std::size_t>(bytes));
  copy_to_host(host.data(), static_cast<const std::byte*>(output.values), bytes, stream);
  stream.synchronize();
  return dispatch_dtype(output.dtype, [&]<class Value>() -> std::int64_t {
    const auto* const values = reinterpret_cast<const Value*>(host.data());
    const auto* const end = values + output.size;
    const auto* const first =
        std::find_if(values, end, [](Value value) { return !std::isfinite(to_float(value)); });
    return first == end ? -1 : first - values;
  });
}

// The place of a layer in the order of a forward pass.
std::int64_t layer_order(const std::string& layer) {
  if (layer == "wte" || layer == "wpe") return -1;
  if (!layer.starts_with("h.")) return std::numeric_limits<std::int32_t>::max();  // norm and head
  return std::stoll(layer.substr(2));
}

}  // namespace

void FiniteCheck::begin_micro_batch(std::int64_t index, std::int64_t B, std::int64_t T) {
  micro_batch_ = index;
  B_ = B;
  T_ = T;
}

void FiniteCheck::begin_pass(bool is_backward) {
  is_backward_ = is_backward;
  num_outputs_ = 0;
}

void FiniteCheck::output(const OperationOutput& output, Stream& stream) {
  const std::string layer = output.layer.text();
  const std::int64_t order = layer_order(layer);
  const Place place = {micro_batch_, is_backward_ ? 1 : 0, is_backward_ ? -order : order,
                       num_outputs_++};
  if (first_ && first_->place <= place) return;
  const std::int64_t index = first_not_finite(output, host_, stream);
  if (index >= 0) first_ = {place, output.operation, layer, sample_of(output, index)};
}

std::int64_t FiniteCheck::sample_of(const OperationOutput& output, std::int64_t index) const {
  if (output.rows == 0) return -1;
  std::int64_t first = output.first_row;
  if (first < 0) {
    const RankRows rows = group_.rows_of_rank(B_ * T_);
    first = output.rows == rows.own ? rows.first : 0;
  }
  return (first + index / (output.size / output.rows)) / T_;
}

NotFinite FiniteCheck::agree(bool is_finite, bool was_finite, Exchange& exchange) const {
  constexpr std::size_t kNumbers = 7;
  const Finding own = first_.value_or(Finding{});
  std::vector<std::int64_t> numbers = {first_ ? 1 : 0, was_finite ? 1 : 0, own.sample};
  numbers.insert(numbers.end(), own.place.begin(), own.place.end());
  const std::vector<std::int64_t> all = exchange.all_gather(numbers);
  const std::vector<std::string> operations = exchange.gather_texts(own.operation);
  const std::vector<std::string> layers = exchange.gather_texts(own.layer);
  NotFinite cause{.is_transient = is_finite};
  std::optional<Place> first;
  for (std::size_t rank = 0; rank < operations.size(); ++rank) {
    const auto* const of_rank = &all[rank * kNumbers];
    if (is_finite) {
      if (of_rank[1] == 0) cause.ranks.push_back(static_cast<int>(rank));
      continue;
    }
    if (of_rank[0] == 0) continue;
    Place place;
    std::copy_n(of_rank + 3, place.size(), place.begin());
    if (first && *first < place) continue;
    if (!first || place < *first) {
      cause = {.operation = operations[rank],
               .layer = layers[rank],
               .micro_batch = place[0],
               .sample = of_rank[2]};
      first = place;
    }
    cause.ranks.push_back(static_cast<int>(rank));
  }
  if (!is_finite || !cause.ranks.empty()) return cause;
  for (int rank = 0; rank < exchange.ranks(); ++rank) cause.ranks.push_back(rank);
  return cause;
}

std::string not_finite_text(std::int64_t step, const std::string& value, const NotFinite& cause) {
  const std::string text = "step " + std::to_string(step) + ": " + value + ": ";
  if (cause.is_transient) {
    return text + "a second run of the step is finite: a transient fault of " +
           (cause.ranks.size() > 1 ? "one of " : "") + rank_list(cause.ranks);
  }
  if (cause.ranks.empty()) {
    return text +
           "the outputs of all operations are finite; their sum over the ranks, or the "
           "square of a gradient, is too large";
  }
  return text + "first not finite in \"" + cause.operation + "\" of " + cause.layer + ", " +
         rank_list(cause.ranks) + ", micro-batch " + std::to_string(cause.micro_batch) +
         (cause.sample < 0 ? "" : ", sample " + std::to_string(cause.sample));
}

}  // namespace llmc
