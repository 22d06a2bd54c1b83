// Rate of the transfers of --offload KIND=DIR next to plain direct transfers of the same block size
// by one thread, in turns: a disk's speed changes by the second.
//
//     make build/host/bench_disk
//     build/host/bench_disk DIRECTORY [MEBIBYTES [ROUNDS]]     (256 and 15 by default)
//
// On the host target device memory is host memory, so both move bytes between it and the disk; ours
// also copies them.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include "llmc/base/aligned_buffer.h"
#include "llmc/base/scratch_file.h"
#include "llmc/base/signal_request.h"
#include "llmc/base/standard_output.h"
#include "llmc/device/device.h"
#include "llmc/offload/disk_pieces.h"
#include "llmc/offload/disk_store.h"
#include "llmc/offload/transfers.h"

namespace {

using namespace llmc;

template <class Action>
double gigabytes_per_second(std::int64_t bytes, const Action& action) {
  const auto start = std::chrono::steady_clock::now();
  action();
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
  return static_cast<double>(bytes) / 1e9 / time.count();
}

// Whole blocks, one after the other, by the calling thread, directly between the disk and the
// array.
class PlainFile {
 public:
  PlainFile(const std::string& directory, std::int64_t bytes)
      : file_(directory, bytes), array_(bytes) {
    std::ranges::fill(array_.bytes(), std::byte{});
  }

  bool is_direct() const { return file_.is_direct(); }
  void write() {
    for_each_block([&](std::int64_t at, std::span<std::byte> block) { file_.write(at, block); });
  }
  void read() {
    for_each_block([&](std::int64_t at, std::span<std::byte> block) { file_.read(at, block); });
  }

 private:
  template <class Each>
  void for_each_block(const Each& each) {
    for (std::int64_t at = 0; at < file_.size(); at += DiskPieces::kBytes) {
      each(at, array_.bytes(at, DiskPieces::kBytes));
    }
  }

  ScratchFile file_;
  AlignedBuffer array_;
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

struct Rates {
  std::vector<double> plain, ours;

  void print(const char* direction) const {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < plain.size(); ++i) ratios.push_back(ours[i] / plain[i]);
    std::printf(
        "%-6s plain %6.3f GB/s, ours %6.3f GB/s; ratio %.2f, %.2f to %.2f over the rounds\n",
        direction, median(plain), median(ours), median(ratios), *std::ranges::min_element(ratios),
        *std::ranges::max_element(ratios));
  }
};

void measure(const std::string& directory, std::int64_t bytes, int rounds) {
  PlainFile plain(directory, bytes);
  Transfers transfers;
  DiskStore store(directory, transfers);
  store.allocate(bytes);
  Buffer<std::byte> device(bytes);
  Rates writes, reads;
  const auto ours = [&](Rates& rates, const auto& action) {
    rates.ours.push_back(gigabytes_per_second(bytes, [&] {
      transfers.submit(action);
      transfers.synchronize();
    }));
  };
  transfers.submit([&](Stream& stream) { fill_zero(device.data(), bytes, stream); });
  for (int round = -1; round < rounds; ++round) {  // the first one is not counted
    if (round == 0) writes = reads = {};
    writes.plain.push_back(gigabytes_per_second(bytes, [&] { plain.write(); }));
    ours(writes, [&](Stream& stream) { store.write(0, device.data(), bytes, stream); });
    reads.plain.push_back(gigabytes_per_second(bytes, [&] { plain.read(); }));
    ours(reads, [&](Stream& stream) { store.read(device.data(), 0, bytes, stream); });
  }
  std::printf("%s: %lld MiB in blocks of %lld MiB, %s, %d rounds\n", directory.c_str(),
              static_cast<long long>(bytes >> 20), static_cast<long long>(DiskPieces::kBytes >> 20),
              plain.is_direct() ? "direct" : "through the page cache", rounds);
  writes.print("write");
  reads.print("read");
}

}  // namespace

int main(int count, char** arguments) {
  SignalRequest::start_thread("bench_disk");
  const std::int64_t mebibytes = count > 2 ? std::atoll(arguments[2]) : 256;
  const int rounds = count > 3 ? std::atoi(arguments[3]) : 15;
  if (count < 2 || count > 4 || mebibytes < 4 || mebibytes % 4 != 0 || rounds < 1) {
    std::fprintf(stderr, "usage: %s DIRECTORY [MEBIBYTES [ROUNDS]]; mebibytes: a multiple of 4\n",
                 arguments[0]);
    return 2;
  }
  try {
    measure(arguments[1], mebibytes << 20, rounds);
    flush_stdout();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
