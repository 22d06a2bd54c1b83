// Every operation of GPT-2 in double precision, as plain loops that read like the definition.
//
// Kernels are compared with this. It shares no code with the engine and is deliberately not
// optimised. test_oracle.cpp checks every gradient against central finite differences. Tensors are
// contiguous row-major vectors; comments state their shapes. Sizes: B batch, T time, C channels, NH
// heads, HS head size (C = NH * HS), V vocabulary, M or N rows.
//
// Activation gradients and parameter gradients are both returned as new vectors. (The engine adds
// to its parameter gradients; the caller of the oracle adds if needed.)
#pragma once

#include <cstdint>
#include <vector>

#include "test/oracle/vec.h"

namespace llmc::oracle {

constexpr double kLayerNormEps = 1e-5;  // GPT-2's layer_norm_epsilon

// ---- token and position embedding ----------------------------------------------------------

// out (B, T, C) = wte[token] + wpe[t]. tokens (B, T); wte (V, C); wpe (at least T, C).
Vec embedding_forward(const Ints& tokens, const Vec& wte, const Vec& wpe, Index B, Index T,
                      Index C);

struct EmbeddingGradients {
  Vec wte;  // (V, C)
  Vec wpe;  // (T_max, C); rows from T on are zero
};

// d_out (B, T, C).
EmbeddingGradients embedding_backward(const Vec& d_out, const Ints& tokens, Index B, Index T,
                                      Index C, Index V, Index T_max);

// ---- LayerNorm -----------------------------------------------------------------------------

struct LayerNorm {
  Vec out;         // (N, C)
  Vec mean, rstd;  // (N)
};

// out = (x - mean) * rstd * weight + bias over rows of x (N, C), with the biased variance:
// rstd = 1 / sqrt(mean((x - mean)^2) + eps). Ba, Kiros, Hinton 2016.
LayerNorm layernorm_forward(const Vec& x, const Vec& weight, const Vec& bias, Index N, Index C,
                            double eps = kLayerNormEps);

struct LayerNormGradients {
  Vec x;             // (N, C)
  Vec weight, bias;  // (C)
};

// d_out (N, C). With z = (x - mean) * rstd and g = d_out * weight, each row's gradient is
// rstd * (g - mean(g) - z * mean(g * z)): g without its parts along 1 and z, the two directions
// that normalising removes.
LayerNormGradients layernorm_backward(const Vec& d_out, const Vec& x, const Vec& weight, Index N,
                                      Index C, double eps = kLayerNormEps);

// ---- residual ------------------------------------------------------------------------------

// a + b, element by element. Its backward passes d_out to both sides unchanged.
Vec residual_forward(const Vec& a, const Vec& b);

// The fused op: sum = a + b (N, C), then LayerNorm of the sum.
struct ResidualLayerNorm {
  Vec sum;  // (N, C)
  LayerNorm norm;
};

ResidualLayerNorm residual_layernorm_forward(const Vec& a, const Vec& b, const Vec& weight,
                                             const Vec& bias, Index N, Index C,
                                             double eps = kLayerNormEps);

// d_out (N, C) is the gradient of the LayerNorm's output, d_sum (N, C) the gradient of the sum
// through the skip connection. The result's x is the gradient of the sum, so of both a and b.
LayerNormGradients residual_layernorm_backward(const Vec& d_out, const Vec& d_sum, const Vec& sum,
                                               const Vec& weight, Index N, Index C,
                                               double eps = kLayerNormEps);

// ---- linear --------------------------------------------------------------------------------

// y (M, N) = x (M, K) . w (K, N) + b (N). w has the layout of Hugging Face's Conv1D: (in, out). An
// empty b means no bias.
Vec linear_forward(const Vec& x, const Vec& w, const Vec& b, Index M, Index K, Index N);

// d_b (N): the column sums of d_y (M, N).
Vec bias_backward(const Vec& d_y, Index M, Index N);

struct LinearGradients {
  Vec x;  // (M, K) = d_y . w^T
  Vec w;  // (K, N) = x^T . d_y
  Vec b;  // (N)
};

LinearGradients linear_backward(const Vec& d_y, const Vec& x, const Vec& w, Index M, Index K,
                                Index N);

// ---- the language-model head: logits (N, V) = h (N, C) . wte^T, wte (V, C) ------------------

Vec lm_head_forward(const Vec& h, const Vec& wte, Index N, Index C, Index V);

struct LmHeadGradients {
  Vec h;    // (N, C)
  Vec wte;  // (V, C): the head's part, without the embedding's
};

LmHeadGradients lm_head_backward(const Vec& d_logits, const Vec& h, const Vec& wte, Index N,
                                 Index C, Index V);

// ---- GELU, tanh approximation (Hendrycks, Gimpel 2016; transformers' gelu_new) --------------

// x / 2 * (1 + tanh(u)) with u = sqrt(2/pi) * (x + 0.044715 x^3).
double gelu(double x);

Vec gelu_forward(const Vec& x);

Vec gelu_backward(const Vec& d_y, const Vec& x);

// ---- the activation functions of the MLP, by their names in transformers ---------------------

// gelu is x * Phi(x) with the distribution function Phi of the normal distribution; gelu_new and
// gelu_pytorch_tanh are two names of its approximation above; relu is max(x, 0).
enum class Activation { gelu_new, gelu_pytorch_tanh, gelu, relu };

Vec activation_forward(Activation kind, const Vec& x);

// At 0, the derivative of relu is 0, as in PyTorch.
Vec activation_backward(Activation kind, const Vec& d_y, const Vec& x);

// ---- softmax cross-entropy -----------------------------------------------------------------

struct Classifier {
  double loss = 0;  // sum over rows of weight * row loss
  Vec row_loss;     // (N): -log softmax(logits)[target], without the weight
  Vec d_logits;     // (N, V): d loss / d logits = weight * (softmax - one-hot)
};

// logits (N, V); targets (N) in 0 .. V-1; weights (N), or empty for the mean (each weight 1/N).
Classifier classifier(const Vec& logits, const Ints& targets, Index N, Index V,
                      const Vec& weights = {});

// ---- update --------------------------------------------------------------------------------

double sum_of_squares(const Vec& x);

// sqrt of the sum of squares of all elements of all tensors.
double global_norm(const std::vector<Vec>& tensors);

// Factor for the gradients that limits their norm to max_norm (0: no clipping). As in
// torch.nn.utils.clip_grad_norm_, 1e-6 guards the division, so clipped norms are slightly below
// max_norm.
double clip_factor(double norm, double max_norm);

struct AdamW {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
};

// One step, in place; step counts from 1. Loshchilov, Hutter 2019 in PyTorch's order: weight decay
// acts on the old parameter, then the bias-corrected update is subtracted.
void adamw_step(Vec& param, Vec& m, Vec& v, const Vec& grad, std::int64_t step, const AdamW& o);

}  // namespace llmc::oracle
