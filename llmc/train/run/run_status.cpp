#include "llmc/train/run/run_status.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <ctime>
#include <exception>
#include <mutex>
#include <string_view>
#include <system_error>
#include <utility>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/base/process_clock.h"
#include "llmc/base/signal_request.h"
#include "llmc/base/signal_thread.h"
#include "llmc/base/threads.h"
#include "llmc/config/exit_code.h"

namespace llmc {

namespace {

constexpr const char *kRunning = "running", *kFinished = "finished", *kStopped = "stopped",
                     *kFailed = "failed";

// "2026-01-31T12:00:00Z"
std::string utc_text() {
  const std::time_t now = std::time(nullptr);
  std::tm time{};
  ::gmtime_r(&now, &time);
  std::array<char, 32> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &time)};
}

Json text_or_null(const std::string& text) {
  return text.empty() ? Json() : Json(text);
}

bool is_status(const std::filesystem::path& path) {
  constexpr std::uintmax_t kLargest = 1 << 20;
  if (std::filesystem::file_size(path) > kLargest) return false;
  const std::string text = read_file(path);
  try {
    const Json json = parse_json(text, path.string());
    const Json* const status = json_member(json, "status");
    constexpr std::array<std::string_view, 4> kAll = {kRunning, kFinished, kStopped, kFailed};
    return status != nullptr && status->is_string() && json.contains("step") &&
           std::ranges::find(kAll, status->text()) != kAll.end();
  } catch (const Error&) {
    return false;
  }
}

void remove_temporary_files(const std::filesystem::path& out) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(out, ignored)) {
    const std::string name = entry.path().filename().string();
    const bool is_ours = name.starts_with(std::string(kStatusFile) + std::string(kTemporaryMark));
    if (is_ours && is_temporary_name(name)) std::filesystem::remove(entry.path(), ignored);
  }
}

}  // namespace

void check_status_file(const std::filesystem::path& out) {
  const std::filesystem::path path = out / kStatusFile;
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) return;
  if (std::filesystem::is_regular_file(status) && is_status(path)) return;
  fail(path.string() + " is not the status of a run, and a run would overwrite it",
       "move it away, or give another --out");
}

// Shared with the answer to a signal, which another thread runs.
struct RunStatus::State {
  std::mutex mutex;
  std::filesystem::path out;  // empty: nothing is written
  RunProgress progress;
  std::string text;  // that rank 0 wrote last; empty: none

  // The caller holds the mutex.
  void write(const char* status, const Json& exit_code, const std::string& reason) {
    const Json json = {{"status", status},
                       {"step", progress.step},
                       {"steps", progress.steps},
                       {"seconds", std::round(1000 * seconds_since_process_start()) / 1000},
                       {"time", utc_text()},
                       {"exit_code", exit_code},
                       {"checkpoint", text_or_null(progress.checkpoint)},
                       {"reason", text_or_null(reason)}};
    constexpr int kIndent = 2;
    text = json.dump(kIndent) + "\n";
    AtomicFile file(out / kStatusFile);
    file.write(text);
    file.commit(false);  // if the machine fails now, the former status remains
  }

  // Writes the end of the run, and nothing afterwards.
  void end(const char* status, int exit_code, const std::string& reason) {
    const std::lock_guard lock(mutex);
    if (!out.empty()) write(status, exit_code, reason);
    out.clear();
  }

  // The same, unless another rank has written.
  void try_to_end(const char* status, int exit_code, const std::string& reason) noexcept {
    try {
      const std::lock_guard lock(mutex);
      if (out.empty() || text.empty() || read_file(out / kStatusFile) != text) return;
      write(status, exit_code, reason);
      out.clear();
    } catch (const std::exception&) {  // what ends the process is reported without the file
    }
  }
};

RunStatus::RunStatus(std::filesystem::path out, RunProgress progress)
    : state_(std::make_shared<State>()) {
  state_->out = std::move(out);
  state_->progress = std::move(progress);
}

RunStatus::~RunStatus() {
  if (answers_signals_) SignalRequest::set_end({});
  const std::lock_guard lock(state_->mutex);
  state_->out.clear();
}

std::string RunStatus::begin() {
  if (state_->out.empty()) return {};
  remove_temporary_files(state_->out);
  state_->write(kRunning, nullptr, "");
  answers_signals_ = true;
  SignalRequest::set_end([state = state_](int signal) {
    constexpr int kSignalCode = 128;  // of a shell
    const std::string name(signal_name(signal));
    state->try_to_end(kStopped, kSignalCode + signal, name + " ended the process at once");
  });
  return state_->text;
}

void RunStatus::join(const std::string& text) {
  const std::lock_guard lock(state_->mutex);
  state_->text = text;
}

void RunStatus::set_progress(RunProgress progress) {
  const std::lock_guard lock(state_->mutex);
  state_->progress = std::move(progress);
}

void RunStatus::finish() {
  state_->end(kFinished, kExitOk, "");
}

void RunStatus::stop(const std::string& reason) {
  state_->end(kStopped, kExitOk, reason);
}

void RunStatus::fail(int exit_code, const std::string& reason) noexcept {
  run_for(std::chrono::seconds(2),
          [state = state_, exit_code, reason] { state->try_to_end(kFailed, exit_code, reason); });
}

}  // namespace llmc
