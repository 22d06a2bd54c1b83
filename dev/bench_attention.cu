// Attention, flash and standard, forward and backward, in time and memory over T. One head is held
// against the oracle, from the first key to the last query.
#include "dev/bench.h"
#include "llmc/ops/attention.h"
#include "llmc/ops/standard_attention.h"
#include "test/oracle/ops.h"

namespace {

using namespace llmc_bench;
namespace oracle = llmc::oracle;

struct Shape {
  std::int64_t B, T, NH, HS;
  std::int64_t C() const { return NH * HS; }
  std::int64_t rows() const { return B * T; }
  std::int64_t squares() const { return B * NH * T * T; }
  std::string text() const {
    return "B " + std::to_string(B) + " T " + std::to_string(T) + " " + by(NH, HS);
  }
  // A product over the visible half of the (T, T) matrix of every head: two FLOP for each of HS.
  double product_flops() const { return static_cast<double>(squares()) * static_cast<double>(HS); }
};

// What forward leaves for backward, in bytes: the input, the output, the log-sum-exp, and for
// standard attention the probabilities.
template <class T>
double kept(Shape s, bool standard) {
  const double elements = 4.0 * static_cast<double>(s.rows() * s.C());
  return sizeof(T) * (elements + (standard ? static_cast<double>(s.squares()) : 0.0)) +
         sizeof(float) * static_cast<double>(s.rows() * s.NH);
}

// Sums over HS columns of a score and up to T keys, in fp32, with twice what roundings of either
// sign add up to. bf16 keeps 8 bits, and one rounding costs 0.72 * 2^-8 / sqrt(3) of a tensor's
// norm: out and d_v see two (the probabilities, the result), d_q and d_k three; twice that is
// allowed. Standard attention stores its scores and probabilities: one and two roundings more.
// The log-sum-exp is held to what its largest may err by; its own size is 1 or more.
struct Tolerances {
  double out, lse, d_qk, d_v;
};
template <class T>
Tolerances tolerances(Shape s, bool standard) {
  const double fp32 =
      (4 + std::sqrt(static_cast<double>(s.HS)) + std::sqrt(static_cast<double>(s.T))) * 0x1p-24;
  if (sizeof(T) == 4) return {fp32, 4 * fp32, fp32, fp32};
  const double rounding = 2 * 0.72 * 0x1p-8 / std::sqrt(3.0);
  const double exponential = 4 * 0x1p-22;  // of the GPU's approximation
  const double score = 4 * 0x1p-8;         // of a stored one, which may be as large as 4
  return {rounding * std::sqrt(standard ? 3.0 : 2.0), 4 * fp32 + (standard ? score : exponential),
          rounding * std::sqrt(standard ? 5.0 : 3.0), rounding * std::sqrt(standard ? 3.0 : 2.0)};
}

// Columns [first, first + HS) of the last batch row of x (B*T, width), for `parts` parts that lie C
// apart: (T, parts * HS). The head looked at is the last.
template <class T>
oracle::Vec last_head(Shape s, const DeviceArray<T>& x, std::int64_t parts) {
  const std::int64_t width = parts * s.C();
  const oracle::Vec all = x.values((s.rows() - s.T) * width, s.T * width);
  oracle::Vec head;
  for (std::int64_t t = 0; t < s.T; ++t) {
    for (std::int64_t part = 0; part < parts; ++part) {
      const auto from = all.begin() + t * width + part * s.C() + s.C() - s.HS;
      head.insert(head.end(), from, from + s.HS);
    }
  }
  return head;
}

// One of the three parts of a head's packed gradient (T, 3 HS).
oracle::Vec part_of(Shape s, const oracle::Vec& packed, std::int64_t part) {
  oracle::Vec out;
  for (std::int64_t t = 0; t < s.T; ++t) {
    const auto from = packed.begin() + (t * 3 + part) * s.HS;
    out.insert(out.end(), from, from + s.HS);
  }
  return out;
}

// The views that the ops take, of one set.
template <class T>
auto packed(Shape s, const DeviceArray<T>& x, int i) {
  return make_tensor(x.at(i), s.B, s.T, 3 * s.C());
}
template <class T>
auto plain(Shape s, const DeviceArray<T>& x, int i) {
  return make_tensor(x.at(i), s.B, s.T, s.C());
}
inline auto by_head(Shape s, const DeviceArray<float>& x, int i) {
  return make_tensor(x.at(i), s.B, s.NH, s.T);
}
template <class T>
auto square(Shape s, const DeviceArray<T>& x, int i) {
  return make_tensor(x.at(i), s.B, s.NH, s.T, s.T);
}

template <class T>
void forward(Bench& bench, Shape s) {
  Case c(bench, {.op = "attention_forward",
                 .shape = s.text(),
                 .dtype = kDtypeOf<T>,
                 .variants = {"flash", "standard"},
                 .bytes = sizeof(T) * 4.0 * static_cast<double>(s.rows() * s.C()),
                 .flops = 2 * s.product_flops()});
  if (!c.wanted()) return;
  auto& qkv = c.input<T>(s.rows() * 3 * s.C(), normal(1));
  auto& out = c.output<T>(s.rows() * s.C());
  auto& lse = c.output<float>(s.rows() * s.NH);
  c.variant("flash",
            [&](int i) {
              llmc::flash_attention_forward(plain(s, out, i), by_head(s, lse, i), packed(s, qkv, i),
                                            s.NH, nullptr, bench.stream());
            },
            {.kept_bytes = kept<T>(s, false)});
  if (c.fits("standard", static_cast<double>(qkv.sets() * s.squares()) * sizeof(T))) {
    auto& probabilities = c.input<T>(s.squares(), kUnwritten);
    c.variant("standard",
              [&](int i) {
                llmc::standard_attention_forward(plain(s, out, i), by_head(s, lse, i),
                                                 square(s, probabilities, i), packed(s, qkv, i),
                                                 s.NH, nullptr, bench.stream());
              },
              {.kept_bytes = kept<T>(s, true)});
  }
  const auto want = oracle::attention_forward(last_head(s, qkv, 3), 1, s.T, 1, s.HS);
  c.finish([&](const std::string& variant) {
    const Tolerances allowed = tolerances<T>(s, variant == "standard");
    return std::vector{
        compare("out", last_head(s, out, 1), want.out, allowed.out),
        compare("lse", lse.values(lse.size() - s.T, s.T), want.log_sum_exp, allowed.lse)};
  });
}

template <class T>
void backward(Bench& bench, Shape s) {
  Case c(bench, {.op = "attention_backward",
                 .shape = s.text(),
                 .dtype = kDtypeOf<T>,
                 .variants = {"flash", "standard"},
                 .bytes = sizeof(T) * 8.0 * static_cast<double>(s.rows() * s.C()),
                 .flops = 5 * s.product_flops()});
  if (!c.wanted()) return;
  const std::int64_t floats = llmc::flash_attention_backward_scratch(s.B, s.T, s.NH, s.HS);
  auto& qkv = c.input<T>(s.rows() * 3 * s.C(), normal(1));
  auto& d_out = c.input<T>(s.rows() * s.C(), normal(2));
  auto& out = c.input<T>(s.rows() * s.C(), kComputed);
  auto& lse = c.input<float>(s.rows() * s.NH, kComputed);
  auto& scratch = c.input<float>(floats, kUnwritten);
  auto& d_qkv = c.output<T>(s.rows() * 3 * s.C());
  const auto scratch_of = [&](int i) { return make_tensor(scratch.at(i), floats); };
  const double scratch_bytes = sizeof(float) * static_cast<double>(floats);
  for (int i = 0; i < qkv.sets(); ++i) {
    llmc::flash_attention_forward(plain(s, out, i), by_head(s, lse, i), packed(s, qkv, i), s.NH,
                                  nullptr, bench.stream());
  }
  c.variant("flash",
            [&](int i) {
              llmc::flash_attention_backward(
                  packed(s, d_qkv, i), plain(s, d_out, i), packed(s, qkv, i), plain(s, out, i),
                  by_head(s, lse, i), s.NH, nullptr, scratch_of(i), bench.stream());
            },
            {.kept_bytes = kept<T>(s, false) + scratch_bytes});
  if (c.fits("standard", static_cast<double>(qkv.sets() * s.squares()) * sizeof(T))) {
    // Backward overwrites the probabilities, so each run is prepared by a forward pass of its own.
    auto& probabilities = c.input<T>(s.squares(), kUnwritten);
    auto& own_out = c.input<T>(s.rows() * s.C(), kComputed);
    auto& own_lse = c.input<float>(s.rows() * s.NH, kComputed);
    c.variant("standard",
              [&](int i) {
                llmc::standard_attention_backward(packed(s, d_qkv, i), square(s, probabilities, i),
                                                  plain(s, d_out, i), packed(s, qkv, i),
                                                  plain(s, own_out, i), by_head(s, own_lse, i),
                                                  s.NH, scratch_of(i), bench.stream());
              },
              {.kept_bytes = kept<T>(s, true) + scratch_bytes, .prepare = [&](int i) {
                 llmc::standard_attention_forward(plain(s, own_out, i), by_head(s, own_lse, i),
                                                  square(s, probabilities, i), packed(s, qkv, i),
                                                  s.NH, nullptr, bench.stream());
               }});
  }
  const oracle::Vec want =
      oracle::attention_backward(last_head(s, d_out, 1), last_head(s, qkv, 3), 1, s.T, 1, s.HS);
  c.finish([&](const std::string& variant) {
    const Tolerances allowed = tolerances<T>(s, variant == "standard");
    const oracle::Vec got = last_head(s, d_qkv, 3);
    return std::vector{compare("d_q", part_of(s, got, 0), part_of(s, want, 0), allowed.d_qk),
                       compare("d_k", part_of(s, got, 1), part_of(s, want, 1), allowed.d_qk),
                       compare("d_v", part_of(s, got, 2), part_of(s, want, 2), allowed.d_v)};
  });
}

void run(Bench& bench) {
  std::vector<Shape> shapes;
  if (bench.wants(ShapeSet::small)) {
    shapes.insert(shapes.end(),
                  {{1, 17, 3, 40}, {2, 65, 2, 64}, {1, 130, 1, 128}, {1, 257, 1, 24}});
  }
  if (bench.wants(ShapeSet::gpt2)) {
    // The tokens of a batch of 32 x 1024, whatever T; then the heads of 1558M.
    for (std::int64_t T = 128; T <= 16384; T *= 2) shapes.push_back({32768 / T, T, 12, 64});
    shapes.push_back({16, 1024, 25, 64});
  }
  for (const Shape s : shapes) {
    forward<float>(bench, s);
    forward<bf16>(bench, s);
    backward<float>(bench, s);
    backward<bf16>(bench, s);
  }
}

}  // namespace

int main(int argc, char** argv) {
  return bench_main(argc, argv, "flash and standard attention", run);
}
