// Attention: flash and standard, each with and without dropout, forward and backward, in time and
// memory over T. Of large shapes, only the last head of the last batch row is compared with the
// oracle; of long sequences, only its last positions, which attend to the whole sequence.
#pragma once

#include "dev/harness/op_case.h"
#include "dev/ops/shared/attention_case.h"
#include "llmc/ops/attention/attention.h"
#include "llmc/ops/attention/attention_choice.h"
#include "llmc/ops/attention/attention_row_terms.h"
#include "llmc/ops/attention/flash_attention_backward.h"
#include "llmc/ops/attention/flash_attention_forward.h"
#include "llmc/ops/attention/standard_attention.h"
#include "test/oracle/attention.h"
#include "test/oracle/ops.h"

namespace llmc_dev::attention {

namespace oracle = llmc::oracle;

inline bool has_dropout(const std::string& variant) {
  return variant.ends_with("_dropout");
}
inline bool is_standard(const std::string& variant) {
  return variant.starts_with("standard");
}

// If half precision does not run on tensor cores, the kernels for them are a variant of their own:
// host builds check what GPUs run.
template <class T>
constexpr bool kHasMmaVariant = sizeof(T) == 2 && !llmc::kTensorCoreAttention<T>;

template <bool kMma, class T>
void flash_forward(llmc::Tensor<T, 3> out, llmc::Tensor<float, 3> lse, llmc::Tensor<T, 3> qkv,
                   std::int64_t NH, const std::int32_t* doc_start, const llmc::Dropout& dropout,
                   llmc::Stream& stream) {
  if constexpr (kMma) {
    const llmc::AttentionShape shape = llmc::check_attention("out", out, NH);
    llmc::dispatch_dropout(dropout, [&]<bool kDropout>() {
      llmc::launch_flash_forward<T, kDropout>(out.data, lse.data, qkv.data, doc_start, shape,
                                              llmc::attention_scale(shape, {}), dropout, stream);
    });
  } else {
    llmc::flash_attention_forward<T>(out, lse, qkv, NH, doc_start, stream, dropout);
  }
}

template <bool kMma, class T>
void flash_backward(llmc::Tensor<T, 3> d_qkv, llmc::Tensor<T, 3> d_out, llmc::Tensor<T, 3> qkv,
                    llmc::Tensor<T, 3> out, llmc::Tensor<float, 3> lse, std::int64_t NH,
                    const std::int32_t* doc_start, const llmc::Dropout& dropout,
                    llmc::Tensor<float, 1> scratch, llmc::Stream& stream) {
  if constexpr (kMma) {
    const llmc::AttentionShape shape = llmc::check_attention("out", out, NH);
    const llmc::RowTerms terms =
        llmc::compute_row_terms(scratch.data, out.data, d_out.data, lse.data, shape, stream);
    llmc::dispatch_dropout(dropout, [&]<bool kDropout>() {
      llmc::launch_flash_backward<T, kDropout>(d_qkv.data, d_out.data, qkv.data, terms, doc_start,
                                               shape, llmc::attention_scale(shape, {}), dropout,
                                               stream);
    });
  } else {
    llmc::flash_attention_backward<T>(d_qkv, d_out, qkv, out, lse, NH, doc_start, scratch, stream,
                                      dropout);
  }
}

template <class T>
std::vector<std::string> variants(Shape s) {
  std::vector<std::string> names;
  for (const char* name : {"flash", "mma", "standard"}) {
    if (name == std::string("mma") && !kHasMmaVariant<T>) continue;
    names.push_back(name);
    if (s.rate > 0) names.push_back(name + std::string("_dropout"));
  }
  return names;
}

// Calls f.template operator()<kMma>(name, dropout) for the variants that are not standard.
template <class T, class F>
void for_each_flash(Shape s, const F& f) {
  const auto with_and_without_dropout = [&]<bool kMma>(const std::string& name) {
    f.template operator()<kMma>(name, llmc::Dropout{});
    f.template operator()<kMma>(name + "_dropout", dropout(s));
  };
  with_and_without_dropout.template operator()<false>("flash");
  if constexpr (kHasMmaVariant<T>) {
    with_and_without_dropout.template operator()<true>("mma");
  }
}

// Bytes that forward keeps for backward: the input, the output, the log-sum-exp, and for standard
// attention the probabilities.
template <class T>
double kept(Shape s, bool standard) {
  const double elements = 4.0 * static_cast<double>(s.rows() * s.C());
  return sizeof(T) * (elements + (standard ? static_cast<double>(s.squares()) : 0.0)) +
         sizeof(float) * static_cast<double>(s.rows() * s.NH);
}

inline double bytes_of(const DeviceArray<float>& x) {
  return sizeof(float) * static_cast<double>(x.size());
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
inline auto flat(const DeviceArray<float>& x, int i) {
  return make_tensor(x.at(i), x.size());
}
template <class T>
auto square(Shape s, const DeviceArray<T>& x, int i) {
  return make_tensor(x.at(i), s.B, s.NH, s.T, s.T);
}

// Scores q . k / sqrt(HS) have the deviation s.sharpness.
template <class T>
DeviceArray<T>& qkv_input(OpCase& c, Shape s) {
  return c.input<T>(s.rows() * 3 * s.C(), normal(1, static_cast<float>(std::sqrt(s.sharpness))));
}

// Returns whether the (T, T) matrices of any standard variant fit in memory. Drops the variants for
// which they do not.
template <class T>
bool room_for_squares(OpCase& c, Shape s, int sets) {
  const double bytes = static_cast<double>(sets * s.squares()) * sizeof(T);
  const bool without = c.fits("standard", bytes), with = c.fits("standard_dropout", bytes);
  return without || with;
}

template <class T>
void forward(OpRunner& runner, Shape s) {
  OpCase c(runner, {.op = "attention_forward",
                    .shape = s.text(),
                    .dtype = kDtypeOf<T>,
                    .variants = variants<T>(s),
                    .bytes = sizeof(T) * 4.0 * static_cast<double>(s.rows() * s.C()),
                    .flops = 2 * s.product_flops(),
                    .timed = !s.documents});  // the FLOP are those without documents
  if (!c.is_selected()) return;
  const DeviceArray<std::int32_t> starts(document_starts(s), runner.stream());
  const std::int32_t* const doc_start = s.documents ? starts.data() : nullptr;
  auto& qkv = qkv_input<T>(c, s);
  auto& out = c.output<T>(s.rows() * s.C());
  auto& lse = c.output<float>(s.rows() * s.NH);
  const auto flash = [&]<bool kMma>(const auto& name, const auto& dropped) {
    c.variant(name,
              [&, dropped](int i) {
                flash_forward<kMma>(plain(s, out, i), by_head(s, lse, i), packed(s, qkv, i), s.NH,
                                    doc_start, dropped, runner.stream());
              },
              {.kept_bytes = kept<T>(s, false)});
  };
  for_each_flash<T>(s, flash);
  if (room_for_squares<T>(c, s, qkv.sets())) {
    auto& probabilities = c.input<T>(s.squares(), kUnwritten);
    const auto standard = [&](const char* name, const llmc::Dropout& dropped) {
      c.variant(name,
                [&, dropped](int i) {
                  llmc::standard_attention_forward(plain(s, out, i), by_head(s, lse, i),
                                                   square(s, probabilities, i), packed(s, qkv, i),
                                                   s.NH, doc_start, runner.stream(), dropped);
                },
                {.kept_bytes = kept<T>(s, true)});
    };
    standard("standard", {});
    standard("standard_dropout", dropout(s));
  }
  const oracle::Vec heads = heads_of(s, qkv, 3);
  const auto run_oracle = [&](const oracle::AttentionFactor& factor) {
    return oracle::attention_forward(heads, std::ssize(s.checked_heads()), s.T, 1, s.HS,
                                     starts_of_heads(s), factor, s.checked_from());
  };
  const oracle::Attention expected = run_oracle({});
  const oracle::Vec expected_dropped =
      s.rate > 0 ? run_oracle(factor_of_heads(s)).out : oracle::Vec{};
  c.finish([&](const std::string& variant) {
    const Tolerances allowed = tolerances<T>(s, is_standard(variant));
    const oracle::Vec& reference = has_dropout(variant) ? expected_dropped : expected.out;
    return std::vector{compare("out", checked(s, heads_of(s, out, 1), s.HS),
                               checked(s, reference, s.HS), allowed.out),
                       compare_lse(checked(s, lse.rows(s.checked_heads(), s.T), 1),
                                   checked(s, expected.log_sum_exp, 1), allowed.lse)};
  });
}

template <class T>
void backward(OpRunner& runner, Shape s) {
  OpCase c(runner, {.op = "attention_backward",
                    .shape = s.text(),
                    .dtype = kDtypeOf<T>,
                    .variants = variants<T>(s),
                    .bytes = sizeof(T) * 8.0 * static_cast<double>(s.rows() * s.C()),
                    .flops = 5 * s.product_flops(),
                    .timed = !s.documents});
  if (!c.is_selected()) return;
  const DeviceArray<std::int32_t> starts(document_starts(s), runner.stream());
  const std::int32_t* const doc_start = s.documents ? starts.data() : nullptr;
  auto& qkv = qkv_input<T>(c, s);
  auto& d_out = c.input<T>(s.rows() * s.C(), normal(2));
  auto& flash_scratch =
      c.input<float>(llmc::flash_attention_backward_scratch(s.B, s.T, s.NH, s.HS), kUnwritten);
  auto& d_qkv = c.output<T>(s.rows() * 3 * s.C());
  const auto flash = [&]<bool kMma>(const auto& name, const auto& dropped) {
    if (!c.is_selected(name)) return;
    auto& out = c.input<T>(s.rows() * s.C(), kComputed);
    auto& lse = c.input<float>(s.rows() * s.NH, kComputed);
    for (int i = 0; i < qkv.sets(); ++i) {
      flash_forward<kMma>(plain(s, out, i), by_head(s, lse, i), packed(s, qkv, i), s.NH, doc_start,
                          dropped, runner.stream());
    }
    c.variant(name,
              [&, dropped](int i) {
                flash_backward<kMma>(packed(s, d_qkv, i), plain(s, d_out, i), packed(s, qkv, i),
                                     plain(s, out, i), by_head(s, lse, i), s.NH, doc_start, dropped,
                                     flat(flash_scratch, i), runner.stream());
              },
              {.kept_bytes = kept<T>(s, false) + bytes_of(flash_scratch)});
  };
  for_each_flash<T>(s, flash);
  if (room_for_squares<T>(c, s, qkv.sets())) {
    auto& standard_scratch =
        c.input<float>(llmc::standard_attention_backward_scratch(s.B, s.T, s.NH), kUnwritten);
    // Backward overwrites the probabilities, so each run is prepared by a forward pass of its own.
    auto& probabilities = c.input<T>(s.squares(), kUnwritten);
    auto& out = c.input<T>(s.rows() * s.C(), kComputed);
    auto& lse = c.input<float>(s.rows() * s.NH, kComputed);
    const auto standard = [&](const char* name, const llmc::Dropout& dropped) {
      c.variant(name,
                [&, dropped](int i) {
                  llmc::standard_attention_backward(
                      packed(s, d_qkv, i), square(s, probabilities, i), plain(s, d_out, i),
                      packed(s, qkv, i), plain(s, out, i), by_head(s, lse, i), s.NH,
                      flat(standard_scratch, i), runner.stream(), dropped);
                },
                {.kept_bytes = kept<T>(s, true) + bytes_of(standard_scratch),
                 .prepare = [&, dropped](int i) {
                   llmc::standard_attention_forward(plain(s, out, i), by_head(s, lse, i),
                                                    square(s, probabilities, i), packed(s, qkv, i),
                                                    s.NH, doc_start, runner.stream(), dropped);
                 }});
    };
    standard("standard", {});
    standard("standard_dropout", dropout(s));
  }
  const oracle::Vec d_heads = heads_of(s, d_out, 1), heads = heads_of(s, qkv, 3);
  const auto run_oracle = [&](const oracle::AttentionFactor& factor) {
    return oracle::attention_backward(d_heads, heads, std::ssize(s.checked_heads()), s.T, 1, s.HS,
                                      starts_of_heads(s), factor, s.checked_from());
  };
  const oracle::Vec expected = run_oracle({});
  const oracle::Vec expected_dropped = s.rate > 0 ? run_oracle(factor_of_heads(s)) : oracle::Vec{};
  c.finish([&](const std::string& variant) {
    const Tolerances allowed = tolerances<T>(s, is_standard(variant));
    const oracle::Vec& reference = has_dropout(variant) ? expected_dropped : expected;
    const oracle::Vec actual = heads_of(s, d_qkv, 3);
    const auto part = [&](const char* name, std::int64_t at, double limit) {
      return compare_gradient(name, checked(s, actual, s.HS, at, 3),
                              checked(s, reference, s.HS, at, 3), limit);
    };
    return std::vector{part("d_q", 0, allowed.d_qk), part("d_k", 1, allowed.d_qk),
                       part("d_v", 2, allowed.d_v)};
  });
}

inline void cases(OpRunner& runner) {
  // Each T and each HS lies on both sides of the edges of tiles. Some heads are not the first of
  // the model.
  Shapes<Shape> shapes = {.tiny = {{1, 1, 1, 8},
                                   {1, 17, 1, 40, true},
                                   {1, 66, 1, 32, true},
                                   {1, 33, 1, 72},
                                   {2, 37, 2, 24, true, 0.3, 1, true, 5}},
                          .small = {{2, 1, 3, 8},
                                    {3, 2, 1, 128, true},
                                    {1, 17, 3, 40, false, 0.1},
                                    {2, 17, 3, 24, true, 0.3, 1, true, 1},
                                    {2, 33, 2, 32, false, 0.2},
                                    {1, 63, 5, 32},
                                    {2, 64, 1, 64, true},
                                    {3, 65, 1, 64},
                                    {2, 65, 2, 64, false, 0.1},
                                    {1, 65, 3, 40, true},
                                    {1, 100, 1, 64, false, 0, 4},
                                    {1, 128, 1, 80},
                                    {1, 130, 1, 128, false, 0.1, 1, true, 7},
                                    {1, 130, 2, 128, true, 0.5},
                                    {2, 140, 3, 64, true, 0.4, 1, true, 3},
                                    {1, 200, 3, 64},
                                    {3, 200, 2, 64, false, 0.1, 1, true, 10},
                                    {1, 200, 1, 96, true},
                                    {1, 257, 1, 24, false, 0.1},
                                    {1, 260, 1, 32, true},
                                    {1, 300, 1, 64, true, 0.7}},
                          .gpt2 = {{.B = 16,
                                    .T = 1024,
                                    .NH = 25,
                                    .HS = 64,
                                    .rate = kGpt2Rate,
                                    .fp16 = false}}};  // the heads of 1558M
  // Every T has the tokens of a batch of 32 x 1024. The longest T run without dropout, because the
  // oracle needs hundreds of instructions per mask element.
  for (std::int64_t T = 128; T <= 16384; T *= 2) {
    shapes.gpt2.push_back({.B = 32768 / T,
                           .T = T,
                           .NH = 12,
                           .HS = 64,
                           .rate = T <= 2048 ? kGpt2Rate : 0,
                           .fp16 = T == 1024});
  }
  for (const Shape& s : runner.select(shapes)) {
    for_each_dtype(runner, s.fp16, [&]<class T>() { forward<T>(runner, s); });
    for_each_dtype(runner, s.fp16, [&]<class T>() { backward<T>(runner, s); });
  }
}

}  // namespace llmc_dev::attention
