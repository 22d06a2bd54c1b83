#include <cmath>
#include <cstdint>
#include <string>

#include "llmc/device/device.h"
#include "llmc/ops/checks.h"
#include "llmc/ops/dropout.h"
#include "llmc/ops/instantiate.h"

namespace llmc {

Dropout make_dropout(double rate, std::uint64_t seed, std::int64_t step, std::int64_t site,
                     std::int64_t first_sample) {
  require(rate >= 0 && rate < 1, "dropout probability " + std::to_string(rate) + " is out of range",
          "use a probability from 0 to below 1");
  Dropout dropout;
  const double threshold = std::fmin(std::round(rate * 0x1p32), 4294967295.0);
  dropout.threshold = static_cast<std::uint32_t>(threshold);
  dropout.scale = static_cast<float>(1 / (1 - threshold * 0x1p-32));
  dropout.seed = seed;
  dropout.step = static_cast<std::uint32_t>(step);
  dropout.site = static_cast<std::uint32_t>(site);
  dropout.first_sample = first_sample;
  return dropout;
}

// One block per row.
template <class T>
__global__ void dropout_kernel(T* out, const T* inp, std::int64_t T_seq, std::int64_t C,
                               Dropout dropout) {
  constexpr int N = kVecSize<T>;
  const std::int64_t row = block_x();
  const std::int64_t batch_row = dropout.first_row + row;
  const DropoutMask mask = dropout.row_mask(batch_row / T_seq);
  for (std::int64_t c = thread_index() * N; c < C; c += block_size() * N) {
    Vec<T, N> x = load_vec<N>(inp + row * C + c);
    for (int k = 0; k < N; k += 4) {
      const PhiloxBits bits = mask.bits(batch_row % T_seq, (dropout.first_column + c + k) / 4, 0);
      for (int i = 0; i < 4; ++i) {
        // Select instead of multiply: a dropped Inf or NaN must become 0.
        const float value = to_float(x[k + i]) * mask.scale;
        x[k + i] = from_float<T>(mask.keeps(bits.words[i]) ? value : 0.0f);
      }
    }
    store_vec(out + row * C + c, x);
  }
}

template <class T>
void apply_dropout(Tensor<T, 2> out, In<T, 2> inp, std::int64_t T_seq, const Dropout& dropout,
                   Stream& stream) {
  const ProfileScope scope("dropout", stream, memory_traffic(out, inp));
  const std::int64_t rows = out.shape[0], C = out.shape[1];
  require_vector_rows("apply_dropout", C);
  check_shape("inp", inp, {rows, C});
  require(T_seq > 0 && dropout.first_row >= 0 && dropout.first_column % 4 == 0,
          "apply_dropout: the sequences are empty, the first row is negative, or the first column "
          "is not a multiple of 4");
  require(dropout.enabled(), "apply_dropout: dropout is disabled");
  const std::int64_t vectors = ceil_div(C, kVecSize<T>);
  const int threads = static_cast<int>(round_up(vectors < 256 ? vectors : 256, 32));
  launch(dropout_kernel<T>, Grid{rows, 1, 1}, threads, 0, stream, out.data, inp.data, T_seq, C,
         dropout);
}

LLMC_INSTANTIATE(apply_dropout)

}  // namespace llmc
