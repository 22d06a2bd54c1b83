// The queue of transfers of scratch files: contents, order, errors, signals.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "llmc/base/io_queue.h"
#include "llmc/base/scratch_file.h"
#include "llmc/base/signal_request.h"
#include "test/scratch_rig.h"
#include "test/support.h"

namespace {

using llmc::AlignedBuffer;
using llmc::IoQueue;
using llmc::ScratchFile;
using llmc_test::complaint;
using llmc_test::contains;
using llmc_test::filled;
using llmc_test::has_content;
using llmc_test::TemporaryDirectory;

constexpr std::int64_t kPage = ScratchFile::kAlignment;

}  // namespace

TEST_SUITE("io queue") {
  TEST_CASE("transfers of many chunks arrive complete, and all bytes are counted") {
    const TemporaryDirectory folder;
    constexpr std::int64_t kParts = 6, kSize = 37 * kPage;
    const ScratchFile file(folder.path(), kParts * kSize);
    for (const std::int64_t threads : {1, 4}) {
      IoQueue queue(threads, 4 * kPage);
      const auto version = static_cast<std::uint64_t>(threads);
      std::vector<AlignedBuffer> parts;
      for (std::int64_t i = 0; i < kParts; ++i) {
        parts.push_back(filled(kSize, i * kSize, version));
        queue.submit_write(file, i * kSize, parts.back().bytes());
      }
      queue.finish();
      CHECK(queue.written_bytes() == kParts * kSize);
      const AlignedBuffer all(kParts * kSize);
      std::vector<IoQueue::Ticket> tickets;
      for (std::int64_t i = 0; i < kParts; ++i) {
        tickets.push_back(queue.submit_read(file, i * kSize, all.bytes(i * kSize, kSize)));
      }
      for (std::int64_t i = kParts - 1; i >= 0; --i) {
        queue.wait(tickets[i]);
        CHECK(has_content(all.bytes(i * kSize, kSize), i * kSize, version));
      }
      queue.wait(tickets[0]);  // again
      CHECK(queue.read_bytes() == kParts * kSize);
    }
  }

  TEST_CASE("a transfer follows one that was waited for, from several threads at a time") {
    const TemporaryDirectory folder;
    constexpr std::int64_t kThreads = 3, kSize = 8 * kPage;
    const ScratchFile file(folder.path(), kThreads * kSize);
    IoQueue queue(4, kPage);
    std::vector<int> failures(kThreads);
    std::vector<std::thread> threads;
    for (std::int64_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        const AlignedBuffer target(kSize);
        for (std::uint64_t version = 0; version < 20; ++version) {
          const AlignedBuffer source = filled(kSize, t * kSize, version);
          queue.wait(queue.submit_write(file, t * kSize, source.bytes()));
          queue.wait(queue.submit_read(file, t * kSize, target.bytes()));
          if (!has_content(target.bytes(), t * kSize, version)) ++failures[t];
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(failures == std::vector<int>(kThreads));
  }

  TEST_CASE("invalid tickets and settings are errors, and empty transfers are complete") {
    const TemporaryDirectory folder;
    const ScratchFile file(folder.path(), kPage);
    IoQueue queue(1);
    CHECK(contains(complaint([&] { queue.wait(0); }), "no transfer has this ticket"));
    CHECK(contains(complaint([&] { queue.wait(-1); }), "no transfer has this ticket"));
    CHECK(complaint([&] { queue.wait(queue.submit_read(file, 0, {})); }).empty());
    CHECK(contains(complaint([] { IoQueue(0); }), "at least one thread"));
    CHECK(contains(complaint([] { IoQueue(1, 4095); }), "multiple of 4096"));
  }

  TEST_CASE("its threads block stop signals if the signal thread receives them") {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      llmc::SignalRequest::start_thread("test");
      const IoQueue queue(3);
      int not_blocking = 0;
      for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
        std::ifstream status(task.path() / "status");
        for (std::string line; std::getline(status, line);) {
          if (!line.starts_with("SigBlk:")) continue;
          not_blocking += (std::stoull(line.substr(7), nullptr, 16) >> (SIGTERM - 1) & 1) == 0;
        }
      }
      _exit(not_blocking);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(WEXITSTATUS(status) <= 1);  // the signal thread
  }

  TEST_CASE("chunks that fail on several threads are one error, and other transfers are complete") {
    const TemporaryDirectory folder;
    constexpr std::int64_t kSize = 32 * kPage, kRest = 16 * kPage;
    const ScratchFile file(folder.path(), kSize, ScratchFile::Removal::at_end);
    for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
      std::filesystem::resize_file(entry.path(), kRest);  // reads behind it return no bytes
    }
    IoQueue queue(4, kPage);
    for (int round = 0; round < 10; ++round) {
      const AlignedBuffer source = filled(kRest, 0, 1), lost(kSize), target(kRest);
      queue.wait(queue.submit_write(file, 0, source.bytes()));
      const auto bad = queue.submit_read(file, 0, lost.bytes());
      const auto good = queue.submit_read(file, 0, target.bytes());
      const std::string error = complaint([&] { queue.wait(bad); });
      CHECK(contains(error, " at byte " + std::to_string(kRest) + ": Input/output error"));
      CHECK(complaint([&] { queue.wait(good); }).empty());
      CHECK(has_content(target.bytes(), 0, 1));
      CHECK(complaint([&] { queue.finish(); }).empty());
      CHECK(complaint([&] { queue.wait(bad); }) == error);
    }
  }

  TEST_CASE("the error of the lowest position is thrown, also if it is the last to occur") {
    const TemporaryDirectory folder;
    constexpr std::int64_t kChunk = std::int64_t{8} << 20;
    const ScratchFile file(folder.path(), kChunk + kPage, ScratchFile::Removal::at_end);
    for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
      std::filesystem::resize_file(entry.path(), kChunk - kPage);  // the end of the first chunk
    }
    IoQueue queue(2, kChunk);
    const AlignedBuffer target(file.size());
    const auto ticket = queue.submit_read(file, 0, target.bytes());
    CHECK(contains(complaint([&] { queue.wait(ticket); }), " at byte 8384512:"));
  }

  TEST_CASE("finish throws each error that no other call has thrown, the oldest first") {
    const TemporaryDirectory folder;
    const ScratchFile file(folder.path(), 3 * kPage, ScratchFile::Removal::at_end);
    for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
      std::filesystem::resize_file(entry.path(), 0);
    }
    IoQueue queue(3);
    const AlignedBuffer target(3 * kPage);
    for (std::int64_t i = 2; i >= 0; --i) {
      queue.submit_read(file, i * kPage, target.bytes(i * kPage, kPage));
    }
    for (const char* position : {" at byte 8192:", " at byte 4096:", " at byte 0:"}) {
      CHECK(contains(complaint([&] { queue.finish(); }), position));
    }
    CHECK(complaint([&] { queue.finish(); }).empty());
  }
}
