#include "test/oracle/ops.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace llmc::oracle {

// ---- token and position embedding ----------------------------------------------------------

Vec embedding_forward(const Ints& tokens, const Vec& wte, const Vec& wpe, Index B, Index T,
                      Index C) {
  expect_size("tokens", tokens.size(), B * T);
  Vec out(B * T * C);
  for (Index row = 0; row < B * T; ++row) {
    const Index t = row % T;
    for (Index c = 0; c < C; ++c) {
      out[row * C + c] = wte.at(tokens[row] * C + c) + wpe.at(t * C + c);
    }
  }
  return out;
}

EmbeddingGradients embedding_backward(const Vec& d_out, const Ints& tokens, Index B, Index T,
                                      Index C, Index V, Index T_max) {
  expect_size("d_out", d_out.size(), B * T * C);
  EmbeddingGradients d{Vec(V * C), Vec(T_max * C)};
  for (Index row = 0; row < B * T; ++row) {
    for (Index c = 0; c < C; ++c) {
      d.wte.at(tokens[row] * C + c) += d_out[row * C + c];
      d.wpe.at((row % T) * C + c) += d_out[row * C + c];
    }
  }
  return d;
}

// ---- LayerNorm -----------------------------------------------------------------------------

LayerNorm layernorm_forward(const Vec& x, const Vec& weight, const Vec& bias, Index N, Index C,
                            double eps) {
  expect_size("x", x.size(), N * C);
  LayerNorm y{Vec(N * C), Vec(N), Vec(N)};
  for (Index n = 0; n < N; ++n) {
    double sum = 0;
    for (Index c = 0; c < C; ++c) sum += x[n * C + c];
    const double mean = sum / static_cast<double>(C);
    double squares = 0;
    for (Index c = 0; c < C; ++c) squares += (x[n * C + c] - mean) * (x[n * C + c] - mean);
    const double rstd = 1 / std::sqrt(squares / static_cast<double>(C) + eps);
    for (Index c = 0; c < C; ++c) {
      y.out[n * C + c] = (x[n * C + c] - mean) * rstd * weight.at(c) + bias.at(c);
    }
    y.mean[n] = mean;
    y.rstd[n] = rstd;
  }
  return y;
}

LayerNormGradients layernorm_backward(const Vec& d_out, const Vec& x, const Vec& weight, Index N,
                                      Index C, double eps) {
  expect_size("d_out", d_out.size(), N * C);
  const LayerNorm plain = layernorm_forward(x, Vec(C, 1.0), Vec(C, 0.0), N, C, eps);
  LayerNormGradients d{Vec(N * C), Vec(C), Vec(C)};
  for (Index n = 0; n < N; ++n) {
    double mean_g = 0;
    double mean_gz = 0;
    for (Index c = 0; c < C; ++c) {
      const double z = plain.out[n * C + c];
      const double g = d_out[n * C + c] * weight.at(c);
      mean_g += g / static_cast<double>(C);
      mean_gz += g * z / static_cast<double>(C);
      d.weight[c] += d_out[n * C + c] * z;
      d.bias[c] += d_out[n * C + c];
    }
    for (Index c = 0; c < C; ++c) {
      const double g = d_out[n * C + c] * weight.at(c);
      d.x[n * C + c] = plain.rstd[n] * (g - mean_g - plain.out[n * C + c] * mean_gz);
    }
  }
  return d;
}

// ---- residual ------------------------------------------------------------------------------

Vec residual_forward(const Vec& a, const Vec& b) {
  Vec sum = a;
  add_to(sum, b);
  return sum;
}

ResidualLayerNorm residual_layernorm_forward(const Vec& a, const Vec& b, const Vec& weight,
                                             const Vec& bias, Index N, Index C, double eps) {
  ResidualLayerNorm y{residual_forward(a, b), {}};
  y.norm = layernorm_forward(y.sum, weight, bias, N, C, eps);
  return y;
}

LayerNormGradients residual_layernorm_backward(const Vec& d_out, const Vec& d_sum, const Vec& sum,
                                               const Vec& weight, Index N, Index C, double eps) {
  LayerNormGradients d = layernorm_backward(d_out, sum, weight, N, C, eps);
  add_to(d.x, d_sum);
  return d;
}

// ---- linear --------------------------------------------------------------------------------

Vec linear_forward(const Vec& x, const Vec& w, const Vec& b, Index M, Index K, Index N) {
  expect_size("x", x.size(), M * K);
  expect_size("w", w.size(), K * N);
  Vec y(M * N);
  for (Index m = 0; m < M; ++m) {
    if (!b.empty()) std::copy_n(b.begin(), N, y.begin() + m * N);
    for (Index k = 0; k < K; ++k) {
      for (Index n = 0; n < N; ++n) y[m * N + n] += x[m * K + k] * w[k * N + n];
    }
  }
  return y;
}

Vec bias_backward(const Vec& d_y, Index M, Index N) {
  expect_size("d_y", d_y.size(), M * N);
  Vec d_b(N);
  for (Index m = 0; m < M; ++m) {
    for (Index n = 0; n < N; ++n) d_b[n] += d_y[m * N + n];
  }
  return d_b;
}

LinearGradients linear_backward(const Vec& d_y, const Vec& x, const Vec& w, Index M, Index K,
                                Index N) {
  expect_size("x", x.size(), M * K);
  expect_size("w", w.size(), K * N);
  LinearGradients d{Vec(M * K), Vec(K * N), bias_backward(d_y, M, N)};
  for (Index m = 0; m < M; ++m) {
    for (Index k = 0; k < K; ++k) {
      double sum = 0;
      for (Index n = 0; n < N; ++n) {
        sum += d_y[m * N + n] * w[k * N + n];
        d.w[k * N + n] += x[m * K + k] * d_y[m * N + n];
      }
      d.x[m * K + k] = sum;
    }
  }
  return d;
}

// ---- the language-model head: logits (N, V) = h (N, C) . wte^T, wte (V, C) ------------------

Vec lm_head_forward(const Vec& h, const Vec& wte, Index N, Index C, Index V) {
  expect_size("h", h.size(), N * C);
  expect_size("wte", wte.size(), V * C);
  Vec logits(N * V);
  for (Index n = 0; n < N; ++n) {
    for (Index v = 0; v < V; ++v) {
      double sum = 0;
      for (Index c = 0; c < C; ++c) sum += h[n * C + c] * wte[v * C + c];
      logits[n * V + v] = sum;
    }
  }
  return logits;
}

LmHeadGradients lm_head_backward(const Vec& d_logits, const Vec& h, const Vec& wte, Index N,
                                 Index C, Index V) {
  expect_size("d_logits", d_logits.size(), N * V);
  LmHeadGradients d{Vec(N * C), Vec(V * C)};
  for (Index n = 0; n < N; ++n) {
    for (Index v = 0; v < V; ++v) {
      for (Index c = 0; c < C; ++c) {
        d.h[n * C + c] += d_logits[n * V + v] * wte[v * C + c];
        d.wte[v * C + c] += d_logits[n * V + v] * h[n * C + c];
      }
    }
  }
  return d;
}

// ---- GELU, tanh approximation (Hendrycks, Gimpel 2016; transformers' gelu_new) --------------

double gelu(double x) {
  const double root = std::sqrt(2 / std::acos(-1.0));
  return x / 2 * (1 + std::tanh(root * (x + 0.044715 * x * x * x)));
}

namespace {

// d gelu / d x = (1 + tanh u) / 2 + x / 2 * (1 - tanh(u)^2) * du/dx.
double gelu_derivative(double x) {
  const double root = std::sqrt(2 / std::acos(-1.0));
  const double tanh_u = std::tanh(root * (x + 0.044715 * x * x * x));
  const double du = root * (1 + 3 * 0.044715 * x * x);
  return (1 + tanh_u) / 2 + x / 2 * (1 - tanh_u * tanh_u) * du;
}

}  // namespace

Vec gelu_forward(const Vec& x) {
  Vec y(x.size());
  std::transform(x.begin(), x.end(), y.begin(), gelu);
  return y;
}

Vec gelu_backward(const Vec& d_y, const Vec& x) {
  expect_size("d_y", d_y.size(), static_cast<Index>(x.size()));
  Vec d_x(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) d_x[i] = d_y[i] * gelu_derivative(x[i]);
  return d_x;
}

// ---- the activation functions of the MLP, by their names in transformers ---------------------

namespace {

// Phi(x), without the cancellation of 1 + erf(x / sqrt(2)) at negative x.
double normal_distribution(double x) {
  return std::erfc(-x / std::sqrt(2.0)) / 2;
}

double exact_gelu(double x) {
  return x * normal_distribution(x);
}

double exact_gelu_derivative(double x) {
  const double density = std::exp(-x * x / 2) / std::sqrt(2 * std::acos(-1.0));
  return normal_distribution(x) + x * density;
}

double relu(double x) {
  return x > 0 ? x : 0;
}

double relu_derivative(double x) {
  return x > 0 ? 1 : 0;
}

Vec elementwise_product(Vec a, const Vec& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] *= b[i];
  return a;
}

Vec mapped(const Vec& x, double (*function)(double)) {
  Vec y(x.size());
  std::transform(x.begin(), x.end(), y.begin(), function);
  return y;
}

}  // namespace

Vec activation_forward(Activation kind, const Vec& x) {
  switch (kind) {
    case Activation::gelu:
      return mapped(x, exact_gelu);
    case Activation::relu:
      return mapped(x, relu);
    case Activation::gelu_new:
    case Activation::gelu_pytorch_tanh:
      break;
  }
  return gelu_forward(x);
}

Vec activation_backward(Activation kind, const Vec& d_y, const Vec& x) {
  expect_size("d_y", d_y.size(), static_cast<Index>(x.size()));
  switch (kind) {
    case Activation::gelu:
      return elementwise_product(d_y, mapped(x, exact_gelu_derivative));
    case Activation::relu:
      return elementwise_product(d_y, mapped(x, relu_derivative));
    case Activation::gelu_new:
    case Activation::gelu_pytorch_tanh:
      break;
  }
  return gelu_backward(d_y, x);
}

// ---- softmax cross-entropy -----------------------------------------------------------------

Classifier classifier(const Vec& logits, const Ints& targets, Index N, Index V,
                      const Vec& weights) {
  expect_size("logits", logits.size(), N * V);
  expect_size("targets", targets.size(), N);
  Classifier y{0, Vec(N), Vec(N * V)};
  for (Index n = 0; n < N; ++n) {
    const double* row = &logits[n * V];
    const double weight = weights.empty() ? 1.0 / static_cast<double>(N) : weights.at(n);
    const double max_logit = *std::max_element(row, row + V);
    double sum = 0;
    for (Index v = 0; v < V; ++v) sum += std::exp(row[v] - max_logit);
    const double log_sum_exp = max_logit + std::log(sum);
    for (Index v = 0; v < V; ++v) y.d_logits[n * V + v] = weight * std::exp(row[v] - log_sum_exp);
    y.d_logits.at(n * V + targets[n]) -= weight;
    y.row_loss[n] = log_sum_exp - row[targets[n]];
    y.loss += weight * y.row_loss[n];
  }
  return y;
}

// ---- update --------------------------------------------------------------------------------

double sum_of_squares(const Vec& x) {
  return std::inner_product(x.begin(), x.end(), x.begin(), 0.0);
}

double global_norm(const std::vector<Vec>& tensors) {
  double sum = 0;
  for (const Vec& x : tensors) sum += sum_of_squares(x);
  return std::sqrt(sum);
}

double clip_factor(double norm, double max_norm) {
  return max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
}

void adamw_step(Vec& param, Vec& m, Vec& v, const Vec& grad, std::int64_t step, const AdamW& o) {
  expect_size("grad", grad.size(), static_cast<Index>(param.size()));
  const double correction1 = 1 - std::pow(o.beta1, static_cast<double>(step));
  const double correction2 = 1 - std::pow(o.beta2, static_cast<double>(step));
  for (std::size_t i = 0; i < param.size(); ++i) {
    m[i] = o.beta1 * m[i] + (1 - o.beta1) * grad[i];
    v[i] = o.beta2 * v[i] + (1 - o.beta2) * grad[i] * grad[i];
    const double m_hat = m[i] / correction1;
    const double v_hat = v[i] / correction2;
    param[i] -= o.lr * o.weight_decay * param[i];
    param[i] -= o.lr * m_hat / (std::sqrt(v_hat) + o.eps);
  }
}

}  // namespace llmc::oracle
