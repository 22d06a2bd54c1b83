// The matrix products of a training step of GPT-2, and their times alone, for host_roof.cu.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "llmc/config/train_settings.h"
#include "llmc/device/device.h"
#include "llmc/device/host/simd_codes.h"
#include "llmc/device/workers.h"
#include "llmc/ops/convert.h"
#include "llmc/ops/gemm/matmul.h"
#include "llmc/ops/random_fill.h"

namespace llmc_dev {

using namespace llmc;

inline double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

template <class Action>
double milliseconds_of(const Action& action) {
  const auto start = std::chrono::steady_clock::now();
  action();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

// A product (m, k) by (k, n) of the step.
struct Product {
  std::string layer;
  const char* operation;  // its name in the profile
  std::int64_t calls, m, n, k;
  Transpose a, b;
  bool adds = false;  // to the fp32 gradient of a weight
  bool has_bias = false;
  double ms = 0;  // of one call

  double flops() const {  // of one call
    return 2 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  }
};

// The products that llmc/ops/gemm/linear.h and llmc/nn/lm_head.h run in a step.
inline std::vector<Product> products_of(const RunConfig& config) {
  constexpr Transpose kNo = Transpose::no, kYes = Transpose::yes;
  const std::int64_t R = config.batch.batch_size * config.batch.seq_len, L = config.shape.layers;
  const std::int64_t C = config.shape.channels, H = config.shape.hidden_size();
  const std::int64_t V =
      ceil_div(config.shape.vocabulary, kVocabularyMultiple) * kVocabularyMultiple;
  std::vector<Product> products;
  const auto add_layer = [&](const char* layer, std::int64_t K, std::int64_t N) {
    products.push_back({layer, "linear forward", L, R, N, K, kNo, kNo, false, true});
    products.push_back({layer, "linear weight gradient", L, K, N, R, kYes, kNo, true});
    products.push_back({layer, "linear input gradient", L, R, K, N, kNo, kYes});
  };
  add_layer("qkv", C, 3 * C);
  add_layer("projection", C, C);
  add_layer("fc", C, H);
  add_layer("fc projection", H, C);
  const auto add_head = [&](std::int64_t rows, std::int64_t calls) {
    if (rows == 0 || calls == 0) return;
    products.push_back({"head", "logits", calls, rows, V, C, kNo, kYes});
    products.push_back({"head", "logits weight gradient", calls, V, C, rows, kYes, kNo, true});
    products.push_back({"head", "logits input gradient", calls, rows, C, V, kNo, kNo});
  };
  const std::int64_t chunk = std::min(R, config.run_shape().chunk_rows());
  add_head(chunk, R / chunk);
  add_head(R % chunk, 1);
  return products;
}

// Times products of operands in T. It cycles over several copies of the operands, so that they come
// from memory as in a step.
template <class T>
class ProductTimer {
 public:
  // Times each product for at least `min_ms`. All copies of its operands together have at most
  // `budget` bytes, or there is one copy.
  ProductTimer(std::int64_t budget, double min_ms) : budget_(budget), min_ms_(min_ms) {
    Buffer<float> numbers(kPattern);
    normal_fill(numbers.data(), kPattern, 0, 1, 0, 0.0f, 0.1f, stream_);
    convert(pattern_.data(), static_cast<const float*>(numbers.data()), kPattern, stream_);
  }

  void time(Product& product) { product.adds ? time_as<float>(product) : time_as<T>(product); }

 private:
  static constexpr std::int64_t kPattern = 1 << 18, kMaxCopies = 64;

  // The first byte of each operand in a copy; the last element is the size of the copy.
  template <class TO>
  static std::vector<std::int64_t> places(const Product& p) {
    constexpr std::int64_t kAlignment = 4096;
    std::vector<std::int64_t> places = {0};
    const auto in = static_cast<std::int64_t>(sizeof(T)),
               out = static_cast<std::int64_t>(sizeof(TO));
    for (const std::int64_t bytes : {p.m * p.k * in, p.k * p.n * in, p.m * p.n * out, p.n * in}) {
      places.push_back(places.back() + ceil_div(bytes, kAlignment) * kAlignment);
    }
    return places;
  }

  // Fills the copies with normal numbers, which are finite also if a pair of T is read as fp32.
  void fill(std::int64_t bytes) {
    if (memory_.size() < bytes) {
      memory_ = {};
      memory_ = Buffer<std::byte>(bytes);
    }
    const auto size = static_cast<std::int64_t>(kPattern * sizeof(T));
    workers().run(ceil_div(bytes, size), [&](std::int64_t i) {
      std::memcpy(memory_.data() + i * size, pattern_.data(),
                  static_cast<std::size_t>(std::min(size, bytes - i * size)));
    });
  }

  template <class TO>
  void run(const Product& p, std::byte* copy, const std::vector<std::int64_t>& at) {
    const auto matrix = [](auto* data, std::int64_t rows, std::int64_t columns, Transpose order) {
      return order == Transpose::yes ? make_tensor(data, columns, rows)
                                     : make_tensor(data, rows, columns);
    };
    const auto* a = reinterpret_cast<const T*>(copy);
    const auto* b = reinterpret_cast<const T*>(copy + at[1]);
    auto* c = reinterpret_cast<TO*>(copy + at[2]);
    const auto* bias = p.has_bias ? reinterpret_cast<const T*>(copy + at[3]) : nullptr;
    matmul(make_tensor(c, p.m, p.n), matrix(a, p.m, p.k, p.a), p.a, matrix(b, p.k, p.n, p.b), p.b,
           p.adds ? 1.0f : 0.0f, bias, gemm_, stream_);
    stream_.synchronize();
  }

  // Sets the median time of a call.
  template <class TO>
  void time_as(Product& product) {
    constexpr std::size_t kMinCalls = 5;
    const std::vector<std::int64_t> at = places<TO>(product);
    const std::int64_t copies = std::clamp<std::int64_t>(budget_ / at.back(), 1, kMaxCopies);
    fill(copies * at.back());
    std::vector<double> times;
    double sum = 0;
    run<TO>(product, memory_.data(), at);  // the library prepares its code
    for (std::int64_t i = 1; sum < min_ms_ || times.size() < kMinCalls; ++i) {
      std::byte* copy = memory_.data() + i % copies * at.back();
      times.push_back(milliseconds_of([&] { run<TO>(product, copy, at); }));
      sum += times.back();
    }
    product.ms = median(times);
  }

  std::int64_t budget_;
  double min_ms_;
  Stream stream_;
  Gemm gemm_;
  Buffer<T> pattern_{kPattern};
  Buffer<std::byte> memory_;
};

// Operations per millisecond of products of INT8 codes that stay in registers and in the L1 cache,
// on all threads: the limit of the products of a prompt with INT8 weights and rows.
inline double code_rate() {
  constexpr int kRows = 12, kChunks = 2;
  constexpr std::int64_t kRepeats = 1 << 20;
  const auto multiply = [](std::int64_t seed) {
    // Numbers that the compiler does not know, other ones in each row.
    alignas(64) std::int8_t weights[kChunks * 64];
    std::uint8_t codes[4 * kRows];
    for (std::size_t i = 0; i < sizeof weights; ++i)
      weights[i] = static_cast<std::int8_t>(seed + static_cast<std::int64_t>(i));
    for (std::size_t i = 0; i < sizeof codes; ++i)
      codes[i] = static_cast<std::uint8_t>(seed + 7 * static_cast<std::int64_t>(i));
    llmc::host::CodeSums tile[kRows][kChunks] = {};
    for (std::int64_t i = 0; i < kRepeats; ++i) {
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const std::uint32_t row =
            llmc::host::four_codes(codes + 4 * r) + static_cast<std::uint32_t>(i);
#pragma GCC unroll 2
        for (int c = 0; c < kChunks; ++c)
          llmc::host::add_code_products(tile[r][c], row, weights + 64 * c);
      }
    }
    volatile std::int32_t sum = 0;  // else nothing is computed
    for (const auto& row : tile) {
      for (const auto& sums : row) sum = sum + sums[0];
    }
  };
  const int threads = llmc::workers().threads();
  double fastest = 0;
  for (int repeat = 0; repeat < 3; ++repeat) {
    const auto begin = std::chrono::steady_clock::now();
    llmc::workers().run(threads, multiply);
    const std::chrono::duration<double, std::milli> ms = std::chrono::steady_clock::now() - begin;
    const double operations = 2.0 * 4 * 16 * kRows * kChunks * kRepeats * threads;
    fastest = std::max(fastest, operations / ms.count());
  }
  return fastest;
}

}  // namespace llmc_dev
