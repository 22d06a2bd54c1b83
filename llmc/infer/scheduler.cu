#include <algorithm>
#include <bit>
#include <iterator>
#include <span>
#include <utility>

#include "llmc/base/error.h"
#include "llmc/device/rows.h"
#include "llmc/infer/scheduler.h"

namespace llmc {

Scheduler::Scheduler(GenerationPass& model, const SchedulerOptions& options, MemoryPlan& plan)
    : model_(model),
      options_(options),
      sequences_(static_cast<std::size_t>(model.shape().slots)),
      host_draws_(2 * model.shape().slots * options.steps_between_reads),
      host_finish_(model.shape().slots) {
  require(options.steps_between_reads >= 1, "the host must read tokens after at least one step");
  require(V() >= 1 && V() <= model.config().vocabulary, "more tokens than the model has");
  for (Tensor<std::int32_t, 1>* const ids :
       {&state_.token, &state_.position, &state_.finish, &row_slot_}) {
    plan.reserve("batch", *ids, B());
  }
  plan.reserve("batch", state_.history, B(), model.config().context);
  plan.reserve("batch", draws_, 2, B());
  plan.reserve("batch", sampling_, B());
  plan.reserve("batch", bias_ids_, std::ssize(options.sampling.logit_bias));
  plan.reserve("batch", bias_values_, std::ssize(options.sampling.logit_bias));
  plan.reserve("logits", scratch_, sampling_scratch(B(), V()));
  for (const auto& [token, value] : options.sampling.logit_bias) {
    require(token >= 0 && token < V(), "a bias names a token that cannot be drawn");
    host_bias_ids_.push_back(token);
    host_bias_values_.push_back(static_cast<float>(value));
  }
}

void Scheduler::run(const SchedulerCallbacks& callbacks) {
  callbacks_ = &callbacks;
  next_sequence_ = 0;
  start();
  bool more = true;
  for (;;) {
    while (more && num_active_ < B()) more = fill_slots();
    if (num_active_ == 0) break;
    if (!callbacks.on_step()) return cancel_all();
    const std::int64_t count = steps_before_read();
    for (std::int64_t i = 0; i < count; ++i) {
      step_.run(stream(), [this] { draw(model_.step(state_.token, state_.position), {}); });
      copy_draws(i);
    }
    deliver(count);
  }
}

void Scheduler::start() {
  model_.clear();
  num_active_ = 0;
  sequences_.assign(sequences_.size(), {});
  unread_.clear();
  const std::vector<SlotSampling> sampling(sequences_.size(), slot_sampling({}, 0, 0, 0, -1));
  const auto idle = std::vector(sequences_.size(), static_cast<std::int32_t>(SlotFinish::idle));
  fill_zero(state_.token.data, B(), stream());
  fill_zero(state_.position.data, B(), stream());
  drawn_ = make_tensor(draws_.data, B());
  state_.log_probability = make_tensor(reinterpret_cast<float*>(draws_.data + B()), B());
  fill_zero(draws_.data, draws_.size(), stream());
  copy_to_device(state_.finish.data, idle.data(), B(), stream());
  copy_to_device(sampling_.data, sampling.data(), B(), stream());
  const std::int64_t count = std::ssize(host_bias_ids_);
  if (count > 0) copy_to_device(bias_ids_.data, host_bias_ids_.data(), count, stream());
  if (count > 0) copy_to_device(bias_values_.data, host_bias_values_.data(), count, stream());
  stream().synchronize();
}

bool Scheduler::fill_slots() {
  bool more = true;
  for (std::int64_t b = 0; b < B() && more; ++b) {
    if (sequence_of(b).index != kIdle) continue;
    std::optional<GenerationRequest> request = callbacks_->next();
    if (!request) {
      more = false;
      break;
    }
    check(*request);
    Sequence& s = sequence_of(b) = Sequence{};
    s.index = next_sequence_++;
    s.context = request->prompt;
    s.request = std::move(*request);
    ++num_active_;
    begin_reading(b);
  }
  read_prompts();
  return more;
}

void Scheduler::check(const GenerationRequest& request) const {
  require(!request.prompt.empty() && std::ssize(request.prompt) < max_length(),
          "a prompt has no tokens, or leaves no room in the context");
  require(request.tokens >= 1, "at least one token must be generated");
  const std::int64_t length = std::ssize(request.prompt) + request.tokens - 1;
  require(std::min(length, max_length() - 1) <= model_.shape().capacity,
          "a sequence does not fit the cache");
}

void Scheduler::begin_reading(std::int64_t b) {
  Sequence& s = sequence_of(b);
  model_.clear_faults(b);
  s.num_read = 0;
  const auto length = static_cast<std::int64_t>(s.context.size());
  const std::int64_t remaining = s.request.tokens - s.num_generated;
  const std::int64_t last_position = std::min(length + remaining, max_length()) - 1;
  // After a slide, positions occur again: another seed draws other numbers there.
  const std::uint64_t seed = s.request.seed + s.num_slides * 0x9e3779b97f4a7c15u;
  const SlotSampling sampling = slot_sampling(options_.sampling, seed, s.request.sample,
                                              static_cast<std::int32_t>(last_position),
                                              options_.stop.empty() ? -1 : options_.stop.front());
  copy_to_device(sampling_.data + b, &sampling, 1, stream());
  copy_to_device(state_.history.data + b * max_length(), s.context.data(), length, stream());
  write_slot(b, s.context.back(), length - 1, SlotFinish::active);
  unread_.push_back(b);
}

void Scheduler::write_slot(std::int64_t b, std::int32_t token, std::int64_t position,
                           SlotFinish finish) {
  const std::int32_t values[] = {token, static_cast<std::int32_t>(position),
                                 static_cast<std::int32_t>(finish)};
  copy_to_device(state_.token.data + b, &values[0], 1, stream());
  copy_to_device(state_.position.data + b, &values[1], 1, stream());
  copy_to_device(state_.finish.data + b, &values[2], 1, stream());
  stream().synchronize();
}

void Scheduler::read_prompts() {
  while (!unread_.empty()) {
    std::vector<PromptChunk> chunks;
    std::vector<std::int32_t> ended;
    std::int64_t room = model_.shape().chunk;
    while (room > 0 && !unread_.empty()) {
      const std::int64_t b = unread_.front();
      Sequence& s = sequence_of(b);
      const std::size_t count =
          std::min(static_cast<std::size_t>(room), s.context.size() - s.num_read);
      const bool is_last = s.num_read + count == s.context.size();
      chunks.push_back({b, static_cast<std::int64_t>(s.num_read),
                        std::span<const std::int32_t>(s.context).subspan(s.num_read, count),
                        is_last});
      s.num_read += count;
      room -= static_cast<std::int64_t>(count);
      if (!is_last) break;  // the pass is full
      ended.push_back(static_cast<std::int32_t>(b));
      unread_.pop_front();
    }
    const Tensor<const float, 2> logits = model_.read_prompts(chunks);
    if (!ended.empty()) draw_after_prompts(logits, ended);
  }
}

void Scheduler::draw_after_prompts(const Tensor<const float, 2>& logits,
                                   const std::vector<std::int32_t>& ended) {
  const std::int64_t count = std::ssize(ended);
  copy_to_device(row_slot_.data, ended.data(), count, stream());
  stream().synchronize();
  draw(logits, first_rows(row_slot_, count));
  copy_draws(0);
  deliver(1);
}

std::int64_t Scheduler::steps_before_read() const {
  std::int64_t count = options_.steps_between_reads;
  for (const Sequence& s : sequences_) {
    if (s.index == kIdle) continue;
    count =
        std::min({count, s.request.tokens - s.num_generated, max_length() - std::ssize(s.context)});
  }
  return count;
}

void Scheduler::draw(const Tensor<const float, 2>& logits, In<std::int32_t, 1> slots) {
  sample_next_tokens(state_, drawn_, logits, V(), slots, sampling_, bias_ids_, bias_values_,
                     scratch_, stream());
}

void Scheduler::deliver(std::int64_t count) {
  copy_to_host(host_finish_.data(), state_.finish.data, B(), stream());
  stream().synchronize();
  ++num_reads_;
  for (std::int64_t b = 0; b < B(); ++b) {
    if (sequence_of(b).index != kIdle) deliver_slot(b, count);
  }
  if (!unread_.empty()) read_prompts();
}

void Scheduler::deliver_slot(std::int64_t b, std::int64_t count) {
  Sequence& s = sequence_of(b);
  const auto finish = static_cast<SlotFinish>(host_finish_.data()[b]);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int32_t* const draws = host_draws_.data() + i * draws_.size();
    const std::int32_t token = draws[b];
    if (token < 0) break;  // the slot drew no token
    if (std::ranges::find(options_.stop, token) != options_.stop.end()) {
      // The device knows the first of them.
      if (token == options_.stop.front()) break;
      return end_early(b, finish, Finish::stop);
    }
    s.context.push_back(token);
    ++s.num_generated;
    const auto log_probability = std::bit_cast<float>(draws[B() + b]);
    if (callbacks_->on_token(s.index, token, log_probability)) continue;
    return end_early(b, finish, Finish::cancelled);
  }
  if (finish == SlotFinish::stop) return end(b, Finish::stop);
  if (finish == SlotFinish::length) return end_of_length(b);
  if (finish != SlotFinish::not_finite) return;
  fault_ = model_.fault_text(b);
  clear_slot(b);
  end(b, Finish::not_finite);
}

void Scheduler::end_of_length(std::int64_t b) {
  Sequence& s = sequence_of(b);
  if (s.num_generated == s.request.tokens) return end(b, Finish::length);
  if (!options_.slide) return end(b, Finish::context);
  s.context.erase(s.context.begin(), s.context.end() - std::max<std::int64_t>(1, max_length() / 2));
  ++s.num_slides;
  begin_reading(b);
}

void Scheduler::end_early(std::int64_t b, SlotFinish finish, Finish reason) {
  if (holds_position(finish)) clear_slot(b);
  end(b, reason);
}

void Scheduler::end(std::int64_t b, Finish finish) {
  const std::int64_t sequence = sequence_of(b).index;
  sequence_of(b) = Sequence{};
  --num_active_;
  callbacks_->on_finish(sequence, finish);
}

void Scheduler::cancel_all() {
  for (std::int64_t b = 0; b < B(); ++b) {
    if (sequence_of(b).index != kIdle) end(b, Finish::cancelled);
  }
}

}  // namespace llmc
