// Words as operands of products (device/words.h), in vectors of every width: N = 16 uses the
// processor's products of pairs if it has them, the others the general code.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "llmc/device/words.h"
#include "test/support.h"

namespace {

using namespace llmc;
using llmc_test::random_floats;

std::vector<bf16> bf16_numbers(std::int64_t n, int seed) {
  std::vector<bf16> numbers;
  for (const float x : random_floats(n, seed)) numbers.push_back(from_float<bf16>(x));
  return numbers;
}

Word pair_of(bf16 lower, bf16 upper) {
  return lower.bits | Word{upper.bits} << 16;
}

// Both products of a pair are exact in fp32; the sum is rounded once or twice.
template <int N>
void check_pair_products() {
  const std::vector<bf16> a = bf16_numbers(2, 1), b = bf16_numbers(2 * N, 2);
  const std::vector<float> sums = random_floats(N, 3);
  Word words[N];
  for (int j = 0; j < N; ++j)
    words[j] = pair_of(b[static_cast<std::size_t>(2 * j)], b[static_cast<std::size_t>(2 * j + 1)]);
  const Words<N> left(pair_of(a[0], a[1]));
  const Floats<N> result =
      add_products<bf16>(load_floats<N>(sums.data()), left, load_words<N>(words));
  for (int j = 0; j < N; ++j) {
    const auto at = static_cast<std::size_t>(j);
    double exact = static_cast<double>(sums[at]), size = std::fabs(exact);
    for (std::size_t i = 0; i < 2; ++i) {
      const double product =
          static_cast<double>(to_float(a[i])) * static_cast<double>(to_float(b[2 * at + i]));
      exact += product;
      size += std::fabs(product);
    }
    CHECK(std::fabs(static_cast<double>(result[j]) - exact) <= 2 * 0x1p-24 * size);
  }
}

template <int N>
void check_pairs() {
  const std::vector<bf16> x = bf16_numbers(N, 4), y = bf16_numbers(N, 5);
  Words<N> loaded = load_paired<N>(x.data(), y.data());
  Words<N> rounded = paired(load_floats<N>(x.data()), load_floats<N>(y.data()));
  Word from_memory[N], from_floats[N], in_order[N / 2];
  store_words(from_memory, loaded);
  store_words(from_floats, rounded);
  store_in_order<bf16>(in_order, load_floats<N>(x.data()));
  for (std::size_t j = 0; j < N; ++j) {
    CHECK(from_memory[j] == pair_of(x[j], y[j]));
    CHECK(from_floats[j] == pair_of(x[j], y[j]));
  }
  for (std::size_t j = 0; j < N / 2; ++j) CHECK(in_order[j] == pair_of(x[2 * j], x[2 * j + 1]));
}

}  // namespace

TEST_SUITE("words") {
  TEST_CASE("products of pairs of bf16 numbers are added in fp32") {
    check_pair_products<4>();
    check_pair_products<8>();
    check_pair_products<16>();
    check_pair_products<32>();
  }
  TEST_CASE("pairs of bf16 numbers have the earlier one in the lower half") {
    check_pairs<4>();
    check_pairs<8>();
    check_pairs<16>();
    check_pairs<32>();
  }
  TEST_CASE("numbers are rounded to pairs as to bf16") {
    const float halfway = 1.0f + 0x1p-8f, above = 1.0f + 0x1p-8f + 0x1p-20f;
    Word words[16];
    store_words(words, paired(Floats<16>(halfway), Floats<16>(above)));
    for (const Word word : words)
      CHECK(word == pair_of(from_float<bf16>(halfway), from_float<bf16>(above)));
  }
  TEST_CASE("words of fp32 are its bits") {
    const std::vector<float> x = random_floats(16, 6), sums = random_floats(16, 7);
    const Floats<16> numbers = load_floats<16>(x.data());
    const Words<16> left(bits_of(x[3]));
    const Floats<16> result =
        add_products<float>(load_floats<16>(sums.data()), left, words_of(numbers));
    for (int j = 0; j < 16; ++j) {
      const auto at = static_cast<std::size_t>(j);
      CHECK(floats_in(words_of(numbers))[j] == x[at]);
      const double exact =
          static_cast<double>(x[3]) * static_cast<double>(x[at]) + static_cast<double>(sums[at]);
      CHECK(std::fabs(static_cast<double>(result[j]) - exact) <=
            2 * 0x1p-24 * (std::fabs(exact) + std::fabs(static_cast<double>(sums[at]))));
    }
  }
}
