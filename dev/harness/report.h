// The lines of a benchmark, as text or JSON. dev/README.md explains each column.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "dev/harness/op_case.h"
#include "dev/harness/roofs.h"

namespace llmc_dev {

struct Timing {
  double median = 0, p10 = 0, p90 = 0;  // microseconds
};

inline Timing summarize(std::vector<double> microseconds) {
  std::sort(microseconds.begin(), microseconds.end());
  const auto at = [&](double part) {
    return microseconds[static_cast<std::size_t>(
        part * static_cast<double>(microseconds.size() - 1) + 0.5)];
  };
  return {at(0.5), at(0.1), at(0.9)};
}

struct Line {
  std::string op, variant, shape;
  llmc::Dtype dtype = llmc::Dtype::fp32;
  double bytes = 0, flops = 0;  // minimum that one run must move and compute
  double kept_bytes = 0;        // held until the backward pass, plus scratch; 0: not given
  Comparison worst;             // the output with the largest rel_l2 / allowed
  bool repeatable = false;
  std::vector<std::string> faults;  // reasons for a FAIL
  bool timed = false;
  Timing time;
  std::string note;  // printed at the end of the line, such as the library's algorithm
  bool ok() const { return faults.empty(); }
};

class Report {
 public:
  explicit Report(bool json) : json_(json) {}

  void device(const llmc::DeviceProperties& properties, bool timing, const Roofs& roofs) {
    const double mib = static_cast<double>(properties.l2_bytes) / (1 << 20);
    const double mhz = properties.clock_hz * 1e-6;
    if (json_) {
      std::printf(
          "{\"type\": \"device\", \"target\": \"%s\", \"name\": \"%s\", "
          "\"compute_capability\": \"%d.%d\", \"processors\": %d, "
          "\"max_clock_mhz\": %.0f, \"l2_mib\": %.1f, \"timed\": %s}\n",
          llmc::kTargetName, escaped(properties.name).c_str(), properties.compute_major,
          properties.compute_minor, properties.processors, mhz, mib, timing ? "true" : "false");
      if (timing) {
        std::printf(
            "{\"type\": \"roofs\", \"copy_gb_s\": %.1f, \"gemm_bf16_tflop_s\": %.2f, "
            "\"gemm_fp16_tflop_s\": %.2f, \"gemm_fp32_tflop_s\": %.2f}\n",
            roofs.copy_bytes * 1e-9, roofs.gemm_bf16 * 1e-12, roofs.gemm_fp16 * 1e-12,
            roofs.gemm_fp32 * 1e-12);
      }
      return;
    }
    std::printf("device: %s", properties.name.c_str());
    if (llmc::kCudaTarget) {
      std::printf(", sm_%d%d, %d processors, at most %.0f MHz, %.1f MiB of L2",
                  properties.compute_major, properties.compute_minor, properties.processors, mhz,
                  mib);
    }
    std::printf("\n");
    if (timing) {
      std::printf(
          "roofs, measured here: copy %.0f GB/s, GEMM %.1f TFLOP/s bf16, %.1f fp16, %.1f fp32\n",
          roofs.copy_bytes * 1e-9, roofs.gemm_bf16 * 1e-12, roofs.gemm_fp16 * 1e-12,
          roofs.gemm_fp32 * 1e-12);
    } else if (!llmc::kCudaTarget) {
      std::printf(
          "host executor: results are checked; its times do not predict a GPU's, "
          "so none are taken\n");
    }
    std::printf("%-4s  %-26s %-16s %-24s %-5s %8s %8s %8s %4s %9s", "", "op", "variant", "shape",
                "dtype", "rel-L2", "max abs", "allowed", "same", "keeps MB");
    if (timing) {
      std::printf(" %10s %10s %10s %7s %8s %6s", "median us", "p10", "p90", "GB/s", "TFLOP/s",
                  "% roof");
    }
    std::printf("\n");
  }

  void result(const Line& line, const Roofs& roofs) {
    ++(line.ok() ? ok_ : failed_);
    json_ ? print_json(line, roofs) : print_text(line, roofs);
    std::fflush(stdout);
  }

  void skipped(const std::string& name, const std::string& why) {
    ++skipped_;
    if (json_) {
      std::printf("{\"type\": \"skipped\", \"line\": \"%s\", \"why\": \"%s\"}\n",
                  escaped(name).c_str(), escaped(why).c_str());
    } else {
      std::printf("skip  %s: %s\n", name.c_str(), why.c_str());
    }
  }

  // Prints the last line.
  void finish() const {
    std::printf(json_ ? "{\"type\": \"summary\", \"ok\": %d, \"fail\": %d}\n" : "%d OK, %d FAIL\n",
                ok_, failed_);
  }

  bool empty() const { return ok_ + failed_ + skipped_ == 0; }
  int failed() const { return failed_; }

 private:
  struct Speeds {
    double bytes, flops, percent;  // bytes/s, FLOP/s, the nearer roof's time in % of the median
  };
  static Speeds speeds(const Line& line, const Roofs& roofs) {
    const double seconds = 1e-6 * line.time.median;
    const double bytes = line.bytes / seconds, flops = line.flops / seconds;
    return {bytes, flops, 100 * std::max(bytes / roofs.copy_bytes, flops / roofs.gemm(line.dtype))};
  }

  static std::string escaped(const std::string& text) {
    std::string out;
    for (const char c : text) {
      if (c == '"' || c == '\\') out += '\\';
      out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
    return out;
  }

  // JSON has no NaN and no infinity; both become null.
  static std::string number(double x) {
    if (!std::isfinite(x)) return "null";
    char text[32];
    std::snprintf(text, sizeof text, "%.6g", x);
    return text;
  }

  static void print_text(const Line& line, const Roofs& roofs) {
    std::printf("%-4s  %-26s %-16s %-24s %-5s %8.1e %8.1e %8.1e %4s", line.ok() ? "OK" : "FAIL",
                line.op.c_str(), line.variant.c_str(), line.shape.c_str(),
                llmc::dtype_name(line.dtype), line.worst.rel_l2, line.worst.max_abs,
                line.worst.allowed, line.repeatable ? "y" : "n");
    line.kept_bytes > 0 ? std::printf(" %9.3f", line.kept_bytes * 1e-6) : std::printf(" %9s", "-");
    if (line.timed) {
      const Speeds speed = speeds(line, roofs);
      std::printf(" %10.1f %10.1f %10.1f %7.0f %8.2f %6.1f", line.time.median, line.time.p10,
                  line.time.p90, speed.bytes * 1e-9, speed.flops * 1e-12, speed.percent);
    }
    if (!line.note.empty()) std::printf("  %s", line.note.c_str());
    std::printf("\n");
    for (const std::string& fault : line.faults) std::printf("      %s\n", fault.c_str());
  }

  static void print_json(const Line& line, const Roofs& roofs) {
    std::printf(
        "{\"type\": \"result\", \"ok\": %s, \"op\": \"%s\", \"variant\": \"%s\", "
        "\"shape\": \"%s\", \"dtype\": \"%s\", \"output\": \"%s\", \"rel_l2\": %s, "
        "\"max_abs\": %s, \"allowed\": %s, \"repeatable\": %s",
        line.ok() ? "true" : "false", escaped(line.op).c_str(), escaped(line.variant).c_str(),
        escaped(line.shape).c_str(), llmc::dtype_name(line.dtype), escaped(line.worst.name).c_str(),
        number(line.worst.rel_l2).c_str(), number(line.worst.max_abs).c_str(),
        number(line.worst.allowed).c_str(), line.repeatable ? "true" : "false");
    if (line.timed) {
      const Speeds speed = speeds(line, roofs);
      std::printf(
          ", \"median_us\": %s, \"p10_us\": %s, \"p90_us\": %s, \"gb_s\": %s, "
          "\"tflop_s\": %s, \"percent_of_roof\": %s",
          number(line.time.median).c_str(), number(line.time.p10).c_str(),
          number(line.time.p90).c_str(), number(speed.bytes * 1e-9).c_str(),
          number(speed.flops * 1e-12).c_str(), number(speed.percent).c_str());
    }
    if (line.kept_bytes > 0) std::printf(", \"kept_bytes\": %.0f", line.kept_bytes);
    if (!line.note.empty()) std::printf(", \"note\": \"%s\"", escaped(line.note).c_str());
    std::printf(", \"faults\": [");
    for (std::size_t i = 0; i < line.faults.size(); ++i) {
      std::printf("%s\"%s\"", i > 0 ? ", " : "", escaped(line.faults[i]).c_str());
    }
    std::printf("]}\n");
  }

  bool json_;
  int ok_ = 0, failed_ = 0, skipped_ = 0;
};

}  // namespace llmc_dev
