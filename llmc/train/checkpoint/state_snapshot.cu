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
                             const HuggingFaceConfig& config, Stream& stream)
    : state_(state), frozen_(options.frozen), plan_(plan_of(state, options)) {
  if (options.adapter != nullptr) {
    adapter_tensors_ = adapter_tensors(*options.adapter, config);
    collect_adapter(stream);
  }
  collect_weights(stream);
  add_time(times_.copy_ms, [&] { copy_moments(stream); });
  for (const auto* tensors : {&weights_, &moments_}) {
    for (const SavedTensor& tensor : *tensors) bytes_ += 4 * tensor.slice.count();
  }
  for (const auto& [name, values] : adapter_) bytes_ += 4 * std::ssize(values);
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

void StateSnapshot::copy_moments(Stream& stream) {
  std::vector<SavedTensor> second_moments;
  for (const SavePlan::Moment& moment : plan_.moments) {
    if (!writes(moment.writer)) continue;
    const ParameterSpec& spec = *moment.spec;
    const ElementRange kept = state_.kept_moments(spec);
    const auto tensor = [&](const char* prefix) {
      return SavedTensor{.slice = slice_of(spec, state_.table().place(), prefix + spec.name, kept),
                         .spec = &spec,
                         .values = std::vector<float>(static_cast<std::size_t>(kept.count))};
    };
    SavedTensor first = tensor(kFirstMoment), second = tensor(kSecondMoment);
    state_.get_kept_moments(spec, first.values.data(), second.values.data(), stream);
    moments_.push_back(std::move(first));
    second_moments.push_back(std::move(second));
  }
  std::ranges::move(second_moments, std::back_inserter(moments_));
}

std::vector<ManifestFile> StateSnapshot::write(const std::filesystem::path& directory) {
  CheckpointFiles files(directory, directory.string());
  std::vector<ManifestFile> entries;
  add_time(times_.write_ms, [&] {
    if (!adapter_.empty()) write_adapter(files);
    if (!weights_.empty()) write_weights(files);
    if (!moments_.empty()) write_moments(files);
    entries = files.finish();
  });
  return entries;
}

template <class Writers>
std::string StateSnapshot::own_name(const std::string& stem, const Writers& writers) const {
  const auto own = std::ranges::lower_bound(writers, state_.ranks().rank()) - writers.begin();
  return tensor_file_name(stem, static_cast<std::size_t>(own), writers.size());
}

void StateSnapshot::write_weights(CheckpointFiles& files) {
  std::vector<TensorHeader> headers;
  for (const SavedTensor& tensor : weights_) headers.push_back(tensor.slice.stored_header());
  SafetensorsWriter& file =
      files.tensor_file(own_name("model", plan_.weight_writers()), std::move(headers));
  for (const SavedTensor& tensor : weights_) write(file, tensor, true);
}

void StateSnapshot::write_adapter(CheckpointFiles& files) {
  std::vector<TensorHeader> headers;
  for (const AdapterTensor& tensor : adapter_tensors_) headers.push_back(tensor.stored);
  SafetensorsWriter& file = files.tensor_file(kAdapterWeightsName, std::move(headers));
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

void StateSnapshot::write_moments(CheckpointFiles& files) {
  std::vector<Slice> slices;
  for (const SavedTensor& tensor : moments_) slices.push_back(tensor.slice);
  SafetensorsWriter& file =
      files.tensor_file(own_name("optimizer", plan_.moment_writers()), slices);
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
