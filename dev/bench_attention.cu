// Attention: flash and standard, each with and without dropout, forward and backward, in time and
// memory over T. Only the last head of the last batch row is compared with the oracle; for long
// sequences, only its last positions, which attend to the whole sequence.
#include "dev/bench.h"
#include "llmc/ops/attention/attention.h"
#include "llmc/ops/attention/standard_attention.h"
#include "test/oracle/dropout.h"
#include "test/oracle/ops.h"

namespace {

using namespace llmc_bench;
namespace oracle = llmc::oracle;

struct Shape {
  std::int64_t B, T, NH, HS;
  bool fp16 = true, dropout = true;
  std::int64_t C() const { return NH * HS; }
  std::int64_t rows() const { return B * T; }
  std::int64_t squares() const { return B * NH * T * T; }
  // First position compared with the oracle, which would take minutes for all positions of the
  // longest T.
  std::int64_t checked_from() const { return T > 4096 ? T - 512 : 0; }
  std::string text() const {
    return "B " + std::to_string(B) + " T " + std::to_string(T) + " " + by(NH, HS);
  }
  // FLOP of one product over the visible half of every head's (T, T) matrix: 2 * HS per element.
  double product_flops() const { return static_cast<double>(squares()) * static_cast<double>(HS); }
};

// GPT-2's dropout rate. All other values that a mask depends on are far from zero, and sample
// numbers cross 2^32 within a batch of two.
constexpr double kRate = 0.1;
constexpr std::uint64_t kSeed = 0xfedcba9876543210;
constexpr std::int64_t kStep = 77, kSite = 7, kFirstSample = (std::int64_t{1} << 32) - 1;

llmc::Dropout dropout() {
  return llmc::make_dropout(kRate, kSeed, kStep, kSite, kFirstSample);
}

// The oracle's dropout factors for the probabilities of the last head of the last batch row.
oracle::AttentionFactor factor_of(Shape s) {
  const oracle::Dropout definition{.seed = kSeed, .step = kStep, .first_sample = kFirstSample};
  return [=](std::int64_t, std::int64_t, std::int64_t i, std::int64_t j) {
    return definition.factor(kRate, kSite, s.B - 1, i, j, s.NH - 1);
  };
}

bool has_dropout(const std::string& variant) {
  return variant.ends_with("_dropout");
}
bool is_standard(const std::string& variant) {
  return variant.starts_with("standard");
}

std::vector<std::string> variants(Shape s) {
  if (!s.dropout) return {"flash", "standard"};
  return {"flash", "flash_dropout", "standard", "standard_dropout"};
}

// Bytes that forward keeps for backward: the input, the output, the log-sum-exp, and for standard
// attention the probabilities.
template <class T>
double kept(Shape s, bool standard) {
  const double elements = 4.0 * static_cast<double>(s.rows() * s.C());
  return sizeof(T) * (elements + (standard ? static_cast<double>(s.squares()) : 0.0)) +
         sizeof(float) * static_cast<double>(s.rows() * s.NH);
}

// fp32: a score sums over HS columns, an output over up to T keys; twice what roundings of either
// sign add up to is allowed.
//
// Half precision: one rounding costs 0.72 kRounding / sqrt(3) of a tensor's norm. out and d_v see
// two roundings (the probabilities, the result), d_q and d_k three; twice that is allowed. Dropout
// scales the expected values and the errors alike.
//
// Standard attention also stores its scores and probabilities: one more rounding for out and d_v,
// two for d_q and d_k, relative to the size of a score. That size is about 1. In the few checked
// positions of a long sequence the largest scores, up to 4, weigh most.
//
// The tolerance of the log-sum-exp is the error of the largest scores; a log-sum-exp is 1 or more.
struct Tolerances {
  double out, lse, d_qk, d_v;
};
template <class T>
Tolerances tolerances(Shape s, bool standard) {
  const double fp32 =
      (4 + std::sqrt(static_cast<double>(s.HS)) + std::sqrt(static_cast<double>(s.T))) * 0x1p-24;
  if (sizeof(T) == 4) return {fp32, 4 * fp32, fp32, fp32};
  const double rounding = 2 * 0.72 * kRounding<T> / std::sqrt(3.0);
  const double exponential = 4 * 0x1p-22;  // from the GPU's approximate exponential
  const double score = 4 * kRounding<T>;   // rounding of a stored score, which may be as large as 4
  const double more = !standard ? 0.0 : s.checked_from() == 0 ? 1.0 : 16.0;
  return {rounding * std::sqrt(2 + more), 4 * fp32 + (standard ? score : exponential),
          rounding * std::sqrt(3 + 2 * more), rounding * std::sqrt(2 + more)};
}

// The last head of the last batch row of x (B*T, parts * C), as (T, parts * HS): the last HS
// columns of each part.
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

// The rows of one part of a head (T, parts * HS) that are compared with the oracle.
oracle::Vec checked(Shape s, const oracle::Vec& head, std::int64_t part = 0,
                    std::int64_t parts = 1) {
  oracle::Vec out;
  for (std::int64_t t = s.checked_from(); t < s.T; ++t) {
    const auto from = head.begin() + (t * parts + part) * s.HS;
    out.insert(out.end(), from, from + s.HS);
  }
  return out;
}

// Views of one set, in the shapes that the ops expect.
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

// Returns whether the (T, T) matrices of any standard variant fit in memory. Drops the variants for
// which they do not.
template <class T>
bool room_for_squares(Case& c, Shape s, int sets) {
  const double bytes = static_cast<double>(sets * s.squares()) * sizeof(T);
  const bool without = c.fits("standard", bytes), with = c.fits("standard_dropout", bytes);
  return without || with;
}

template <class T>
void forward(Bench& bench, Shape s) {
  Case c(bench, {.op = "attention_forward",
                 .shape = s.text(),
                 .dtype = kDtypeOf<T>,
                 .variants = variants(s),
                 .bytes = sizeof(T) * 4.0 * static_cast<double>(s.rows() * s.C()),
                 .flops = 2 * s.product_flops()});
  if (!c.is_selected()) return;
  auto& qkv = c.input<T>(s.rows() * 3 * s.C(), normal(1));
  auto& out = c.output<T>(s.rows() * s.C());
  auto& lse = c.output<float>(s.rows() * s.NH);
  const auto flash = [&](const char* name, const llmc::Dropout& dropped) {
    c.variant(name,
              [&, dropped](int i) {
                llmc::flash_attention_forward(plain(s, out, i), by_head(s, lse, i),
                                              packed(s, qkv, i), s.NH, nullptr, dropped,
                                              bench.stream());
              },
              {.kept_bytes = kept<T>(s, false)});
  };
  flash("flash", {});
  flash("flash_dropout", dropout());
  if (room_for_squares<T>(c, s, qkv.sets())) {
    auto& probabilities = c.input<T>(s.squares(), kUnwritten);
    const auto standard = [&](const char* name, const llmc::Dropout& dropped) {
      c.variant(name,
                [&, dropped](int i) {
                  llmc::standard_attention_forward(plain(s, out, i), by_head(s, lse, i),
                                                   square(s, probabilities, i), packed(s, qkv, i),
                                                   s.NH, nullptr, bench.stream(), dropped);
                },
                {.kept_bytes = kept<T>(s, true)});
    };
    standard("standard", {});
    standard("standard_dropout", dropout());
  }
  const oracle::Vec head = last_head(s, qkv, 3);
  const std::int64_t from = s.checked_from();
  auto expected = oracle::attention_forward(head, 1, s.T, 1, s.HS, {}, {}, from);
  expected.log_sum_exp.erase(expected.log_sum_exp.begin(), expected.log_sum_exp.begin() + from);
  const oracle::Vec expected_dropped =
      s.dropout ? oracle::attention_forward(head, 1, s.T, 1, s.HS, {}, factor_of(s), from).out
                : oracle::Vec{};
  c.finish([&](const std::string& variant) {
    const Tolerances allowed = tolerances<T>(s, is_standard(variant));
    const oracle::Vec& reference = has_dropout(variant) ? expected_dropped : expected.out;
    return std::vector{
        compare("out", checked(s, last_head(s, out, 1)), checked(s, reference), allowed.out),
        compare("lse", lse.values(lse.size() - s.T + from, s.T - from), expected.log_sum_exp,
                allowed.lse)};
  });
}

template <class T>
void backward(Bench& bench, Shape s) {
  Case c(bench, {.op = "attention_backward",
                 .shape = s.text(),
                 .dtype = kDtypeOf<T>,
                 .variants = variants(s),
                 .bytes = sizeof(T) * 8.0 * static_cast<double>(s.rows() * s.C()),
                 .flops = 5 * s.product_flops()});
  if (!c.is_selected()) return;
  const std::int64_t floats = llmc::flash_attention_backward_scratch(s.B, s.T, s.NH, s.HS);
  auto& qkv = c.input<T>(s.rows() * 3 * s.C(), normal(1));
  auto& d_out = c.input<T>(s.rows() * s.C(), normal(2));
  auto& scratch = c.input<float>(floats, kUnwritten);
  auto& d_qkv = c.output<T>(s.rows() * 3 * s.C());
  const auto scratch_of = [&](int i) { return make_tensor(scratch.at(i), floats); };
  const double scratch_bytes = sizeof(float) * static_cast<double>(floats);
  const auto flash = [&](const char* name, const llmc::Dropout& dropped) {
    if (!c.is_selected(name)) return;
    auto& out = c.input<T>(s.rows() * s.C(), kComputed);
    auto& lse = c.input<float>(s.rows() * s.NH, kComputed);
    for (int i = 0; i < qkv.sets(); ++i) {
      llmc::flash_attention_forward(plain(s, out, i), by_head(s, lse, i), packed(s, qkv, i), s.NH,
                                    nullptr, dropped, bench.stream());
    }
    c.variant(name,
              [&, dropped](int i) {
                llmc::flash_attention_backward(
                    packed(s, d_qkv, i), plain(s, d_out, i), packed(s, qkv, i), plain(s, out, i),
                    by_head(s, lse, i), s.NH, nullptr, dropped, scratch_of(i), bench.stream());
              },
              {.kept_bytes = kept<T>(s, false) + scratch_bytes});
  };
  flash("flash", {});
  flash("flash_dropout", dropout());
  if (room_for_squares<T>(c, s, qkv.sets())) {
    // Backward overwrites the probabilities, so each run is prepared by a forward pass of its own.
    auto& probabilities = c.input<T>(s.squares(), kUnwritten);
    auto& out = c.input<T>(s.rows() * s.C(), kComputed);
    auto& lse = c.input<float>(s.rows() * s.NH, kComputed);
    const auto standard = [&](const char* name, const llmc::Dropout& dropped) {
      c.variant(name,
                [&, dropped](int i) {
                  llmc::standard_attention_backward(
                      packed(s, d_qkv, i), square(s, probabilities, i), plain(s, d_out, i),
                      packed(s, qkv, i), plain(s, out, i), by_head(s, lse, i), s.NH, scratch_of(i),
                      bench.stream(), dropped);
                },
                {.kept_bytes = kept<T>(s, true) + scratch_bytes, .prepare = [&, dropped](int i) {
                   llmc::standard_attention_forward(plain(s, out, i), by_head(s, lse, i),
                                                    square(s, probabilities, i), packed(s, qkv, i),
                                                    s.NH, nullptr, bench.stream(), dropped);
                 }});
    };
    standard("standard", {});
    standard("standard_dropout", dropout());
  }
  const oracle::Vec d_head = last_head(s, d_out, 1), head = last_head(s, qkv, 3);
  const std::int64_t first = s.checked_from();
  const oracle::Vec expected =
      oracle::attention_backward(d_head, head, 1, s.T, 1, s.HS, {}, {}, first);
  const oracle::Vec expected_dropped =
      s.dropout ? oracle::attention_backward(d_head, head, 1, s.T, 1, s.HS, {}, factor_of(s), first)
                : oracle::Vec{};
  c.finish([&](const std::string& variant) {
    const Tolerances allowed = tolerances<T>(s, is_standard(variant));
    const oracle::Vec& reference = has_dropout(variant) ? expected_dropped : expected;
    const oracle::Vec got = last_head(s, d_qkv, 3);
    const auto part = [&](const char* name, std::int64_t at, double limit) {
      return compare(name, checked(s, got, at, 3), checked(s, reference, at, 3), limit);
    };
    return std::vector{part("d_q", 0, allowed.d_qk), part("d_k", 1, allowed.d_qk),
                       part("d_v", 2, allowed.d_v)};
  });
}

void run(Bench& bench) {
  std::vector<Shape> shapes;
  if (bench.includes(ShapeSet::small)) {
    shapes.insert(shapes.end(),
                  {{1, 17, 3, 40}, {2, 65, 2, 64}, {1, 130, 1, 128}, {1, 257, 1, 24}});
  }
  if (bench.includes(ShapeSet::gpt2)) {
    // Every T has the tokens of a batch of 32 x 1024. The last shape has the heads of 1558M. The
    // longest T run without dropout, because the oracle needs hundreds of instructions per mask
    // element.
    for (std::int64_t T = 128; T <= 16384; T *= 2) {
      shapes.push_back({32768 / T, T, 12, 64, T == 1024, T <= 2048});
    }
    shapes.push_back({16, 1024, 25, 64, false});
  }
  for (const Shape s : shapes) {
    for_each_dtype(s.fp16, [&]<class T>() { forward<T>(bench, s); });
    for_each_dtype(s.fp16, [&]<class T>() { backward<T>(bench, s); });
  }
}

}  // namespace

int main(int argc, char** argv) {
  return bench_main(argc, argv, "flash and standard attention", run);
}
