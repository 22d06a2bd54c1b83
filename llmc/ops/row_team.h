// Teams of threads that process rows, for LayerNorm: a warp or a block of a GPU, or one thread of
// the host executor.
#pragma once

#include <cstdint>
#include <string>

#include "llmc/device/device.h"
#include "llmc/device/floats.h"
#include "llmc/ops/checks.h"

namespace llmc {

inline constexpr std::int64_t kLayerNormMaxChannels = 8192;

// The threads that process a row together.
enum class RowTeamKind { thread, warp, block };

// Layout of a row in its team. Chunk i of thread r in a team of R threads is the vector of kVector
// channels that starts at channel (i*R + r) * kVector. Each thread of a warp or block holds up to
// kMaxChunks chunks in registers; a team of one thread holds none and has no limit.
template <RowTeamKind kKind, int kVectorSize, int kMaxChunksPerThread = 0>
struct RowLayout {
  static constexpr RowTeamKind kTeam = kKind;
  static constexpr bool kOneThread = kTeam == RowTeamKind::thread;
  static constexpr int kVector = kVectorSize;
  static constexpr int kMaxChunks = kMaxChunksPerThread;
  static constexpr int kTeamsPerBlock = kTeam == RowTeamKind::warp ? 4 : 1;
  // Rows of a team in the forward pass. A block of one thread gets several, because a block costs
  // as much as a row of a small model.
  static constexpr int kRowsPerTeam = kOneThread ? 8 : 1;
  static constexpr int kMaxThreads = kOneThread ? 1 : kTeam == RowTeamKind::warp ? 128 : 256;

  // Threads per block for rows of C channels.
  static int block_threads(std::int64_t C) {
    if constexpr (kTeam == RowTeamKind::block) {
      return static_cast<int>(round_up(ceil_div(C / kVector, kMaxChunks), 32));
    } else {
      return kMaxThreads;
    }
  }
};

// The calling thread's place in its team.
template <class Layout>
class RowTeam {
 public:
  // A team of one thread or of a warp needs no shared memory.
  __device__ RowTeam() { static_assert(Layout::kTeam != RowTeamKind::block); }
  __device__ explicit RowTeam(SharedMemory& shared) {
    if constexpr (Layout::kTeam == RowTeamKind::block) scratch_ = shared.take<float>(kBlockScratch);
  }
  // Number of this team in the grid, and the number of teams.
  __device__ std::int64_t index() const {
    return block_x() * Layout::kTeamsPerBlock +
           (Layout::kTeam == RowTeamKind::warp ? warp_index() : 0);
  }
  __device__ std::int64_t count() const { return grid_x() * Layout::kTeamsPerBlock; }
  __device__ bool is_leader() const { return member_index() == 0; }

  // Number of chunks per thread of a row of C channels: an upper bound that a GPU compiler can
  // unroll. If has_chunk(i) is false, this thread has no chunk i.
  __device__ int chunks(std::int64_t C) const {
    return Layout::kOneThread ? static_cast<int>(C / Layout::kVector) : Layout::kMaxChunks;
  }
  __device__ bool has_chunk(int i, std::int64_t C) const {
    return Layout::kOneThread || channel(i) < C;
  }
  // First channel of this thread's chunk i.
  __device__ std::int64_t channel(int i) const {
    return (static_cast<std::int64_t>(i) * size() + member_index()) * Layout::kVector;
  }
  __device__ float sum(float x) const {
    if constexpr (Layout::kTeam == RowTeamKind::thread) {
      return x;
    } else if constexpr (Layout::kTeam == RowTeamKind::warp) {
      return warp_sum(x);
    } else {
      return block_sum(x, scratch_);
    }
  }

  static std::size_t shared_bytes() {
    return Layout::kTeam == RowTeamKind::block ? SharedLayout().add<float>(kBlockScratch).bytes()
                                               : 0;
  }

 private:
  __device__ int size() const {
    if constexpr (Layout::kTeam == RowTeamKind::thread) return 1;
    return Layout::kTeam == RowTeamKind::block ? block_size() : 32;
  }
  __device__ int member_index() const {
    if constexpr (Layout::kTeam == RowTeamKind::thread) return 0;
    return Layout::kTeam == RowTeamKind::block ? thread_index() : lane();
  }
  float* scratch_ = nullptr;
};

// A team's row of C numbers. On a GPU, each thread's chunks are in registers, and all loads come
// before the first store: the compiler must assume that a store changes the data of later loads, so
// those loads would wait for it. A team of one thread reads chunks from memory when it needs them.
template <class T, class Layout>
class TeamRow {
 public:
  // If row is null, all numbers are 0.
  __device__ __forceinline__ TeamRow(const T* row, const RowTeam<Layout>& team, std::int64_t C) {
    if constexpr (Layout::kOneThread) {
      row_ = row;
    } else {
      for (int i = 0; i < Layout::kMaxChunks; ++i) {
        if (row != nullptr && team.has_chunk(i, C))
          chunks_[i] = load_vec<Layout::kVector>(row + team.channel(i));
      }
    }
  }

  __device__ __forceinline__ Floats<Layout::kVector> chunk(int i) const {
    if constexpr (Layout::kOneThread) {
      if (row_ == nullptr) return Floats<Layout::kVector>();
      return load_floats<Layout::kVector>(row_ + i * Layout::kVector);
    } else {
      return to_floats(chunks_[i]);
    }
  }

  // Adds another row, rounds the sums to T and writes them to `sums`. From then on, this row is
  // `sums`.
  __device__ __forceinline__ void add(const TeamRow& addend, T* sums, const RowTeam<Layout>& team,
                                      std::int64_t C) {
    for (int i = 0; i < team.chunks(C); ++i) {
      if (!team.has_chunk(i, C)) continue;
      const Floats<Layout::kVector> sum = chunk(i) + addend.chunk(i);
      if constexpr (Layout::kOneThread) {
        store_floats(sums + team.channel(i), sum);
      } else {
        chunks_[i] = from_floats<T>(sum);
        store_vec(sums + team.channel(i), chunks_[i]);
      }
    }
    if constexpr (Layout::kOneThread) row_ = sums;
  }

 private:
  const T* row_ = nullptr;  // only of a team of one thread
  Vec<T, Layout::kVector>
      chunks_[Layout::kOneThread ? 1 : Layout::kMaxChunks]{};  // only of a warp or a block
};

// Calls f with the layout for rows of C channels.
//
// GPU: a run-time test skips unused vectors, so five layouts serve all C; 768, 1024 and 1280 (GPT-2
// small to large) fit exactly. More than 1024 channels per warp would need so many registers that
// too few warps remain to hide memory latency.
//
// Host: wide vectors make many independent chains of additions, but C need only be a multiple of 8.
template <class T, class F>
void dispatch_row_layout(const char* op, std::int64_t C, F&& f) {
  require_vector_rows(op, C);
  require(C <= kLayerNormMaxChannels, std::string(op) + ": " + std::to_string(C) + " channels",
          "use at most 8192 channels");
  if constexpr (kOneThreadBlocks) {
    constexpr int kWide = 16;
    if (C % kWide == 0) return f(RowLayout<RowTeamKind::thread, kWide>());
    f(RowLayout<RowTeamKind::thread, 8>());
  } else {
    constexpr int N = kVecSize<T>;
    constexpr int k = 8 / N;  // vectors that hold 8 channels
    if (C <= 256) return f(RowLayout<RowTeamKind::warp, N, k>());
    if (C <= 768) return f(RowLayout<RowTeamKind::warp, N, 3 * k>());
    if (C <= 1024) return f(RowLayout<RowTeamKind::warp, N, 4 * k>());
    if (C <= 2048) return f(RowLayout<RowTeamKind::block, N, k>());
    f(RowLayout<RowTeamKind::block, N, 4 * k>());
  }
}

}  // namespace llmc
