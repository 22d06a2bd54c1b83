// Collectives between GPUs by NCCL, without a copy to the host.
//
// - The communicator is non-blocking: a call of NCCL that is not complete returns ncclInProgress,
//   and this class polls until it is. No wait is endless: after an error, or after a deadline, the
//   communicator is aborted and the error names the group, the rank and the call.
// - An all-reduce is ncclAllReduce. Each element is reduced once and then copied to all ranks, so
//   every rank has the same bits, as after a reduce-scatter and an all-gather.
// - NCCL chooses the order of additions, and adds bf16 and fp16 in their own precision. Sums can
//   differ from those of the other backends in the last bits.
#pragma once

#include <nccl.h>

#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/notice.h"
#include "llmc/base/number_text.h"
#include "llmc/comm/communicator.h"
#include "llmc/comm/poll_pause.h"
#include "llmc/device/memory.h"
#include "llmc/device/properties.h"

namespace llmc {

static_assert(NCCL_VERSION_CODE >= NCCL_VERSION(2, 14, 0),
              "non-blocking communicators need NCCL 2.14 or later");

class NcclCommunicator;

// State that the communicators of a world share.
struct NcclShared {
  std::chrono::milliseconds deadline = std::chrono::minutes(10);  // of one wait
  // Whether a control thread looks after calls: then they have no deadline of their own.
  bool is_watched = false;
  std::function<void()> check_ranks = [] {};  // throws if another rank is known to have failed
  std::vector<NcclCommunicator*> open;        // communicators without an error
  std::recursive_mutex mutex;  // held in each call of NCCL: another thread may abort them all
};

class NcclCommunicator final : public Communicator {
 public:
  // All ranks of the group call this with the same id. The communicator uses the current GPU.
  NcclCommunicator(std::string name, int rank, int ranks, const ncclUniqueId& id,
                   std::shared_ptr<NcclShared> shared = std::make_shared<NcclShared>())
      : Communicator(std::move(name), rank, ranks), shared_(std::move(shared)) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    const std::string call = "ncclCommInitRankConfig";
    try {
      complete(call, locked([&] {
                 shared_->open.push_back(this);
                 return ncclCommInitRankConfig(&comm_, ranks, id, rank, &config);
               }));
    } catch (...) {
      close();
      throw;
    }
  }

  // Completes all calls and frees the communicator; all ranks of the group do this. If an exception
  // leaves the scope of the communicator, the other ranks may never do it: then it is aborted.
  ~NcclCommunicator() override {
    try {
      if (std::uncaught_exceptions() > exceptions_) abort("an exception ended its use");
      if (is_open()) {
        complete("ncclCommFinalize", locked([this] {
                   return comm_ == nullptr ? ncclSuccess : ncclCommFinalize(comm_);
                 }));
      }
      locked([this] {
        return comm_ == nullptr ? ncclSuccess : ncclCommDestroy(std::exchange(comm_, nullptr));
      });
    } catch (const std::exception& error) {
      Notice::warn(error.what());
    }
    close();
  }

  bool occupies_host() const override { return false; }

  void wait(Stream& stream) override {
    wait_until("the work of a stream", [&] { return stream.idle(); });
  }

  // Aborts the communicator, for a rank that waits in it or comes later. Any thread may call it.
  void abort(const std::string& reason) {
    const std::lock_guard lock(shared_->mutex);
    if (comm_ == nullptr) return;
    failure_ = reason;
    ncclCommAbort(std::exchange(comm_, nullptr));
    close();
  }

  // Polls done() and the communicators of the world until done() is true; throws if a rank has
  // failed or the deadline has passed. `what` is waited for.
  template <class Done>
  void wait_until(const std::string& what, const Done& done) {
    require_open(what);
    poll(what, shared_->is_watched, [&] {
      const bool is_done = done();
      for (NcclCommunicator* communicator : open_ones()) communicator->ready(what);
      return is_done;
    });
  }

 private:
  static ncclDataType_t type_of(Element element) {
    constexpr ncclDataType_t kTypes[] = {ncclFloat32, ncclBfloat16, ncclFloat16, ncclInt64,
                                         ncclUint8};
    return kTypes[static_cast<int>(element)];
  }
  std::size_t piece_of(const CommCall& call) const {
    return static_cast<std::size_t>(call.count / ranks());
  }

  void do_all_reduce(const CommCall& call, void* values, Stream& stream) override {
    run("ncclAllReduce", call, stream, [&] {
      return ncclAllReduce(values, values, static_cast<std::size_t>(call.count),
                           type_of(call.element), ncclSum, comm_, native_stream(stream));
    });
  }
  void do_reduce_scatter(const CommCall& call, void* out, const void* in, Stream& stream) override {
    run("ncclReduceScatter", call, stream, [&] {
      return ncclReduceScatter(in, out, piece_of(call), type_of(call.element), ncclSum, comm_,
                               native_stream(stream));
    });
  }
  void do_all_gather(const CommCall& call, void* out, const void* in, Stream& stream) override {
    run("ncclAllGather", call, stream, [&] {
      return ncclAllGather(in, out, piece_of(call), type_of(call.element), comm_,
                           native_stream(stream));
    });
  }
  void do_broadcast(const CommCall& call, void* values, Stream& stream) override {
    run("ncclBroadcast", call, stream, [&] {
      return ncclBroadcast(values, values, static_cast<std::size_t>(call.count),
                           type_of(call.element), static_cast<int>(call.root), comm_,
                           native_stream(stream));
    });
  }
  // NCCL has no barrier: an all-reduce of one element completes when all ranks have reached it.
  void do_barrier(const CommCall& call, Stream& stream) override {
    fill_zero(barrier_.data(), 1, stream);
    run("ncclAllReduce", call, stream, [&] {
      return ncclAllReduce(barrier_.data(), barrier_.data(), 1, ncclFloat32, ncclSum, comm_,
                           native_stream(stream));
    });
  }
  // An empty message moves nothing.
  void do_send(const CommCall& call, const void* values, int to, Stream& stream) override {
    if (call.count == 0) return;
    run("ncclSend", call, stream, [&] {
      return ncclSend(values, static_cast<std::size_t>(call.count), type_of(call.element), to,
                      comm_, native_stream(stream));
    });
  }
  // ncclSend returns when the message is in the stream. Only the first message between two ranks
  // makes the host wait for the receiver's call, because it connects them.
  void do_post(const CommCall& call, const void* values, int to, Stream& stream) override {
    do_send(call, values, to, stream);
  }
  void do_receive(const CommCall& call, void* values, int from, Stream& stream) override {
    if (call.count == 0) return;
    run("ncclRecv", call, stream, [&] {
      return ncclRecv(values, static_cast<std::size_t>(call.count), type_of(call.element), from,
                      comm_, native_stream(stream));
    });
  }

  // Starts a call of NCCL and returns when it is in the stream. The stream's work comes later.
  template <class Start>
  void run(const std::string& function, const CommCall& call, Stream& stream, const Start& start) {
    const std::string text = function + " (" + call.text() + ")";
    const ncclResult_t status = locked([&] {
      require_open(text);
      return start();
    });
    if (status != ncclSuccess && status != ncclInProgress) fail_with(text, status);
    if (status == ncclInProgress) poll(text, shared_->is_watched, [&] { return ready(text); });
    log_query(stream);
  }

  // The control thread sees by an event that the call is complete.
  void log_query(Stream& stream) {
    if (log() == nullptr) return;
    const auto event = std::make_shared<Event>();
    event->record(stream);
    log()->set_query([event, gpu = gpu_] { return event->has_passed(gpu); });
  }

  // Polls until a call that returned `status` is complete.
  void complete(const std::string& call, ncclResult_t status) {
    if (status != ncclSuccess && status != ncclInProgress) fail_with(call, status);
    if (status == ncclInProgress) poll(call, false, [&] { return ready(call); });
  }

  // `is_watched`: the wait has no deadline of its own.
  template <class Done>
  void poll(const std::string& call, bool is_watched, const Done& done) {
    const auto end = std::chrono::steady_clock::now() + shared_->deadline;
    for (PollPause pause; !done(); pause.next()) {
      try {
        shared_->check_ranks();
      } catch (const std::exception& error) {
        abort_and_fail(call, error.what());
      }
      if (is_watched || std::chrono::steady_clock::now() < end) continue;
      const double seconds = std::chrono::duration<double>(shared_->deadline).count();
      abort_and_fail(call, "not complete after " + number_text("%g", seconds) +
                               " s; another rank has ended or makes another call");
    }
  }

  // Whether the communicator is ready for the next call; throws if NCCL reports an error.
  bool ready(const std::string& call) {
    const std::lock_guard lock(shared_->mutex);
    require_open(call);
    ncclResult_t state = ncclInProgress;
    const ncclResult_t status = ncclCommGetAsyncError(comm_, &state);
    if (status != ncclSuccess) state = status;
    if (state != ncclSuccess && state != ncclInProgress) fail_with(call, state);
    return state == ncclSuccess;
  }

  [[noreturn]] void fail_with(const std::string& call, ncclResult_t status) {
    const std::lock_guard lock(shared_->mutex);
    require_open(call);
    std::string text = ncclGetErrorString(status);
    const char* const detail = ncclGetLastError(comm_);
    if (detail != nullptr && *detail != '\0') text += std::string(": ") + detail;
    abort_and_fail(call, text);
  }

  // Aborts all communicators of the world: kernels of any of them may wait for the failed rank, and
  // with them every stream and the memory that they use.
  [[noreturn]] void abort_and_fail(const std::string& call, const std::string& reason) {
    const std::string text = place() + ": " + call + ": " + reason;
    abort(text);
    for (NcclCommunicator* other : open_ones()) other->abort(text);
    fail(text);
  }

  void close() {
    const std::lock_guard lock(shared_->mutex);
    std::erase(shared_->open, this);
  }

  template <class Call>
  ncclResult_t locked(const Call& call) {
    const std::lock_guard lock(shared_->mutex);
    return call();
  }
  bool is_open() const {
    const std::lock_guard lock(shared_->mutex);
    return comm_ != nullptr;
  }
  std::vector<NcclCommunicator*> open_ones() const {
    const std::lock_guard lock(shared_->mutex);
    return shared_->open;
  }

  void require_open(const std::string& call) const {
    if (is_open()) return;
    fail(place() + ": " + call + " after the communicator was aborted: " + failure_);
  }

  // "group 'shard', rank 1 of 4"
  std::string place() const {
    return "group '" + name() + "', rank " + std::to_string(rank()) + " of " +
           std::to_string(ranks());
  }

  std::shared_ptr<NcclShared> shared_;
  int exceptions_ = std::uncaught_exceptions();  // when the communicator was made
  ncclComm_t comm_ = nullptr;
  std::string failure_ = "NCCL made none";
  int gpu_ = current_gpu();
  Buffer<float> barrier_{1};
};

}  // namespace llmc
