// The terminal belongs to rank 0.
#pragma once

#include <iostream>
#include <streambuf>

#include "llmc/base/notice.h"
#include "llmc/comm/launcher.h"

namespace llmc {

// While it exists, only rank 0 prints, except errors.
class RankOutput {
 public:
  explicit RankOutput(const ProcessInfo& process) {
    if (process.rank == 0) return;
    Notice::mute();
    std::cout.rdbuf(&nowhere_);
  }
  ~RankOutput() { std::cout.rdbuf(previous_); }
  RankOutput(const RankOutput&) = delete;
  RankOutput& operator=(const RankOutput&) = delete;

 private:
  struct Nowhere : std::streambuf {
    int overflow(int c) override { return traits_type::not_eof(c); }
  };

  Nowhere nowhere_;
  std::streambuf* previous_ = std::cout.rdbuf();
};

}  // namespace llmc
