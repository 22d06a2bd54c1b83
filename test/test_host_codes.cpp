// Every form of the sums of products of codes that this processor has: the same exact integers.
#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "llmc/device/host/simd_codes.h"
#include "test/support.h"

using llmc::host::CodeSums;

namespace {

struct Operands {
  std::uint8_t row[4];
  std::int8_t weights[64];
};

// Random codes, and those whose products and pairs of products are extreme.
std::vector<Operands> operands() {
  std::vector<Operands> all;
  for (const int u : {0, 1, 127, 128, 255}) {
    for (const int w : {-127, -1, 0, 1, 127}) {
      Operands& o = all.emplace_back();
      std::memset(o.row, u, sizeof o.row);
      std::memset(o.weights, w, sizeof o.weights);
    }
  }
  const std::vector<std::int32_t> random = llmc_test::random_ints(200 * 68, 3, 255);
  for (int i = 0; i < 200; ++i) {
    Operands& o = all.emplace_back();
    for (int j = 0; j < 4; ++j) o.row[j] = static_cast<std::uint8_t>(random[68 * i + j]);
    for (int j = 0; j < 64; ++j)
      o.weights[j] = static_cast<std::int8_t>(random[68 * i + 4 + j] - 127);
  }
  return all;
}

template <class Add>
int wrong_sums(const Add& add) {
  int wrong = 0;
  for (const Operands& o : operands()) {
    CodeSums sums;
    for (int c = 0; c < 16; ++c) sums[c] = 1000 * c;
    add(sums, llmc::host::four_codes(o.row), o.weights);
    for (int c = 0; c < 16; ++c) {
      int expected = 1000 * c;
      for (int i = 0; i < 4; ++i) expected += o.row[i] * o.weights[4 * c + i];
      wrong += sums[c] != expected;
    }
  }
  return wrong;
}

}  // namespace

TEST_SUITE_BEGIN("host_codes");

TEST_CASE("sums of products of codes are exact in every form") {
  using namespace llmc::host;
  CHECK(wrong_sums([](CodeSums& s, std::uint32_t u, const std::int8_t* w) {
          add_code_products(s, u, w);
        }) == 0);
  CHECK(wrong_sums([](CodeSums& s, std::uint32_t u, const std::int8_t* w) {
          add_code_products_plain(s, u, w);
        }) == 0);
#if defined(__AVX2__)
  CHECK(wrong_sums([](CodeSums& s, std::uint32_t u, const std::int8_t* w) {
          add_code_products_avx2(s, u, w);
        }) == 0);
#endif
}

TEST_SUITE_END();
