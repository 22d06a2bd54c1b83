// Attention in addition to its cases in dev/ops/attention.h: errors.
#include <doctest/doctest.h>

#include "llmc/ops/attention/attention.h"
#include "test/support.h"

namespace {

using namespace llmc;

TEST_SUITE("attention") {
  TEST_CASE("flash attention rejects shapes that it does not support") {
    Stream stream;
    Buffer<float> memory(1 << 16);
    const auto forward = [&](std::int64_t T, std::int64_t C, std::int64_t NH,
                             std::int64_t skip = 0) {
      flash_attention_forward(make_tensor(memory.data() + skip, 1, T, C),
                              make_tensor(memory.data(), 1, NH, T),
                              make_tensor(memory.data(), 1, T, 3 * C), NH, nullptr, stream);
    };
    CHECK_THROWS_WITH_AS(forward(4, 24, 2), doctest::Contains("multiple of 8, from 8 to 128"),
                         Error);
    CHECK_THROWS_WITH_AS(forward(4, 136, 1), doctest::Contains("head size 136"), Error);
    CHECK_THROWS_WITH_AS(forward(4, 32, 3),
                         doctest::Contains("32 channels are not a multiple of 3 heads"), Error);
    CHECK_THROWS_WITH_AS(forward(0, 32, 1), doctest::Contains("T = 0"), Error);
    CHECK_THROWS_WITH_AS(forward(4, 32, 1, 1), doctest::Contains("16 bytes"), Error);
    const auto x = make_tensor(memory.data(), 1, 4, 32);
    const auto packed = make_tensor(memory.data(), 1, 4, 96);
    const auto lse = make_tensor(memory.data(), 1, 1, 4);
    CHECK_THROWS_WITH_AS(flash_attention_forward(x, lse, x, 1, nullptr, stream),
                         doctest::Contains("'qkv'"), Error);
    CHECK_THROWS_WITH_AS(flash_attention_backward(packed, x, packed, x, lse, 1, nullptr,
                                                  make_tensor(memory.data(), 7), stream),
                         doctest::Contains("scratch"), Error);
  }
}

}  // namespace
