// Bias gradients in addition to their cases in dev/ops/bias_gradient.h: calls without rows or
// scratch, and errors.
#include <doctest/doctest.h>

#include "dev/harness/arrays.h"
#include "llmc/ops/bias_gradient.h"

namespace {

using namespace llmc;
using llmc_dev::DeviceArray;

TEST_SUITE("bias_gradient") {
  TEST_CASE("no rows change nothing; short scratch and odd row lengths are rejected") {
    Stream stream;
    const DeviceArray<float> x(std::vector<float>(64, 1.0f), stream);
    bias_gradient<float>(make_tensor(x.data(), 8), make_tensor(x.data(), 0, 8), {}, stream);
    // A frozen bias needs no scratch.
    bias_gradient<float>({}, make_tensor(x.data(), 2, 8), {}, stream);
    CHECK(x.stored() == std::vector<float>(64, 1.0f));
    CHECK_THROWS_WITH_AS(bias_gradient<float>(make_tensor(x.data(), 8), make_tensor(x.data(), 2, 8),
                                              make_tensor(x.data(), 7), stream),
                         doctest::Contains("scratch holds 7 floats, 8 are needed"), Error);
    CHECK_THROWS_WITH_AS(
        bias_gradient<float>(make_tensor(x.data(), 12), make_tensor(x.data(), 2, 12),
                             make_tensor(x.data(), 64), stream),
        doctest::Contains("rows of 12 elements"), Error);
  }
}

}  // namespace
