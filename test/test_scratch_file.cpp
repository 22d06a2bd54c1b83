// Scratch files: contents, space, names, errors, and what a killed process leaves.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "llmc/base/io_queue.h"
#include "llmc/base/scratch_file.h"
#include "llmc/base/signal_request.h"
#include "llmc/base/signal_thread.h"
#include "test/scratch_rig.h"
#include "test/support.h"
#include "test/write_file.h"

namespace {

using llmc::AlignedBuffer;
using llmc::IoQueue;
using llmc::ScratchFile;
using llmc_test::complaint;
using llmc_test::contains;
using llmc_test::fill;
using llmc_test::filled;
using llmc_test::has_content;
using llmc_test::TemporaryDirectory;

constexpr std::int64_t kPage = ScratchFile::kAlignment;

std::vector<std::string> names_in(const std::filesystem::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

// Several threads write pages of their own in a pseudo-random order, and read each of them back.
void write_and_read_pages(const ScratchFile& file, std::int64_t pages, std::uint64_t version) {
  constexpr std::int64_t kThreads = 4;
  std::vector<std::thread> threads;
  std::vector<std::int64_t> failures(kThreads);
  for (std::int64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const AlignedBuffer buffer(kPage);
      for (const bool writes : {true, false}) {
        for (std::int64_t i = t; i < pages; i += kThreads) {
          const std::int64_t offset = i * 7 % pages * kPage;
          if (writes) fill(buffer.bytes(), offset, version);
          writes ? file.write(offset, buffer.bytes()) : file.read(offset, buffer.bytes());
          if (!has_content(buffer.bytes(), offset, version)) ++failures[t];
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(failures == std::vector<std::int64_t>(kThreads));
}

// ---- child processes -------------------------------------------------------------------------

// Runs `action` in a child process, waits until it has written a byte to the given pipe, kills it
// by `signal`, and returns how it ended.
template <class Action>
int kill_child(int signal, Action&& action) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    for (const int stop : llmc::kStopSignals) std::signal(stop, SIG_DFL);
    action(ends[1]);
    for (;;) pause();
  }
  close(ends[1]);
  char ready = 0;
  CHECK(read(ends[0], &ready, 1) == 1);
  close(ends[0]);
  kill(child, signal);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status) ? WTERMSIG(status) : -WEXITSTATUS(status);
}

}  // namespace

TEST_SUITE("scratch file") {
  TEST_CASE("contents survive reads and writes in any order by several threads") {
    const TemporaryDirectory folder;
    constexpr std::int64_t kPages = 61;  // no multiple of 7
    for (const auto removal : {ScratchFile::Removal::automatic, ScratchFile::Removal::at_end}) {
      const ScratchFile file(folder.path(), kPages * kPage - 5, removal);
      CHECK(file.size() == kPages * kPage);
      const AlignedBuffer all(file.size());
      file.read(0, all.bytes());
      CHECK(std::ranges::all_of(all.bytes(), [](std::byte b) { return b == std::byte{0}; }));
      for (const std::uint64_t version : {1u, 2u}) {
        write_and_read_pages(file, kPages, version);
        file.read(0, all.bytes());
        CHECK(has_content(all.bytes(), 0, version));
      }
    }
  }

  TEST_CASE("a file is direct if the file system supports it, and never in a tmpfs") {
    if (std::filesystem::is_directory("/dev/shm")) {
      const ScratchFile file("/dev/shm", 8 * kPage);
      CHECK(!file.is_direct());
      CHECK(file.notice() == "/dev/shm is in memory: what is offloaded to it takes host memory");
      write_and_read_pages(file, 8, 3);
    }
    const TemporaryDirectory folder;
    const ScratchFile file(folder.path(), kPage);
    CHECK(file.notice().empty() == file.is_direct());
  }

  TEST_CASE("the directory is created, and is empty while the file exists and afterwards") {
    const TemporaryDirectory folder;
    const auto directory = folder.path() / "new" / "scratch";
    {
      const ScratchFile file(directory, 4 * kPage);
      CHECK(names_in(directory).empty());
    }
    CHECK(names_in(directory).empty());
    {
      const ScratchFile file(directory, 4 * kPage, ScratchFile::Removal::at_end);
      REQUIRE(names_in(directory).size() == 1);
      CHECK(names_in(directory)[0].starts_with(".llmc-scratch-"));
    }
    CHECK(names_in(directory).empty());
  }

  TEST_CASE("a killed process leaves nothing, or a named file that the next one removes") {
    const TemporaryDirectory folder;
    for (const auto removal : {ScratchFile::Removal::automatic, ScratchFile::Removal::at_end}) {
      const auto start = [&](int ready) {
        const ScratchFile file(folder.path(), 16 * kPage, removal);
        const AlignedBuffer page = filled(kPage, 0, 1);
        file.write(0, page.bytes());
        (void)!write(ready, "x", 1);
        pause();
      };
      CHECK(kill_child(SIGKILL, start) == SIGKILL);
      CHECK(names_in(folder.path()).size() == (removal == ScratchFile::Removal::at_end ? 1 : 0));
    }
    const ScratchFile next(folder.path(), kPage);
    CHECK(names_in(folder.path()).empty());
  }

  TEST_CASE("a stop signal removes a named file") {
    const TemporaryDirectory folder;
    const auto start = [&](int ready) {
      std::fclose(stderr);
      llmc::SignalRequest::start_thread("test");
      const ScratchFile file(folder.path(), kPage, ScratchFile::Removal::at_end);
      (void)!write(ready, names_in(folder.path()).empty() ? "" : "x", 1);
      pause();
    };
    CHECK(kill_child(SIGTERM, start) == SIGTERM);
    CHECK(names_in(folder.path()).empty());
  }

  TEST_CASE("named files without a live owner are removed, and nothing else") {
    const TemporaryDirectory folder;
    const ScratchFile live(folder.path(), kPage, ScratchFile::Removal::at_end);
    const std::string live_name = names_in(folder.path()).at(0);
    const std::string stale = ".llmc-scratch-0123456789abcdef",
                      locked = ".llmc-scratch-1123456789abcdef";
    std::vector<std::string> kept = {live_name,
                                     locked,
                                     ".llmc-scratch-notes",
                                     ".llmc-scratch-cafe",
                                     ".llmc-scratch-0123456789abcdeF",
                                     "0123456789abcdef"};
    for (const std::string& name : kept) {
      if (name != live_name) llmc_test::write(folder.file(name), "content");
    }
    llmc_test::write(folder.file(stale), "content");
    std::filesystem::create_directory(folder.path() / ".llmc-scratch-2123456789abcdef");
    std::filesystem::create_symlink(folder.path() / locked,
                                    folder.path() / ".llmc-scratch-3123456789abcdef");
    REQUIRE(mkfifo(folder.file(".llmc-scratch-4123456789abcdef").c_str(), 0600) == 0);
    kept.insert(kept.end(), {".llmc-scratch-4123456789abcdef", ".llmc-scratch-2123456789abcdef",
                             ".llmc-scratch-3123456789abcdef"});
    const llmc::FileDescriptor owner(::open(folder.file(locked).c_str(), O_RDWR | O_CLOEXEC));
    REQUIRE(flock(owner.get(), LOCK_EX) == 0);
    const ScratchFile next(folder.path(), kPage);
    std::ranges::sort(kept);
    CHECK(names_in(folder.path()) == kept);
  }

  TEST_CASE("named files that are created at the same time do not remove each other") {
    const TemporaryDirectory folder;
    constexpr std::size_t kThreads = 4;
    constexpr int kRounds = 50;
    std::barrier round(kThreads);
    std::vector<int> failures(kThreads);
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < kRounds; ++i) {
          const ScratchFile file(folder.path(), 0, ScratchFile::Removal::at_end);
          round.arrive_and_wait();
          if (names_in(folder.path()).size() != kThreads) ++failures[t];
          round.arrive_and_wait();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(failures == std::vector<int>(kThreads));
    CHECK(names_in(folder.path()).empty());
  }

  TEST_CASE("a file that is too large names the directory, the bytes needed and the bytes free") {
    const TemporaryDirectory folder;
    for (const auto removal : {ScratchFile::Removal::automatic, ScratchFile::Removal::at_end}) {
      const std::string error =
          complaint([&] { ScratchFile(folder.path(), std::int64_t{1} << 60, removal); });
      CHECK(error.starts_with("cannot reserve 1152921.50 TB in " + folder.path().string() +
                              ", where "));
      CHECK(contains(error, " are free: No space left on device"));
      CHECK(contains(error, "hint: free some space, or use a directory on another disk"));
      CHECK(names_in(folder.path()).empty());
    }
  }

  TEST_CASE("a directory that cannot be used is an error that names it") {
    const TemporaryDirectory folder;
    llmc_test::write(folder.file("file"), "content");
    CHECK(contains(complaint([&] { ScratchFile(folder.file("file"), kPage); }),
                   "cannot create the directory " + folder.file("file")));
    CHECK(contains(complaint([] { ScratchFile("/proc/self", kPage); }),
                   "cannot create a file in /proc/self: "));
  }

  TEST_CASE("transfers that are not aligned or outside the file are refused") {
    const TemporaryDirectory folder;
    const ScratchFile file(folder.path(), 2 * kPage);
    const AlignedBuffer buffer(3 * kPage);
    const auto refusal = [&](std::int64_t offset, std::int64_t begin, std::int64_t size) {
      const auto bytes = buffer.bytes(begin, size);
      const std::string error = complaint([&] { file.read(offset, bytes); });
      CHECK(complaint([&] { file.write(offset, bytes); }) == error);
      CHECK(complaint([&] { IoQueue(1).submit_read(file, offset, bytes); }) == error);
      return error;
    };
    for (const auto& [offset, begin, size] :
         {std::array{std::int64_t{512}, std::int64_t{0}, kPage}, {0, 512, kPage}, {0, 0, 512}}) {
      CHECK(contains(refusal(offset, begin, size), "is not aligned"));
    }
    for (const auto& [offset, size] : {std::array{-kPage, kPage},
                                       {kPage, 2 * kPage},
                                       {2 * kPage, kPage},
                                       {INT64_MAX / kPage * kPage, kPage}}) {
      CHECK(contains(refusal(offset, 0, size), "outside its scratch file"));
    }
    CHECK(refusal(2 * kPage, 0, 0).empty());
  }
}
