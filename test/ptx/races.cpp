#include "test/ptx/races.h"

#include <utility>

#include "test/ptx/program.h"

namespace llmc_ptx {

namespace {

std::string access_of(const char* what, int thread) {
  if (thread >= 0) return std::string("a ") + what + " of thread " + std::to_string(thread);
  return std::string(what) + "s of several threads";
}

}  // namespace

bool SharedRaces::is_ordered(std::uint64_t time, int warp, int thread) const {
  if (time < block_time_) return true;
  const int own = thread / kLanes;
  return warp == own && time < warp_times_[static_cast<std::size_t>(own)];
}

bool SharedRaces::conflicts_with_readers(const Byte& byte, int thread) const {
  if (byte.reader == kNone || byte.reader == thread) return false;
  const int warp = byte.reader >= 0               ? byte.reader / kLanes
                   : byte.reader == kSeveralWarps ? -1
                                                  : kSeveral - byte.reader;
  return !is_ordered(byte.read, warp, thread);
}

std::optional<std::string> SharedRaces::read(int thread, std::int64_t offset, std::int64_t count) {
  const int warp = thread / kLanes;
  for (std::int64_t i = offset; i < offset + count; ++i) {
    Byte& byte = bytes_[static_cast<std::size_t>(i)];
    if (byte.writer != kNone && byte.writer != thread &&
        !is_ordered(byte.written, byte.writer / kLanes, thread)) {
      return access_of("write", byte.writer);
    }
    // An access that is ordered after this read is also ordered after the reads before it.
    if (!conflicts_with_readers(byte, thread)) {
      byte.reader = thread;
    } else if (byte.reader != kSeveralWarps) {
      const int other = byte.reader >= 0 ? byte.reader / kLanes : kSeveral - byte.reader;
      byte.reader = other == warp ? kSeveral - warp : kSeveralWarps;
    }
    byte.read = time_;
  }
  return std::nullopt;
}

std::optional<std::string> SharedRaces::write(int thread, std::int64_t offset, std::int64_t count) {
  for (std::int64_t i = offset; i < offset + count; ++i) {
    Byte& byte = bytes_[static_cast<std::size_t>(i)];
    if (byte.writer != kNone && byte.writer != thread &&
        !is_ordered(byte.written, byte.writer / kLanes, thread)) {
      return access_of("write", byte.writer);
    }
    if (conflicts_with_readers(byte, thread)) return access_of("read", byte.reader);
    byte.writer = thread;
    byte.written = time_;
    byte.reader = kNone;
  }
  return std::nullopt;
}

void GlobalRaces::start_block(std::int64_t block, int warps) {
  block_ = block;
  epoch_ = 1;
  seen_.clear();
  arriving_.clear();
  fenced_.assign(static_cast<std::size_t>(warps), 0);
}

void GlobalRaces::fence(int warp) {
  fenced_[static_cast<std::size_t>(warp)] = epoch_;
  for (const auto& [block, moment] : arriving_) seen_[block] = moment;
  arriving_.clear();
}

bool GlobalRaces::sees(const Moment& moment) const {
  if (moment.block == kNone || moment.block == block_) return true;
  const auto seen = seen_.find(moment.block);
  if (seen == seen_.end()) return false;
  return moment.epoch < seen->second.epoch ||
         (moment.epoch == seen->second.epoch && moment.warp == seen->second.warp);
}

GlobalRaces::Byte& GlobalRaces::byte_at(std::uint64_t address) {
  const std::uint64_t number = address / kPage;
  if (last_page_ == nullptr || number != last_number_) {
    std::unique_ptr<Page>& page = pages_[number];
    if (page == nullptr) page = std::make_unique<Page>();
    last_page_ = page.get();
    last_number_ = number;
  }
  return (*last_page_)[address % kPage];
}

// The blocks of atomics come one after the other. So the one that has the last atomic sees those of
// all others.
std::optional<std::string> GlobalRaces::conflict(const Byte& byte, Access access) const {
  if (!sees(byte.written)) return "a write of block " + std::to_string(byte.written.block);
  if (access != Access::atomic && byte.counted != kNone && byte.counted != block_)
    return "an atomic of block " + std::to_string(byte.counted);
  if (access == Access::read) return std::nullopt;
  if (byte.read.block == kSeveral) return "reads of several blocks";
  if (!sees(byte.read)) return "a read of block " + std::to_string(byte.read.block);
  return std::nullopt;
}

void GlobalRaces::publish(int warp, std::uint64_t address) {
  Moments& published = published_[address];
  for (const auto& [block, moment] : published) arriving_[block] = moment;
  // Without a fence that is epoch 0, in which nothing happened.
  published[block_] = {block_, fenced_[static_cast<std::size_t>(warp)], warp};
}

std::optional<std::string> GlobalRaces::note(Access access, int warp, std::uint64_t address,
                                             std::int64_t count) {
  for (std::uint64_t at = address; at < address + static_cast<std::uint64_t>(count); ++at) {
    Byte& byte = byte_at(at);
    if (auto other = conflict(byte, access)) return other;
    if (access == Access::atomic) {
      byte.counted = block_;
    } else if (access == Access::write) {
      byte.written = {block_, epoch_, warp};
    } else {
      const bool is_alone = byte.read.block == kNone || byte.read.block == block_;
      byte.read = {is_alone ? block_ : kSeveral, epoch_, warp};
    }
  }
  if (access == Access::atomic) publish(warp, address);
  return std::nullopt;
}

bool GlobalRaces::touched(std::uint64_t address, std::int64_t count, bool reads) const {
  for (std::uint64_t at = address; at < address + static_cast<std::uint64_t>(count); ++at) {
    const auto page = pages_.find(at / kPage);
    if (page == pages_.end()) continue;
    const Byte& byte = (*page->second)[at % kPage];
    if (byte.written.block != kNone || byte.counted != kNone) return true;
    if (reads && byte.read.block != kNone) return true;
  }
  return false;
}

void EarlierLaunches::add(std::string kernel, std::shared_ptr<const GlobalRaces> launch,
                          bool overlapped) {
  if (!overlapped || !launch->allows_next_early()) launches_.clear();
  launches_.push_back({std::move(kernel), std::move(launch)});
}

std::optional<std::string> EarlierLaunches::conflict(Access access, std::uint64_t address,
                                                     std::int64_t count) const {
  for (const Entry& entry : launches_) {
    if (entry.launch->touched(address, count, false)) return "a write of " + entry.kernel;
    if (access != Access::read && entry.launch->touched(address, count, true))
      return "a read of " + entry.kernel;
  }
  return std::nullopt;
}

}  // namespace llmc_ptx
