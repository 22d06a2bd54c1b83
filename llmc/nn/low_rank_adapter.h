// LoRA (Hu et al., 2021): out += scale · h · B with h = x · Aᵀ. A (R, K) and B (R, N) are those of
// this rank; both have rows of zeros up to a multiple of 8, which stay zero. In training, x has
// dropout here and nowhere else. Linear (linear.h) adds up h, or its gradient, over tensor ranks.
#pragma once

#include <cstdint>
#include <string>

#include "llmc/nn/parameter.h"
#include "llmc/nn/pass.h"
#include "llmc/ops/gemm/matmul.h"
#include "llmc/ops/residual_add.h"

namespace llmc {

template <class T>
class LowRankAdapter {
 public:
  // The adapter with the parameters NAME.lora_A.weight and NAME.lora_B.weight. `site`: that of its
  // dropout among the adapters of the model.
  LowRankAdapter(const ParameterTable& table, const std::string& name, double scale,
                 std::int64_t site, ParameterSource& source)
      : a_(table, name + ".lora_A.weight", source),
        b_(table, name + ".lora_B.weight", source),
        scale_(static_cast<float>(scale)),
        site_(site) {}

  // R with its padding.
  std::int64_t rank() const { return a_.spec().part.stored_rows; }

  // h (rows, R) = x · Aᵀ. Row 0 of x is row `first_row` of the batch.
  void project(Tensor<T, 2> h, In<T, 2> x, std::int64_t first_row, const Pass& pass) const {
    if (x.shape[0] == 0) return;
    product(h, dropped(x, first_row, pass), Transpose::no, a_.matrix(), Transpose::yes, 0.0f, 1,
            pass);
    report_rows(a_, h, pass);
  }
  // out (rows, N) += scale · h · B.
  void add_output(Tensor<T, 2> out, In<T, 2> h, const Pass& pass) const {
    if (out.shape[0] == 0) return;
    product(out, h, Transpose::no, b_.matrix(), Transpose::no, 1.0f, scale_, pass);
    report_rows(b_, out, pass);
  }

  // d_h (rows, R) = scale · d_out · Bᵀ.
  void project_gradient(Tensor<T, 2> d_h, In<T, 2> d_out, const Pass& pass) const {
    if (d_out.shape[0] == 0) return;
    product(d_h, d_out, Transpose::no, b_.matrix(), Transpose::yes, 0.0f, scale_, pass);
    report_rows(b_, d_h, pass);
  }
  // Adds scale · hᵀ · d_out to the gradient of B.
  void add_gradient_of_b(In<T, 2> h, In<T, 2> d_out, const Pass& pass) const {
    const Tensor<float, 2> gradient = b_.matrix_gradient();
    if (gradient.data == nullptr || d_out.shape[0] == 0) return;
    product(gradient, h, Transpose::yes, d_out, Transpose::no, 1.0f, scale_, pass);
    pass.context.outputs.sum("adapter", b_.spec().name, gradient, pass.context.stream);
  }
  // Adds d_hᵀ · x to the gradient of A.
  void add_gradient_of_a(In<T, 2> d_h, In<T, 2> x, std::int64_t first_row, const Pass& pass) const {
    const Tensor<float, 2> gradient = a_.matrix_gradient();
    if (gradient.data == nullptr || x.shape[0] == 0) return;
    product(gradient, d_h, Transpose::yes, dropped(x, first_row, pass), Transpose::no, 1.0f, 1,
            pass);
    pass.context.outputs.sum("adapter", a_.spec().name, gradient, pass.context.stream);
  }
  // d_x (rows, K) += d_h · A, with the dropout of x.
  void add_input_gradient(Tensor<T, 2> d_x, In<T, 2> d_h, std::int64_t first_row,
                          const Pass& pass) const {
    if (d_x.shape[0] == 0) return;
    const Dropout dropout = dropout_of(first_row, pass);
    if (!dropout.enabled()) {
      product(d_x, d_h, Transpose::no, a_.matrix(), Transpose::no, 1.0f, 1, pass);
      return report_rows(a_, d_x, pass);
    }
    Context& context = pass.context;
    const Tensor<T, 2> part = context.adapters.inputs<T>(d_x.shape[0], d_x.shape[1]);
    product(part, d_h, Transpose::no, a_.matrix(), Transpose::no, 0.0f, 1, pass);
    apply_dropout<T>(part, part, pass.batch.T, dropout, context.stream);
    residual_add<T>(d_x, d_x, part, context.stream);
    report_rows(a_, d_x, pass);
  }

 private:
  template <class TO>
  static void product(Tensor<TO, 2> out, In<T, 2> a, Transpose transpose_a, In<T, 2> b,
                      Transpose transpose_b, float beta, float alpha, const Pass& pass) {
    const ProfileScope scope("adapter", pass.context.stream);
    constexpr const T* kNoBias = nullptr;
    matmul<TO, T>(out, a, transpose_a, b, transpose_b, beta, kNoBias, pass.context.gemm,
                  pass.context.stream, alpha);
  }

  static void report_rows(const Parameter<T>& parameter, const Tensor<T, 2>& rows,
                          const Pass& pass) {
    pass.context.outputs.rows("adapter", parameter.spec().name, rows, pass.context.stream);
  }

  Dropout dropout_of(std::int64_t first_row, const Pass& pass) const {
    Dropout dropout = adapter_dropout(pass.options, site_);
    dropout.first_row = first_row;
    dropout.first_column = a_.spec().part.index.begin;
    return dropout;
  }

  // x with dropout, in the shared buffer, or x itself if there is none.
  Tensor<const T, 2> dropped(In<T, 2> x, std::int64_t first_row, const Pass& pass) const {
    const Dropout dropout = dropout_of(first_row, pass);
    if (!dropout.enabled()) return x;
    const Tensor<T, 2> out = pass.context.adapters.inputs<T>(x.shape[0], x.shape[1]);
    apply_dropout<T>(out, x, pass.batch.T, dropout, pass.context.stream);
    return out;
  }

  Parameter<T> a_, b_;
  float scale_;
  std::int64_t site_;
};

}  // namespace llmc
