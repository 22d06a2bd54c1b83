#include <algorithm>
#include <span>
#include <utility>

#include "llmc/io/checkpoint/element_check.h"
#include "llmc/models/parameter_slices.h"
#include "llmc/train/checkpoint/saved_tensors.h"
#include "llmc/train/checkpoint/state_snapshot.h"

namespace llmc {

namespace {

SavePlan plan_of(const RunState& state, const CheckpointOptions& options) {
  const bool has_adapter = options.adapter != nullptr;
  return plan_save(state.table(), state.layout(), state.ranks().mesh(), options.writer_share,
                   [&](const ParameterSpec&) { return !has_adapter; });
}

}  // namespace

StateSnapshot::StateSnapshot(RunState& state, const CheckpointOptions& options,
                             const HuggingFaceConfig& config,
                             const std::filesystem::path& directory, Stream& stream)
    : state_(state),
      frozen_(options.frozen),
      plan_(plan_of(state, options)),
      files_(directory, directory.string()) {
  if (options.adapter != nullptr) {
    adapter_tensors_ = adapter_tensors(*options.adapter, config);
    collect_adapter(stream);
  }
  collect_weights(stream);
  list_moments();
  for (const auto* tensors : {&weights_, &moments_}) {
    for (const SavedTensor& tensor : *tensors) bytes_ += 4 * tensor.slice.count();
  }
  for (const auto& [name, values] : adapter_) bytes_ += 4 * std::ssize(values);
  host_bytes_ = bytes_;
  if (!state_.keeps_moments_on_disk()) {
    add_time(times_.copy_ms, [&] { copy_moments(stream); });
    return;
  }
  for (const SavedTensor& tensor : moments_) host_bytes_ -= 4 * tensor.slice.count();
  try {
    add_time(times_.copy_ms, [&] { write_moments_from_disk(stream); });
  } catch (...) {
    failure_ = std::current_exception();
  }
}

void StateSnapshot::collect_adapter(Stream& stream) {
  add_time(times_.gather_ms, [&] {
    for (const AdapterTensor& tensor : adapter_tensors_) {
      const ParameterSpec& spec = state_.table().find(tensor.name);
      float* values = nullptr;
      if (state_.first_rank()) {
        std::vector<float>& own = adapter_[tensor.name];
        own.resize(static_cast<std::size_t>(spec.size()));
        values = own.data();
      }
      state_.get_weight(spec, values, stream);
    }
  });
}

void StateSnapshot::collect_weights(Stream& stream) {
  for (const SavePlan::Weight& weight : plan_.weights) {
    const ParameterSpec& spec = *weight.spec;
    SavedTensor tensor{
        .slice = Slice::whole({huggingface_name(spec.name), TensorDtype::f32, spec.shape}),
        .spec = &spec,
        .values = {}};
    if (!is_from_file(spec)) {
      const bool is_copied =
          state_.keeps_whole_weight(spec) &&
          state_.ranks().mesh().pipeline_rank(weight.writer) == spec.first_holder;
      add_time(is_copied ? times_.copy_ms : times_.gather_ms, [&] {
        if (writes(weight.writer)) tensor.values.resize(static_cast<std::size_t>(spec.size()));
        state_.collect_weight(spec, weight.writer, tensor.values.data(), stream);
      });
    }
    if (writes(weight.writer)) weights_.push_back(std::move(tensor));
  }
}

// The first moments of all parameters, then the second ones.
void StateSnapshot::list_moments() {
  for (const char* const prefix : {kFirstMoment, kSecondMoment}) {
    for (const SavePlan::Moment& moment : plan_.moments) {
      if (!writes(moment.writer)) continue;
      const ParameterSpec& spec = *moment.spec;
      const ElementRange kept = state_.kept_moments(spec);
      moments_.push_back({.slice = slice_of(spec, state_.table().place(), prefix + spec.name, kept),
                          .spec = &spec,
                          .values = {}});
    }
  }
}

void StateSnapshot::copy_moments(Stream& stream) {
  const std::size_t count = moments_.size() / 2;
  for (std::size_t i = 0; i < count; ++i) {
    SavedTensor &first = moments_[i], &second = moments_[count + i];
    for (SavedTensor* tensor : {&first, &second}) {
      tensor->values.resize(static_cast<std::size_t>(tensor->slice.count()));
    }
    state_.get_kept_moments(*first.spec, first.values.data(), second.values.data(), stream);
  }
}

void StateSnapshot::write_moments_from_disk(Stream& stream) {
  if (moments_.empty()) return;
  SafetensorsWriter& file = moments_file();
  const std::size_t count = moments_.size() / 2;
  for (std::size_t i = 0; i < 2 * count; ++i) {
    SavedTensor& tensor = moments_[i];
    tensor.values.resize(static_cast<std::size_t>(tensor.slice.count()));
    float* const values = tensor.values.data();
    state_.get_kept_moments(*tensor.spec, i < count ? values : nullptr,
                            i < count ? nullptr : values, stream);
    write(file, tensor, false);
    tensor.values = {};
  }
}

std::vector<ManifestFile> StateSnapshot::write() {
  if (failure_) std::rethrow_exception(failure_);
  std::vector<ManifestFile> entries;
  add_time(times_.write_ms, [&] {
    if (!adapter_.empty()) write_adapter();
    if (!weights_.empty()) write_weights();
    if (!moments_.empty() && !state_.keeps_moments_on_disk()) write_moments();
    entries = files_.finish();
  });
  return entries;
}

template <class Writers>
std::string StateSnapshot::own_name(const std::string& stem, const Writers& writers) const {
  const auto own = std::ranges::lower_bound(writers, state_.ranks().rank()) - writers.begin();
  return tensor_file_name(stem, static_cast<std::size_t>(own), writers.size());
}

void StateSnapshot::write_weights() {
  std::vector<TensorHeader> headers;
  for (const SavedTensor& tensor : weights_) headers.push_back(tensor.slice.stored_header());
  SafetensorsWriter& file =
      files_.tensor_file(own_name("model", plan_.weight_writers()), std::move(headers));
  for (const SavedTensor& tensor : weights_) write(file, tensor, true);
}

void StateSnapshot::write_adapter() {
  std::vector<TensorHeader> headers;
  for (const AdapterTensor& tensor : adapter_tensors_) headers.push_back(tensor.stored);
  SafetensorsWriter& file = files_.tensor_file(kAdapterWeightsName, std::move(headers));
  write_adapter_tensors(
      file, adapter_tensors_, [&](const std::string& name, std::span<float> values) {
        const ParameterSpec& spec = state_.table().find(name);
        const std::vector<float>& own = adapter_.at(name);
        check_elements(
            own, spec.shape, is_not_finite, "not finite", [&] { return "tensor " + name; }, "");
        state_.require_representable(spec, own);
        std::ranges::copy(own, values.begin());
        written_ += 4 * std::ssize(own);
      });
}

SafetensorsWriter& StateSnapshot::moments_file() {
  std::vector<Slice> slices;
  for (const SavedTensor& tensor : moments_) slices.push_back(tensor.slice);
  return files_.tensor_file(own_name("optimizer", plan_.moment_writers()), slices);
}

void StateSnapshot::write_moments() {
  SafetensorsWriter& file = moments_file();
  for (const SavedTensor& tensor : moments_) write(file, tensor, false);
}

void StateSnapshot::write(SafetensorsWriter& file, const SavedTensor& tensor, bool is_weight) {
  const ParameterSpec& spec = *tensor.spec;
  std::vector<float> loaded;
  if (is_weight && is_from_file(spec)) {
    loaded.resize(static_cast<std::size_t>(spec.size()));
    frozen_->load(spec, loaded.data());
  }
  const std::vector<float>& values = loaded.empty() ? tensor.values : loaded;
  check_part(
      values, spec.shape, [&](std::int64_t i) { return tensor_index(tensor.slice, i); },
      is_not_finite, "not finite", [&] { return "tensor " + tensor.slice.name; }, "");
  if (is_weight) state_.require_representable(spec, values);
  file.write(tensor.slice.name_in_file(), std::as_bytes(std::span(values)));
  written_ += 4 * std::ssize(values);
}

}  // namespace llmc
