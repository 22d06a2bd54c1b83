#include "llmc/device/host/stream.h"

#include <string>

#include "llmc/base/error.h"
#include "llmc/device/host/guard.h"
#include "llmc/device/host/workers.h"

namespace llmc {

namespace host {

StreamContext::StreamContext() {
  // Create the pool from the host context: TSan orders every later user after the creator, so no
  // stream may be the creator.
  workers();
  TsanIgnoreScope bookkeeping;
  fiber_ = std::make_unique<Fiber>(&StreamContext::serve, kBytes, 0);
  fiber_->set_name("a stream");
  block_ = std::make_unique<Block>();
}

StreamContext::~StreamContext() {
  TsanIgnoreScope bookkeeping;
  fiber_.reset();
  block_.reset();
}

StreamContext*& StreamContext::current() {
  static thread_local StreamContext* context = nullptr;
  return context;
}

StreamContext& StreamContext::current_unordered() {
  TsanIgnoreScope bookkeeping;
  return *current();
}

void StreamContext::serve() {
  StreamContext& self = current_unordered();
  for (;;) {
    self.call();
    TsanIgnoreScope bookkeeping;
    Fiber::switch_to(*self.fiber_, self.caller_);
  }
}

void StreamContext::call() {
  try {
    call_(closure_);
  } catch (...) {
    TsanIgnoreScope bookkeeping;
    error_ = std::current_exception();
  }
}

std::unique_ptr<StreamContext> StreamContextPool::take() {
  TsanIgnoreScope bookkeeping;
  {
    StreamContextPool& pool = instance();
    const std::lock_guard lock(pool.mutex_);
    if (!pool.idle_.empty()) {
      std::unique_ptr<StreamContext> context = std::move(pool.idle_.back());
      pool.idle_.pop_back();
      return context;
    }
  }
  return std::make_unique<StreamContext>();
}

void StreamContextPool::recycle(std::unique_ptr<StreamContext> context) {
  TsanIgnoreScope bookkeeping;
  StreamContextPool& pool = instance();
  const std::lock_guard lock(pool.mutex_);
  pool.idle_.push_back(std::move(context));
}

StreamContextPool::~StreamContextPool() {
  TsanIgnoreScope bookkeeping;
  idle_.clear();
}

StreamContextPool& StreamContextPool::instance() {
  static StreamContextPool pool;
  return pool;
}

}  // namespace host

Stream::Stream() {
  if (host::kThreadSanitizer) context_ = host::StreamContextPool::take();
  if (host::is_guarded()) late_work_ = host::LateWork::create();
}

Stream::~Stream() {
  if (late_work_) late_work_->run();
  if constexpr (kGpuKernels) host::note_end_of_launches(this);
  host::TsanIgnoreScope bookkeeping;
  if (host::kThreadSanitizer && idle_) host::StreamContextPool::recycle(std::move(context_));
  context_.reset();
}

void Stream::synchronize() {
  require_not_recording("the host cannot wait for a stream");
  if (late_work_) late_work_->wait();
  host::tsan_acquire(&finished_);
  if constexpr (kGpuKernels) host::note_end_of_launches(this);
  idle_ = true;
}

bool Stream::idle() {
  require_not_recording("the host cannot query a stream");
  const bool was_done = !late_work_ || late_work_->is_done();
  synchronize();
  return was_done;
}

void Stream::defer(std::function<void(Stream&)> part) {
  if (recording_ != nullptr) {
    recording_->push_back(std::move(part));
  } else {
    late_work_->submit(std::move(part));
  }
}

void Stream::require_not_recording(const char* what) const {
  require(recording_ == nullptr, std::string(what) + " while a graph records it");
}

void* Stream::device_token() {
  static char token;
  return &token;
}

Stream::Finish::~Finish() {
  for (void* token : {finished, device_token()}) {
    host::tsan_release(token);
    block.publish(token);
  }
}

void Event::record(Stream& stream) {
  stream.require_not_recording("an event cannot be recorded on a stream");
  if (stream.late_work_) {
    late_point_ = stream.late_work_->mark();
    return;
  }
  stream.run([this] {
    host::tsan_release(&token_);
    host::TsanIgnoreScope bookkeeping;
    time_ = std::chrono::steady_clock::now();
  });
}

void Event::synchronize() {
  if (late_point_) late_point_->wait();
  host::tsan_acquire(&token_);
}

std::chrono::steady_clock::time_point Event::time() const {
  return late_point_ ? late_point_->time() : time_;
}

void Stream::wait(const Event& event) {
  require_not_recording("a stream cannot wait for an event");
  if (late_work_) {
    const auto point = event.late_point_;
    if (point) late_work_->submit([point](Stream&) { point->wait(); });
    return;
  }
  run([&event] { host::tsan_acquire(&event.token_); });
}

}  // namespace llmc
