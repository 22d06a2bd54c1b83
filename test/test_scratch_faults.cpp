// Scratch files and queues of transfers on a disk that fails: calls of a child process fail, are
// short or are slow (test/faults/disk_faults.cpp).
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <thread>

#include "llmc/base/io_queue.h"
#include "llmc/base/scratch_file.h"
#include "test/support.h"

namespace {

using llmc::AlignedBuffer;
using llmc::IoQueue;
using llmc::ScratchFile;
using llmc_test::contains;
using llmc_test::TemporaryDirectory;

constexpr std::int64_t kPage = ScratchFile::kAlignment;
constexpr std::int64_t kChunks = 4;  // of two pages

constexpr const char* kDirectoryVariable = "LLMC_SCRATCH_DIRECTORY";

// ---- the child -------------------------------------------------------------------------------

template <class Action>
std::string error_line(Action&& action) {
  return llmc_test::complaint(action) + "\n";
}

// Writes and reads a file by a queue, and describes the result.
std::string transfer_and_describe(const std::filesystem::path& directory,
                                  ScratchFile::Removal removal) {
  const ScratchFile file(directory, kChunks * 2 * kPage, removal);
  IoQueue queue(2, 2 * kPage);
  const AlignedBuffer source(file.size()), target(file.size());
  for (std::int64_t i = 0; i < file.size(); ++i) {
    source.data()[i] = static_cast<std::byte>(i * 2654435761u >> 13);
  }
  queue.submit_write(file, 0, source.bytes());
  queue.finish();
  queue.submit_read(file, 0, target.bytes());
  queue.finish();
  const bool has_name = !std::filesystem::is_empty(directory);
  return std::string(std::ranges::equal(source.bytes(), target.bytes()) ? "complete" : "damaged") +
         (file.is_direct() ? " direct" : " buffered") + (has_name ? " named" : "");
}

// Prints which calls throw the error of a transfer. The second of two writes fails.
std::string report_failures(const std::filesystem::path& directory) {
  const ScratchFile file(directory, 2 * kPage);
  const AlignedBuffer page(kPage);
  IoQueue queue(1);
  const auto good = queue.submit_write(file, 0, page.bytes());
  queue.wait(good);
  const auto bad = queue.submit_write(file, kPage, page.bytes());
  const auto last = queue.submit_read(file, 0, page.bytes());
  std::string report = error_line([&] { queue.wait(last); });  // the first to throw it
  report += error_line([&] { queue.wait(last); });
  report += error_line([&] { queue.finish(); });
  report += error_line([&] { queue.wait(good); });
  report += error_line([&] { queue.wait(bad); });
  report += error_line([&] { queue.wait(bad); });
  return report + std::to_string(queue.written_bytes()) + " " + std::to_string(queue.read_bytes());
}

// Ends a queue whose transfer has just begun, and describes whether the last page was written.
std::string end_queue(const std::filesystem::path& directory) {
  const ScratchFile file(directory, 16 * kPage);
  const AlignedBuffer source(file.size()), last(kPage);
  std::ranges::fill(source.bytes(), std::byte{1});
  {
    IoQueue queue(1, kPage);
    queue.submit_write(file, 0, source.bytes());
  }
  file.read(15 * kPage, last.bytes());
  return last.data()[0] == std::byte{0} ? "dropped" : "written";
}

// ---- its parent ------------------------------------------------------------------------------

bool has_nameless_files(const std::string& directory) {
  return static_cast<bool>(
      llmc::FileDescriptor(::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)));
}

struct Fault {
  std::string calls, at, action;
};

// Runs the child with a fault, and commands of the shell before it.
class FaultyDisk {
 public:
  FaultyDisk() : library_(folder_.file("disk_faults.so")) {
    const char* compiler = std::getenv("CXX");
    const std::string command = std::string(compiler == nullptr ? "g++" : compiler) +
                                " -std=c++20 -O0 -shared -fPIC -o " + library_ + " " +
                                llmc_test::root_dir() + "/test/faults/disk_faults.cpp -ldl";
    is_available_ = std::system((command + " 2>/dev/null").c_str()) == 0;
    std::filesystem::create_directory(directory());
  }

  // Skips the running test case if the library cannot be built, or not be loaded: sanitizers must
  // be loaded first.
  bool is_available() const {
    if (!is_available_ || llmc_test::tiny_shapes()) {
      llmc_test::skip("a library that injects faults cannot be used here");
      return false;
    }
    return true;
  }

  std::string directory() const { return folder_.file("disk"); }

  // Returns what the child prints. Afterwards its directory must be empty.
  std::string run(const Fault& fault, const std::string& child = "transfers",
                  const std::string& before = "") const {
    const auto program = std::filesystem::read_symlink("/proc/self/exe").string();
    const std::string command = before + kDirectoryVariable + "=" + directory() +
                                " FAULT_IN=" + directory() + " FAULT_CALLS='" + fault.calls +
                                "' FAULT_AT='" + fault.at + "' FAULT_DO=" + fault.action +
                                " LD_PRELOAD=" + library_ + " timeout 60 " + program +
                                " --no-skip --minimal -tc='child: " + child + "' 2>&1";
    std::FILE* out = popen(command.c_str(), "r");
    REQUIRE(out != nullptr);
    std::string text;
    char bytes[512];
    while (const std::size_t n = std::fread(bytes, 1, sizeof bytes, out)) text.append(bytes, n);
    CHECK(pclose(out) == 0);
    CHECK(std::filesystem::is_empty(directory()));
    return text;
  }

 private:
  TemporaryDirectory folder_;
  std::string library_;
  bool is_available_ = false;
};

// All test cases share one, because compiling its library takes a second.
const FaultyDisk& faulty_disk() {
  static const FaultyDisk disk;
  return disk;
}

}  // namespace

TEST_SUITE("scratch faults") {
  TEST_CASE("child: transfers" * doctest::skip()) {
    const char* directory = std::getenv(kDirectoryVariable);
    if (directory == nullptr) return;
    std::string result;
    const std::string error = llmc_test::complaint(
        [&] { result = transfer_and_describe(directory, ScratchFile::Removal::automatic); });
    std::cout << (error.empty() ? result : error) << std::endl;
  }

  TEST_CASE("child: named" * doctest::skip()) {
    const char* directory = std::getenv(kDirectoryVariable);
    if (directory == nullptr) return;
    std::cout << transfer_and_describe(directory, ScratchFile::Removal::at_end) << std::endl;
  }

  TEST_CASE("child: failures" * doctest::skip()) {
    const char* directory = std::getenv(kDirectoryVariable);
    if (directory == nullptr) return;
    std::cout << report_failures(directory) << std::endl;
  }

  TEST_CASE("child: end" * doctest::skip()) {
    const char* directory = std::getenv(kDirectoryVariable);
    if (directory == nullptr) return;
    std::cout << end_queue(directory) << std::endl;
  }

  TEST_CASE("child: vectors" * doctest::skip()) {
    const char* directory = std::getenv(kDirectoryVariable);
    if (directory == nullptr) return;
    std::FILE* file = std::fopen((std::string(directory) + "/file").c_str(), "w+");
    char bytes[6] = "abcde";
    const iovec parts[] = {{bytes, 3}, {bytes + 3, 2}};
    const auto written = pwritev(fileno(file), parts, 2, 0);
    const auto read = preadv(fileno(file), parts, 2, 0);
    std::cout << written << " " << read << std::endl;
    std::fclose(file);
    std::remove((std::string(directory) + "/file").c_str());
  }

  TEST_CASE("each transfer that fails is one error with its position and the system's reason") {
    const FaultyDisk& disk = faulty_disk();
    if (!disk.is_available()) return;
    const bool is_direct = disk.run({"pread", "99", "EIO"}) == "complete direct\n";
    for (const char* call : {"pwrite", "pread"}) {
      const std::string verb = call + 1;
      for (std::int64_t n = 1; n <= kChunks + is_direct; ++n) {
        CAPTURE(call);
        CAPTURE(n);
        const std::string error = disk.run({call, std::to_string(n), "EIO"});
        const std::string start =
            "cannot " + verb + " the scratch file in " + disk.directory() + " at byte ";
        REQUIRE(error.starts_with(start));
        const std::int64_t position = std::stoll(error.substr(start.size()));
        CHECK(position % (2 * kPage) == 0);
        CHECK(position < kChunks * 2 * kPage);
        CHECK(error == start + std::to_string(position) +
                           ": Input/output error\n  hint: check the disk, or use a directory on "
                           "another one\n");
      }
    }
    const std::string full = disk.run({"pwrite", "2", "ENOSPC"});
    CHECK(contains(full, ": No space left on device\n  hint: free some space"));
    CHECK(contains(disk.run({"pread", "3", "empty"}), "at byte "));
    CHECK(contains(disk.run({"pwrite", "3", "empty"}), "Input/output error"));
  }

  TEST_CASE("the error of the lowest position is thrown") {
    const FaultyDisk& disk = faulty_disk();
    if (!disk.is_available()) return;
    CHECK(contains(disk.run({"pwrite", "2 3 4 5", "EIO"}), " at byte 0: Input/output error"));
  }

  TEST_CASE("transfers that are short, interrupted or slow are complete") {
    const FaultyDisk& disk = faulty_disk();
    if (!disk.is_available()) return;
    const std::string result = disk.run({"pread", "99", "EIO"});
    CHECK(result.starts_with("complete "));
    for (const char* call : {"pwrite", "pread"}) {
      for (const char* action : {"short", "odd", "EINTR", "slow"}) {
        for (const char* at : {"1", "2", "3 4", "2 3 4 5 6"}) {
          CAPTURE(call);
          CAPTURE(action);
          CAPTURE(at);
          CHECK(disk.run({call, at, action}) == result);
        }
      }
    }
  }

  TEST_CASE("a disk that rejects direct transfers is used through the page cache") {
    const FaultyDisk& disk = faulty_disk();
    if (!disk.is_available()) return;
    if (disk.run({"pread", "99", "EIO"}) != "complete direct\n") {
      return llmc_test::skip("the file system of temporary files has no direct transfers");
    }
    CHECK(disk.run({"pwrite", "1", "EINVAL"}) == "complete buffered\n");
    CHECK(disk.run({"pread", "1", "EINVAL"}) == "complete buffered\n");
    CHECK(contains(disk.run({"pwrite", "3", "EINVAL"}), ": Invalid argument\n"));
  }

  TEST_CASE("a reservation that fails is an error, unless the file system has none") {
    const FaultyDisk& disk = faulty_disk();
    if (!disk.is_available()) return;
    const std::string start = "cannot reserve 32.77 kB in " + disk.directory() + ", where ";
    for (const auto& [action, reason] : {std::array{"ENOSPC", "No space left on device"},
                                         {"EDQUOT", "Disk quota exceeded"},
                                         {"EIO", "Input/output error"}}) {
      const std::string error = disk.run({"fallocate", "1", action});
      CHECK(error.starts_with(start));
      CHECK(contains(error, std::string(" are free: ") + reason + "\n  hint: free some space"));
    }
    CHECK(disk.run({"fallocate", "1", "EINTR"}).starts_with("complete "));
    CHECK(disk.run({"fallocate", "1", "EOPNOTSUPP"}).starts_with("complete "));
    // The zeros that replace the reservation meet a limit of two blocks.
    const std::string error =
        disk.run({"fallocate", "1", "EOPNOTSUPP"}, "transfers", "trap '' XFSZ; ulimit -f 2; ");
    CHECK(error.starts_with(start));
    CHECK(contains(error, ": File too large\n  hint: raise the file size limit (ulimit -f)"));
    CHECK(contains(disk.run({"fallocate fsync", "1 2", "EOPNOTSUPP"}), start));
  }

  TEST_CASE("a file has a name only if it cannot lose it") {
    const FaultyDisk& disk = faulty_disk();
    if (!disk.is_available()) return;
    CHECK(!contains(disk.run({"open unlink", "1", "EOPNOTSUPP"}), "named"));
    CHECK(contains(disk.run({"open unlink", "1 3", "EOPNOTSUPP"}), "complete"));
    CHECK(contains(disk.run({"open unlink", "1 3", "EOPNOTSUPP"}), " named"));
    CHECK(contains(disk.run({"open", "1 2", "ENOSPC"}),
                   "cannot create a file in " + disk.directory() + ": No space left on device\n"));
    if (has_nameless_files(disk.directory())) {
      CHECK(!contains(disk.run({"unlink", "1", "EOPNOTSUPP"}), "named"));
    }
    // The name is removed after an error too.
    CHECK(contains(disk.run({"open unlink fallocate", "1 3 4", "EIO"}), "cannot reserve"));
  }

  TEST_CASE("a named file that another process removes before it is locked is created again") {
    const FaultyDisk& disk = faulty_disk();
    if (!disk.is_available()) return;
    std::atomic<bool> is_done = false;
    std::thread other([&] {  // removes files that are not locked
      while (!is_done) ScratchFile(disk.directory(), 0);
    });
    CHECK(contains(disk.run({"flock", "1 2 3", "slow"}, "named"), " named\n"));
    is_done = true;
    other.join();
  }

  TEST_CASE("a queue that ends drops the chunks that no thread has taken") {
    const FaultyDisk& disk = faulty_disk();
    if (!disk.is_available()) return;
    CHECK(disk.run({"pwrite", "2 3 4 5 6 7 8 9 10 11 12 13 14 15 16", "slow"}, "end") ==
          "dropped\n");
  }

  TEST_CASE("the error of a transfer is thrown once by another call, and always by its own") {
    const FaultyDisk& disk = faulty_disk();
    if (!disk.is_available()) return;
    const bool is_direct = disk.run({"pread", "99", "EIO"}) == "complete direct\n";
    const std::string report = disk.run({"pwrite", is_direct ? "3" : "2", "EIO"}, "failures");
    const std::string error = "cannot write the scratch file in " + disk.directory() +
                              " at byte 4096: Input/output error\n"
                              "  hint: check the disk, or use a directory on another one\n";
    CHECK(report == error + "\n\n\n" + error + error + "4096 4096\n");
  }

  TEST_CASE("transfers of several parts of memory can have faults") {
    const FaultyDisk& disk = faulty_disk();
    if (!disk.is_available()) return;
    CHECK(disk.run({"pwritev preadv", "1", "short"}, "vectors") == "2 2\n");
    CHECK(disk.run({"pwritev preadv", "2", "short"}, "vectors") == "5 2\n");
    CHECK(disk.run({"pwritev preadv", "2", "EIO"}, "vectors") == "5 -1\n");
    CHECK(disk.run({"", "2", "EIO"}, "vectors") == "5 5\n");
  }
}
