#include <algorithm>
#include <chrono>
#include <utility>

#include "llmc/base/error.h"
#include "llmc/base/text_list.h"
#include "llmc/base/work_progress.h"
#include "llmc/io/checkpoint/element_check.h"
#include "llmc/io/checkpoint/huggingface.h"
#include "llmc/train/checkpoint/background_save.h"
#include "llmc/train/checkpoint/saved_tensors.h"

namespace llmc {

BackgroundSave::BackgroundSave(const std::filesystem::path& root, const HuggingFaceConfig& config,
                               const RunPosition& position, std::uint64_t seed, RunState& state,
                               Stream& stream, CheckpointOptions options, Exchange& exchange)
    : root_(root),
      path_(root / checkpoint_name(position.step)),
      config_(config),
      position_(position),
      seed_(seed),
      dtype_(state.dtype()),
      options_(std::move(options)),
      exchange_(exchange) {
  exchange_.together([&] {
    if (exchange_.first()) writer_.emplace(root_, checkpoint_name(position.step));
  });
  directory_ = exchange_.broadcast(writer_ ? writer_->directory().string() : "");
  optimizer_ = state.optimizer_state(stream);
  snapshot_ = std::make_unique<StateSnapshot>(state, options_, config_, directory_, stream);
  thread_ = std::thread([this] { write(); });
}

BackgroundSave::~BackgroundSave() {
  if (thread_.joinable()) thread_.join();
}

void BackgroundSave::write() {
  try {
    entries_ = snapshot_->write();
    own_ = State::written;
  } catch (...) {
    failure_ = std::current_exception();
    own_ = State::failed;
  }
}

bool BackgroundSave::is_written() {
  const std::vector<std::int64_t> all =
      exchange_.all_gather({static_cast<std::int64_t>(own_.load())});
  const auto is = [&](State state) {
    return [state](std::int64_t number) { return number == static_cast<std::int64_t>(state); };
  };
  return std::ranges::any_of(all, is(State::failed)) ||
         std::ranges::none_of(all, is(State::writing));
}

void BackgroundSave::wait() {
  WorkProgress progress("saving " + path_.string(), snapshot_->bytes());
  while (own_ == State::writing) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    progress.show(snapshot_->written());
  }
  thread_.join();
}

namespace {

// An error of a rank, as it tells the others: the kind, and the text. No error: two empty texts.
std::vector<std::string> error_texts(const std::exception_ptr& failure) {
  if (!failure) return {"", ""};
  try {
    std::rethrow_exception(failure);
  } catch (const ElementError& error) {
    return {"element", error.problem()};
  } catch (const Error& error) {
    return {"error", error.marked_text()};
  } catch (const std::exception& error) {
    return {"error", error.what()};
  }
}

}  // namespace

void BackgroundSave::finish() {
  wait();
  std::vector<std::string> own = error_texts(failure_);
  own.push_back(manifest_text({.step = 0, .state = {}, .history = {}, .files = entries_}));
  const std::vector<std::string> packed = exchange_.gather_texts(pack_texts(own));
  std::vector<std::string> entries;
  for (std::size_t rank = 0; rank < packed.size(); ++rank) {
    const std::vector<std::string> texts = unpack_texts(packed[rank]);
    if (texts[0] == "element") throw ElementError(texts[1], "");
    if (texts[0] == "error") {
      fail_together((packed.size() > 1 ? "rank " + std::to_string(rank) + ": " : "") + texts[1]);
    }
    entries.push_back(texts[2]);
  }
  exchange_.together([&] {
    if (exchange_.first()) commit(entries);
  });
  const SaveTimes& times = snapshot_->times();
  const auto longest = [&](double ms) {
    const auto all = exchange_.all_gather({static_cast<std::int64_t>(1e3 * ms)});
    return static_cast<double>(std::ranges::max(all)) / 1e3;
  };
  times_ = {longest(times.gather_ms), longest(times.copy_ms), longest(times.write_ms)};
  snapshot_.reset();
}

void BackgroundSave::commit(const std::vector<std::string>& entries) {
  writer_->text_file(kConfigName, huggingface_config_text(config_, TensorDtype::f32));
  for (const TextFile& file : options_.texts) writer_->text_file(file.name, file.text);
  if (snapshot_->plan().weight_writers().size() > 1) {
    writer_->text_file(kWeightsIndexName, weights_index_text(snapshot_->plan()));
  }
  std::vector<ManifestFile> files;
  for (const std::string& text : entries) {
    const std::vector<ManifestFile> of_rank = parse_manifest(text, "the files of a rank").files;
    files.insert(files.end(), of_rank.begin(), of_rank.end());
  }
  std::ranges::sort(files, {}, &ManifestFile::name);
  writer_->add(files);
  writer_->commit(position_.step,
                  saved_counters(root_, position_, seed_, dtype_, optimizer_, options_.only_best),
                  position_.history);
}

}  // namespace llmc
