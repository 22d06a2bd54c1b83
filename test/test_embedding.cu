// The embedding in addition to its cases in dev/ops/embedding.h: errors.
#include <doctest/doctest.h>

#include "llmc/ops/embedding.h"

namespace {

using namespace llmc;

TEST_SUITE("embedding") {
  TEST_CASE("sequences longer than the context are rejected") {
    Stream stream;
    float x[64];
    std::int32_t tokens[4] = {};
    CHECK_THROWS_WITH_AS(
        embedding_forward<float>(make_tensor(x, 4, 8), make_tensor(tokens, 4), make_tensor(x, 1, 8),
                                 make_tensor(x, 3, 8), 4, stream),
        doctest::Contains("longer than the context"), Error);
  }
}

}  // namespace
