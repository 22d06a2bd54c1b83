// Observers of quantized passes, for tests of quantization-aware training.
#pragma once

#include <cmath>
#include <cstdint>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "llmc/nn/fake_quantization.h"
#include "test/support.h"

namespace llmc_test {

using namespace llmc;

// The passes of a mode.
inline QuantizedPass quantized_pass(QatMode mode, bool zero_points) {
  return {.weights = mode != QatMode::none,
          .activations = mode == QatMode::w8a8,
          .zero_points = zero_points};
}

// The values of an observed matrix.
inline std::vector<double> values_of(const ObservedMatrix& matrix, Stream& stream) {
  std::vector<double> values;
  dispatch_dtype(matrix.dtype, [&]<class T>() {
    std::vector<T> stored(static_cast<std::size_t>(matrix.rows * matrix.columns));
    copy_to_host(stored.data(), static_cast<const T*>(matrix.data), std::ssize(stored), stream);
    stream.synchronize();
    for (const T& x : stored) values.push_back(static_cast<double>(to_float(x)));
  });
  return values;
}

// Stores all matrices, in the order in which a layer writes those of a kind.
class MatrixRecorder final : public QuantizationObserver {
 public:
  using Key = std::pair<ObservedMatrix::Kind, std::string>;

  void written(const ObservedMatrix& matrix, Stream& stream) override {
    all_[{matrix.kind, matrix.weight.name}].push_back(values_of(matrix, stream));
  }
  const std::vector<std::vector<double>>& of(ObservedMatrix::Kind kind,
                                             const std::string& weight) const {
    return all_.at({kind, weight});
  }
  const std::map<Key, std::vector<std::vector<double>>>& all() const { return all_; }

 private:
  std::map<Key, std::vector<std::vector<double>>> all_;
};

// Counts the sums of products of codes that fp32 may not hold exactly: those of 2^24 and more.
class LargeSumCounter final : public QuantizationObserver {
 public:
  void written(const ObservedMatrix& matrix, Stream& stream) override {
    if (matrix.kind != ObservedMatrix::Kind::sums) return;
    if (matrix.weight.name == "wte.weight") return;  // products with numbers that are not codes
    for (const double sum : values_of(matrix, stream)) {
      ++sums;
      if (std::fabs(sum) >= 0x1p24) ++large;
    }
  }

  std::int64_t sums = 0, large = 0;
};

}  // namespace llmc_test
