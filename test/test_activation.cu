// Activation functions in addition to their cases in dev/ops/activation.h: the accuracy of small
// results of GPT-2's GELU, and errors.
#include <doctest/doctest.h>

#include "dev/harness/arrays.h"
#include "llmc/ops/activation.h"
#include "test/oracle/ops.h"
#include "test/support.h"

namespace {

using namespace llmc;
using namespace llmc_test;
using llmc_dev::DeviceArray;

TEST_SUITE("activation") {
  TEST_CASE("small results keep their relative accuracy") {
    Stream stream;
    const std::vector<float> x = {-4.0f, -4.5f, -5.0f, -5.5f, -1e-7f, 1e-7f, -3.0f, -2.0f};
    const DeviceArray<float> array(x, stream);
    activation_forward<float>(make_tensor(array.data(), 1, 8), make_tensor(array.data(), 1, 8),
                              Activation::gelu_new, stream);
    const std::vector<float> result = array.stored();
    for (std::size_t i = 0; i < x.size(); ++i) {
      // The oracle's formula cancels at -5.5, to about 1e-8 of the result, far below the tolerance.
      CHECK(result[i] == doctest::Approx(oracle::gelu(as_double(x[i]))).epsilon(5e-6));
    }
  }

  TEST_CASE("the error names a tensor with a wrong shape") {
    Stream stream;
    float x[16];
    CHECK_THROWS_WITH_AS(activation_forward<float>(make_tensor(x, 2, 8), make_tensor(x, 1, 8),
                                                   Activation::gelu_new, stream),
                         doctest::Contains("tensor 'out' has shape (2, 8), expected (1, 8)"),
                         Error);
  }
}

}  // namespace
