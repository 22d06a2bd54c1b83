#include <algorithm>
#include <cstddef>
#include <span>

#include "llmc/base/error.h"
#include "llmc/base/work_progress.h"
#include "llmc/config/recorded_settings.h"
#include "llmc/device/dtype.h"
#include "llmc/io/checkpoint/adapter_files.h"
#include "llmc/io/checkpoint/checkpoint_reader.h"
#include "llmc/io/checkpoint/checkpoint_writer.h"
#include "llmc/io/checkpoint/element_check.h"
#include "llmc/io/checkpoint/manifest.h"
#include "llmc/io/checkpoint/model_card.h"
#include "llmc/io/checkpoint/retention.h"
#include "llmc/io/checkpoint/safetensors.h"
#include "llmc/io/checkpoint/tensor_dtype.h"
#include "llmc/models/parameter_slices.h"
#include "llmc/nn/parameter_table.h"
#include "llmc/ops/optimizer/optimizer_state.h"
#include "llmc/train/checkpoint/saved_tensors.h"
#include "llmc/train/checkpoint/training_checkpoint.h"

namespace llmc {

namespace {

// The tensors of all parameters, or of those that learn; `prefix` comes before their names.
std::vector<TensorHeader> tensor_headers(const ParameterTable& table, const std::string& prefix,
                                         bool with_frozen) {
  std::vector<TensorHeader> headers;
  for (const ParameterSpec& spec : table.specs()) {
    if (!spec.trainable && !with_frozen) continue;
    headers.push_back({prefix + spec.name, TensorDtype::f32, spec.shape});
  }
  return headers;
}

// Calls write(name, spec, values) for each tensor of the weights, then of the moments. All ranks
// call this; only rank 0 gets values.
template <class Write>
void collect_weights(RunState& state, const FrozenFile* frozen, Stream& stream, double& ms,
                     const Write& write) {
  std::vector<float> values;
  for (const ParameterSpec& spec : state.table().specs()) {
    values.resize(static_cast<std::size_t>(spec.size()));
    if (frozen != nullptr && !spec.trainable) {
      frozen->load(spec, values.data());
    } else {
      add_time(ms, [&] { state.get_weight(spec, values.data(), stream); });
    }
    write(huggingface_name(spec.name), spec, values);
  }
}
template <class Write>
void collect_moments(RunState& state, Stream& stream, double& ms, const Write& write) {
  std::vector<float> values;
  for (const bool first : {true, false}) {
    for (const ParameterSpec& spec : state.table().specs()) {
      if (!spec.trainable) continue;
      values.resize(static_cast<std::size_t>(spec.size()));
      add_time(ms, [&] {
        state.get_moments(spec, first ? values.data() : nullptr, first ? nullptr : values.data(),
                          stream);
      });
      write((first ? kFirstMoment : kSecondMoment) + spec.name, spec, values);
    }
  }
}

// Writes the adapter. The other ranks call get_weight() in the same order.
void write_adapter_file(CheckpointWriter& writer, RunState& state,
                        const std::vector<AdapterTensor>& tensors, Stream& stream, double& ms) {
  std::vector<TensorHeader> headers;
  for (const AdapterTensor& tensor : tensors) headers.push_back(tensor.stored);
  SafetensorsWriter& file = writer.tensor_file(kAdapterWeightsName, headers);
  write_adapter_tensors(file, tensors, [&](const std::string& name, std::span<float> values) {
    const ParameterSpec& spec = state.table().find(name);
    add_time(ms, [&] { state.get_weight(spec, values.data(), stream); });
    check_elements(
        {values.begin(), values.end()}, spec.shape, is_not_finite, "not finite",
        [&] { return "tensor " + name; }, "");
    state.require_representable(spec, values);
  });
  file.finish();
}

// Throws an ElementError if weights or moments are not finite, or if the dtype cannot hold a
// weight: a run cannot continue from them.
void write_tensors(CheckpointWriter& writer, RunState& state, const CheckpointOptions& options,
                   const HuggingFaceConfig& config, Stream& stream, double& ms) {
  const ParameterTable& table = state.table();
  WorkProgress progress("saving " + writer.path().string(),
                        table.count() + 2 * table.trainable_count());
  const auto write_to = [&](SafetensorsWriter& file) {
    return [&](const std::string& name, const ParameterSpec& spec,
               const std::vector<float>& values) {
      check_elements(
          values, spec.shape, is_not_finite, "not finite", [&] { return "tensor " + name; }, "");
      if (file.path().filename() == kWeightsName) state.require_representable(spec, values);
      file.write(name, std::as_bytes(std::span(values)));
      progress.add(spec.size());
    };
  };
  if (options.adapter != nullptr) {
    write_adapter_file(writer, state, adapter_tensors(*options.adapter, config), stream, ms);
  } else {
    SafetensorsWriter& weights =
        writer.tensor_file(kWeightsName, huggingface_tensors(tensor_headers(table, "", true)));
    collect_weights(state, options.frozen, stream, ms, write_to(weights));
    weights.finish();
  }
  std::vector<TensorHeader> headers = tensor_headers(table, kFirstMoment, false);
  const std::vector<TensorHeader> second = tensor_headers(table, kSecondMoment, false);
  headers.insert(headers.end(), second.begin(), second.end());
  SafetensorsWriter& moments = writer.tensor_file(kMomentsName, headers);
  collect_moments(state, stream, ms, write_to(moments));
  moments.finish();
}

// The part of rank 0 in save_checkpoint().
std::string write_checkpoint(const std::filesystem::path& root, const HuggingFaceConfig& config,
                             const RunPosition& position, std::uint64_t seed, RunState& state,
                             Stream& stream, const CheckpointOptions& options, double& gather_ms) {
  CheckpointWriter writer(root, checkpoint_name(position.step));
  writer.text_file(kConfigName, huggingface_config_text(config, TensorDtype::f32));
  for (const TextFile& file : options.texts) writer.text_file(file.name, file.text);
  write_tensors(writer, state, options, config, stream, gather_ms);
  const CheckpointState counters = saved_counters(root, position, seed, state.dtype(),
                                                  state.optimizer_state(stream), options.only_best);
  writer.commit(position.step, counters, position.history);
  return writer.path().string();
}

// The part of the other ranks in write_tensors() of rank 0.
void send_tensors(RunState& state, const CheckpointOptions& options,
                  const HuggingFaceConfig& config, Stream& stream) {
  const auto nothing = [](const std::string&, const ParameterSpec&, const std::vector<float>&) {};
  double ms = 0;
  if (options.adapter != nullptr) {
    for (const AdapterTensor& tensor : adapter_tensors(*options.adapter, config)) {
      state.get_weight(state.table().find(tensor.name), nullptr, stream);
    }
  } else {
    collect_weights(state, options.frozen, stream, ms, nothing);
  }
  collect_moments(state, stream, ms, nothing);
}

// Throws unless the run that wrote the checkpoint trained the same parameters: those with moments.
void check_same_trainable(CheckpointReader& reader, const ParameterTable& table) {
  const std::vector<std::string> names = reader.tensors();
  for (const ParameterSpec& spec : table.specs()) {
    const bool learned = std::ranges::binary_search(names, kFirstMoment + spec.name);
    if (learned == spec.trainable) continue;
    fail_usage(reader.path().string() + ": the run so far " +
                   (learned ? "trained " : "did not train ") + spec.name + ", which " +
                   (learned ? "is frozen now" : "learns now"),
               "resume with the --train-only and --freeze of the run, or begin a new run with "
               "--init-from " +
                   reader.path().string());
  }
}

// Loads the elements that this rank keeps, one tensor at a time.
void load_tensors(CheckpointReader& reader, RunState& state, Stream& stream) {
  const ParameterTable& table = state.table();
  WorkProgress progress("loading " + reader.path().string(), table.count());
  const bool has_adapters = std::ranges::any_of(table.specs(), &ParameterSpec::is_adapter);
  std::vector<float> values;
  for (const ParameterSpec& spec : table.specs()) {
    // Whether this rank keeps any of them.
    const auto load = [&](const std::string& name, const ElementRange& kept) {
      if (kept.count == 0) return false;
      values.resize(static_cast<std::size_t>(kept.count));
      reader.load_part(slice_of(spec, table.place(), name, kept), values.data());
      return true;
    };
    if (!has_adapters && load(huggingface_name(spec.name), state.kept_weights(spec))) {
      state.set_kept_weights(spec, values.data(), stream);
    }
    progress.add(spec.size());
    if (!spec.trainable) continue;
    const ElementRange kept = state.kept_moments(spec);
    if (!load(kFirstMoment + spec.name, kept)) continue;
    state.set_kept_moments(spec, values.data(), nullptr, stream);
    load(kSecondMoment + spec.name, kept);
    check_part(
        values, spec.shape, [&](std::int64_t i) { return spec.part.index(kept.first + i); },
        is_negative, "negative", [&] { return reader.label(kSecondMoment + spec.name); },
        "resume from another checkpoint");
    state.set_kept_moments(spec, nullptr, values.data(), stream);
  }
}

RunPosition read_position(const CheckpointReader& reader) {
  const auto integer = [&](const char* key) { return reader.state(key).integer(key); };
  RunPosition position;
  position.step = reader.step();
  position.samples = integer("samples");
  position.tokens = integer("tokens");
  position.T = integer("seq_len");
  position.train = reader.state("train").text("train");
  if (integer("validation_step") >= 0) {
    position.validation = {integer("validation_step"),
                           reader.state("validation_loss").number("validation_loss")};
  }
  position.history = reader.history();
  std::int64_t best_step = -1;
  double best_loss = 0;
  std::optional<double> best_f1;
  for (const auto& [key, value] : reader.state()) {
    if (key == "best_validation_step") best_step = value.integer(key);
    if (key == "best_validation_loss") best_loss = value.number(key);
    if (key == "best_validation_macro_f1") best_f1 = value.number(key);
    if (key == "validation_macro_f1" && position.validation)
      position.validation->macro_f1 = value.number(key);
    if (key == "train_tokens") position.train_tokens = value.integer(key);
    if (key == "train_xxh3") position.train_data.hashes = value.text(key);
    if (key == "validation_xxh3") position.validation_data.hashes = value.text(key);
    if (key == "vocabulary_xxh64") position.vocabulary = value.text(key);
    if (key == kLossNotFiniteKey) position.finite_loss = !value.boolean(key);
    if (key == kProtectedKey) position.protected_checkpoint = value.text(key);
    if (key.starts_with("--")) position.flags[current_name(key)] = value;
  }
  if (best_step >= 0) position.best = {best_step, best_loss, best_f1};
  return position;
}

}  // namespace

std::string save_checkpoint(const std::filesystem::path& root, const HuggingFaceConfig& config,
                            const RunPosition& position, std::uint64_t seed, RunState& state,
                            Stream& stream, const CheckpointOptions& options) {
  if (!state.first_rank()) {
    send_tensors(state, options, config, stream);
    return (root / checkpoint_name(position.step)).string();
  }
  SaveTimes times;
  double all_ms = 0;
  std::string path;
  add_time(all_ms, [&] {
    path = write_checkpoint(root, config, position, seed, state, stream, options, times.gather_ms);
  });
  times.write_ms = all_ms - times.gather_ms;
  if (options.times != nullptr) *options.times = times;
  return path;
}

RunPosition load_checkpoint(const std::filesystem::path& path, std::uint64_t seed, RunState& state,
                            Stream& stream, std::int64_t* bytes_read) {
  CheckpointReader reader(path);
  const auto check = [&](const char* flag, const std::string& current, const std::string& saved) {
    if (current == saved) return;
    fail_usage(path.string() + " was written with " + flag + " " + saved + ", not " + current,
               "resume with the flags of the run");
  };
  check("--seed", std::to_string(seed),
        std::to_string(reader.state("seed").unsigned_integer("seed")));
  check("--dtype", dtype_name(state.dtype()), reader.state("dtype").text("dtype"));
  check_same_trainable(reader, state.table());
  load_tensors(reader, state, stream);
  OptimizerState optimizer{};
  const auto counter = [&](const char* key) {
    return static_cast<std::int32_t>(reader.state(key).integer(key));
  };
  optimizer.updates = counter("updates");
  optimizer.skipped_updates = counter("skipped");
  optimizer.consecutive_skips = counter("skipped_in_row");
  if (state.dtype() == Dtype::fp16) {
    optimizer.loss_scale = static_cast<float>(reader.state("loss_scale").number("loss_scale"));
    optimizer.loss_scale_good_steps = counter("loss_scale_good_steps");
    if (!(optimizer.loss_scale >= kMinLossScale && optimizer.loss_scale <= kMaxLossScale)) {
      fail(path.string() + ": loss_scale is " + std::to_string(optimizer.loss_scale) +
               ", not a number from 1 to 16777216",
           "resume from another checkpoint");
    }
  }
  state.set_optimizer_state(optimizer, stream);
  if (bytes_read != nullptr) *bytes_read = reader.bytes_read();
  return read_position(reader);
}

}  // namespace llmc
