// Accesses to the same bytes that nothing orders.
//
// Threads of a block are ordered by its barriers, and those of a warp by bar.warp.sync; shfl, mma
// and ldmatrix order nothing. Blocks are ordered only by the pattern of the last block: a barrier,
// a fence, an atomic on the same counter, and a fence. A store that changes no byte counts as no
// access.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace llmc_ptx {

// The shared memory of a block.
class SharedRaces {
 public:
  SharedRaces(std::int64_t bytes, int warps)
      : bytes_(static_cast<std::size_t>(bytes)), warp_times_(static_cast<std::size_t>(warps)) {}

  void start_block() { block_time_ = ++time_; }
  void block_barrier() { block_time_ = ++time_; }
  void warp_barrier(int warp) { warp_times_[static_cast<std::size_t>(warp)] = ++time_; }

  // Each returns the other access if a race is found, such as "a write of thread 7".
  std::optional<std::string> read(int thread, std::int64_t offset, std::int64_t count);
  std::optional<std::string> write(int thread, std::int64_t offset, std::int64_t count);

 private:
  static constexpr int kNone = -1,
                       kSeveralWarps = -2;  // kSeveral - warp: several threads of a warp
  static constexpr int kSeveral = -3;

  struct Byte {
    std::uint64_t written = 0, read = 0;  // times
    int writer = kNone, reader = kNone;   // threads
  };

  bool is_ordered(std::uint64_t time, int warp, int thread) const;
  bool conflicts_with_readers(const Byte& byte, int thread) const;

  std::uint64_t time_ = 0, block_time_ = 0;
  std::vector<Byte> bytes_;
  std::vector<std::uint64_t> warp_times_;
};

enum class Access { read, write, atomic };

// Global memory, in one launch. Blocks run one after the other. The barriers of a block cut its run
// into epochs. A fence of a warp covers what its block did in earlier epochs, and what the warp did
// itself.
class GlobalRaces {
 public:
  void start_block(std::int64_t block, int warps);
  void block_barrier() { ++epoch_; }
  void fence(int warp);

  // The access of another block with which this one is a race.
  std::optional<std::string> note(Access access, int warp, std::uint64_t address,
                                  std::int64_t count);

  // Whether a block wrote one of these bytes, also by an atomic; or, if `reads` counts, read it.
  bool touched(std::uint64_t address, std::int64_t count, bool reads) const;
  // A block allowed the next launch before it had waited for the launches before.
  void allow_next_early() { allows_next_early_ = true; }
  bool allows_next_early() const { return allows_next_early_; }

 private:
  static constexpr std::int64_t kNone = -1, kSeveral = -2;

  // Something that a warp of a block did, or what a fence of it covered.
  struct Moment {
    std::int64_t block = kNone;
    int epoch = 0, warp = 0;
  };
  struct Byte {
    Moment written, read;
    std::int64_t counted = kNone;  // the block of the last atomic
  };
  static constexpr std::uint64_t kPage = 256;
  using Page = std::array<Byte, kPage>;
  using Moments = std::unordered_map<std::int64_t, Moment>;  // by block

  bool sees(const Moment& moment) const;
  // The access of another block with which an access to the byte is a race.
  std::optional<std::string> conflict(const Byte& byte, Access access) const;
  // Other blocks that do atomics at the address later see what the warp's fences covered.
  void publish(int warp, std::uint64_t address);
  Byte& byte_at(std::uint64_t address);

  std::int64_t block_ = kNone;
  int epoch_ = 0;
  std::unordered_map<std::uint64_t, std::unique_ptr<Page>> pages_;
  std::uint64_t last_number_ = 0;  // of the page of the last access, which is often the next one's
  Page* last_page_ = nullptr;
  std::unordered_map<std::uint64_t, Moments> published_;  // by counter
  Moments seen_, arriving_;
  std::vector<int> fenced_;  // by warp: the epoch of its last fence; 0: none
  bool allows_next_early_ = false;
};

// The launches of a stream that may still run when a launch begins that overlaps them. Until it
// waits for them, what they write is unknown to it.
class EarlierLaunches {
 public:
  // After a launch. One that does not overlap begins when all others have ended.
  void add(std::string kernel, std::shared_ptr<const GlobalRaces> launch, bool overlapped);
  // The conflict of an access before the wait, such as "a write of KERNEL".
  std::optional<std::string> conflict(Access access, std::uint64_t address,
                                      std::int64_t count) const;

 private:
  struct Entry {
    std::string kernel;
    std::shared_ptr<const GlobalRaces> launch;
  };
  std::vector<Entry> launches_;
};

}  // namespace llmc_ptx
