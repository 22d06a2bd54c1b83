// Matrix products against plain loops in fp64, and the linear layer against its oracle.
#include <doctest/doctest.h>

#include <cmath>
#include <tuple>
#include <vector>

#include "llmc/ops/gemm/linear.h"
#include "test/oracle/ops.h"
#include "test/support.h"

using namespace llmc;
using namespace llmc_test;

namespace {

struct Shape {
  std::int64_t M, N, K;
};

std::vector<Shape> shapes() {
  if (tiny_shapes()) return {{3, 8, 16}, {1, 16, 8}};
  // The last two have enough work for the host GEMM to split them into tiles.
  return {{1, 8, 8},      {7, 40, 24},     {65, 120, 40},  {33, 211, 40},
          {1, 2051, 528}, {130, 211, 120}, {1031, 24, 264}};
}

// op(a) (M, K) times op(b) (K, N) in fp64.
std::vector<double> product(const std::vector<float>& a, bool ta, const std::vector<float>& b,
                            bool tb, Shape s) {
  std::vector<double> c(static_cast<std::size_t>(s.M * s.N));
  for (std::int64_t i = 0; i < s.M; ++i) {
    for (std::int64_t j = 0; j < s.N; ++j) {
      double sum = 0;
      for (std::int64_t k = 0; k < s.K; ++k) {
        sum += static_cast<double>(a[ta ? k * s.M + i : i * s.K + k]) *
               static_cast<double>(b[tb ? j * s.K + k : k * s.N + j]);
      }
      c[i * s.N + j] = sum;
    }
  }
  return c;
}

template <class T>
Tensor<const T, 2> stored(const Buffer<T>& buffer, bool transposed, std::int64_t rows,
                          std::int64_t columns) {
  const T* data = buffer.data();
  return transposed ? make_tensor(data, columns, rows) : make_tensor(data, rows, columns);
}

// fp32: sums of K products err by about sqrt(K) units. Outputs of half precision are rounded one
// time more. An fp32 sum rounds, but a tensor core truncates: by up to one unit of 2^-23, on
// average half of it, and always to the same side. This happens for each 8 (sm_80) or 16 products
// of half precision.
template <class TO, class TI = TO>
double tolerance(std::int64_t K = 0) {
  const double cut = sizeof(TI) < 4 ? static_cast<double>(ceil_div(K, 8)) * 0x1p-24 : 0;
  const double rounding = std::is_same_v<TO, float> ? 1e-6 : llmc_test::kSpacing<TO>;
  return rounding + cut;
}

template <class TO, class TI>
void check_product(Shape s, bool ta, bool tb, float beta, bool with_bias) {
  CAPTURE(s.M);
  CAPTURE(s.N);
  CAPTURE(s.K);
  CAPTURE(ta);
  CAPTURE(tb);
  Stream stream;
  Gemm gemm;
  const auto a = convert<TI>(random_floats(s.M * s.K, 1)),
             b = convert<TI>(random_floats(s.K * s.N, 2));
  const auto start = convert<TO>(random_floats(s.M * s.N, 3));
  const auto bias = convert<TI>(random_floats(s.N, 4));
  const auto a_device = upload(a, stream), b_device = upload(b, stream),
             bias_device = upload(bias, stream);
  const auto out = upload(start, stream);
  matmul(make_tensor(out.data(), s.M, s.N), stored(a_device, ta, s.M, s.K),
         ta ? Transpose::yes : Transpose::no, stored(b_device, tb, s.K, s.N),
         tb ? Transpose::yes : Transpose::no, beta,
         with_bias ? static_cast<const TI*>(bias_device.data()) : nullptr, gemm, stream);
  auto expected = product(to_floats(a), ta, to_floats(b), tb, s);
  for (std::int64_t i = 0; i < s.M * s.N; ++i) {
    expected[i] += static_cast<double>(beta) * static_cast<double>(to_float(start[i]));
    if (with_bias) expected[i] += static_cast<double>(to_float(bias[i % s.N]));
  }
  CHECK(relative_l2(download(out, stream), expected) < tolerance<TO, TI>(s.K));
}

}  // namespace

TEST_SUITE("matmul") {
  TEST_CASE("products match the definition for every transposition, bias and accumulation") {
    for (const Shape s : shapes()) {
      for (const bool ta : {false, true}) {
        for (const bool tb : {false, true}) {
          // cuBLASLt requires rows that are multiples of 16 bytes in half precision; all rows of
          // the engine are.
          const bool vector_rows = s.N % 8 == 0 && s.K % 8 == 0 && (!ta || s.M % 8 == 0);
          check_product<float, float>(s, ta, tb, 0.0f, true);
          check_product<float, float>(s, ta, tb, 1.0f, false);
          if (kCudaTarget && !vector_rows) continue;
          check_product<bf16, bf16>(s, ta, tb, 0.0f, true);
          check_product<bf16, bf16>(s, ta, tb, 0.0f, false);
          check_product<float, bf16>(s, ta, tb, 1.0f, false);
          check_product<float, fp16>(s, ta, tb, 1.0f, false);
        }
      }
    }
  }

  TEST_CASE("repeated products are bitwise equal, also with an existing plan") {
    const Shape s = tiny_shapes() ? Shape{4, 8, 8} : Shape{64, 96, 80};
    Stream stream;
    Gemm gemm;
    const auto a = upload(random_floats(s.M * s.K, 1), stream),
               b = upload(random_floats(s.K * s.N, 2), stream);
    std::vector<float> first;
    for (int repeat = 0; repeat < 3; ++repeat) {
      Buffer<float> out(s.M * s.N);
      matmul(make_tensor(out.data(), s.M, s.N), stored(a, false, s.M, s.K), Transpose::no,
             stored(b, false, s.K, s.N), Transpose::no, 0.0f, static_cast<const float*>(nullptr),
             gemm, stream);
      const auto result = download(out, stream);
      if (repeat == 0) first = result;
      CHECK(result == first);
    }
  }

  TEST_CASE("one plan serves biases at any address") {
    const Shape s = tiny_shapes() ? Shape{3, 8, 8} : Shape{24, 64, 40};
    Stream stream;
    Gemm gemm;
    const auto a = convert<bf16>(random_floats(s.M * s.K, 1)),
               b = convert<bf16>(random_floats(s.K * s.N, 2));
    const auto bias = convert<bf16>(random_floats(2 * s.N, 3));
    const auto a_device = upload(a, stream), b_device = upload(b, stream),
               bias_device = upload(bias, stream);
    for (const std::int64_t at : {0, 8}) {  // the second is aligned to only 16 bytes
      const Buffer<bf16> out(s.M * s.N);
      matmul(make_tensor(out.data(), s.M, s.N), stored(a_device, false, s.M, s.K), Transpose::no,
             stored(b_device, false, s.K, s.N), Transpose::no, 0.0f,
             static_cast<const bf16*>(bias_device.data() + at), gemm, stream);
      auto expected = product(to_floats(a), false, to_floats(b), false, s);
      for (std::int64_t i = 0; i < s.M * s.N; ++i) {
        expected[i] += static_cast<double>(to_float(bias[at + i % s.N]));
      }
      CHECK(relative_l2(download(out, stream), expected) < tolerance<bf16>(s.K));
    }
  }

  TEST_CASE_TEMPLATE("the linear layer matches the oracle", T, float, bf16, fp16) {
    const Shape s = tiny_shapes() ? Shape{3, 16, 8} : Shape{37, 120, 40};
    Stream stream;
    Gemm gemm;
    const auto x = convert<T>(random_floats(s.M * s.K, 1)),
               w = convert<T>(random_floats(s.K * s.N, 2));
    const auto bias = convert<T>(random_floats(s.N, 3)),
               dy = convert<T>(random_floats(s.M * s.N, 4));
    const auto dw_start = random_floats(s.K * s.N, 5), db_start = random_floats(s.N, 6);
    const auto as_doubles = [](const std::vector<T>& v) {
      const auto floats = to_floats(v);
      return std::vector<double>(floats.begin(), floats.end());
    };
    const auto want_y =
        oracle::linear_forward(as_doubles(x), as_doubles(w), as_doubles(bias), s.M, s.K, s.N);
    auto expected =
        oracle::linear_backward(as_doubles(dy), as_doubles(x), as_doubles(w), s.M, s.K, s.N);

    const auto dx_device = Buffer<T>(s.M * s.K);
    const auto y_device = Buffer<T>(s.M * s.N);
    const auto x_device = upload(x, stream), w_device = upload(w, stream),
               b_device = upload(bias, stream);
    const auto dy_device = upload(dy, stream);
    const auto dw_device = upload(dw_start, stream), db_device = upload(db_start, stream);
    const Buffer<float> scratch(linear_backward_scratch(s.M, s.N));
    linear_forward<T>(
        make_tensor(y_device.data(), s.M, s.N), make_tensor(x_device.data(), s.M, s.K),
        make_tensor(w_device.data(), s.K, s.N), make_tensor(b_device.data(), s.N), gemm, stream);
    linear_backward<T>(
        make_tensor(dx_device.data(), s.M, s.K), make_tensor(dw_device.data(), s.K, s.N),
        make_tensor(db_device.data(), s.N), make_tensor(dy_device.data(), s.M, s.N),
        make_tensor(x_device.data(), s.M, s.K), make_tensor(w_device.data(), s.K, s.N),
        make_tensor(scratch.data(), scratch.size()), gemm, stream);
    CHECK(relative_l2(download(y_device, stream), want_y) < tolerance<T>());
    CHECK(relative_l2(download(dx_device, stream), expected.x) < tolerance<T>());
    for (std::size_t i = 0; i < dw_start.size(); ++i)
      expected.w[i] += static_cast<double>(dw_start[i]);
    for (std::size_t i = 0; i < db_start.size(); ++i)
      expected.b[i] += static_cast<double>(db_start[i]);
    CHECK(relative_l2(download(dw_device, stream), expected.w) < tolerance<float, T>(s.M));
    CHECK(relative_l2(download(db_device, stream), expected.b) < 1e-6);
  }

  TEST_CASE_TEMPLATE("a gradient that a linear layer skips changes no bit of the others", T, float,
                     bf16, fp16) {
    const Shape s = tiny_shapes() ? Shape{3, 16, 8} : Shape{37, 120, 40};
    Stream stream;
    Gemm gemm;
    const auto x = upload(convert<T>(random_floats(s.M * s.K, 1)), stream);
    const auto w = upload(convert<T>(random_floats(s.K * s.N, 2)), stream);
    const auto dy = upload(convert<T>(random_floats(s.M * s.N, 3)), stream);
    const auto x_start = convert<T>(random_floats(s.M * s.K, 4));
    const auto w_start = random_floats(s.K * s.N, 5), b_start = random_floats(s.N, 6);
    const auto run = [&](bool skip_x, bool skip_w, bool skip_b) {
      const auto dx = upload(x_start, stream);
      const auto dw = upload(w_start, stream), db = upload(b_start, stream);
      const Buffer<float> scratch(linear_backward_scratch(s.M, s.N));
      const auto unless = [](bool skip, auto* data) { return skip ? nullptr : data; };
      linear_backward<T>(make_tensor(unless(skip_x, dx.data()), s.M, s.K),
                         make_tensor(unless(skip_w, dw.data()), s.K, s.N),
                         make_tensor(unless(skip_b, db.data()), s.N),
                         make_tensor(dy.data(), s.M, s.N), make_tensor(x.data(), s.M, s.K),
                         make_tensor(w.data(), s.K, s.N),
                         make_tensor(scratch.data(), scratch.size()), gemm, stream);
      return std::tuple(to_floats(download(dx, stream)), download(dw, stream),
                        download(db, stream));
    };
    const auto [want_x, want_w, want_b] = run(false, false, false);
    CHECK(want_b != b_start);
    for (int skip = 1; skip < 8; ++skip) {
      CAPTURE(skip);
      const bool skip_x = skip & 1, skip_w = skip & 2, skip_b = skip & 4;
      const auto [got_x, got_w, got_b] = run(skip_x, skip_w, skip_b);
      CHECK(got_x == (skip_x ? to_floats(x_start) : want_x));
      CHECK(got_w == (skip_w ? w_start : want_w));
      CHECK(got_b == (skip_b ? b_start : want_b));
    }
  }

  TEST_CASE_TEMPLATE("a residual, GELU and GELU's gradient in the epilogue match the definition", T,
                     float, bf16, fp16) {
    const Shape s = tiny_shapes() ? Shape{3, 16, 8} : Shape{65, 120, 40};
    Stream stream;
    Gemm gemm;
    const auto x = convert<T>(random_floats(s.M * s.K, 1)),
               w = convert<T>(random_floats(s.K * s.N, 2, 0.3));
    const auto bias = convert<T>(random_floats(s.N, 3)),
               residual = convert<T>(random_floats(s.M * s.N, 4)),
               before_gelu = convert<T>(random_floats(s.M * s.N, 5));
    const auto x_device = upload(x, stream), w_device = upload(w, stream),
               bias_device = upload(bias, stream), residual_device = upload(residual, stream);
    const Buffer<T> out(s.M * s.N);
    const auto call_with = [&](float beta, const Buffer<T>* b) {
      return matmul_call(make_tensor(out.data(), s.M, s.N), stored(x_device, false, s.M, s.K),
                         Transpose::no, stored(w_device, false, s.K, s.N), Transpose::no, beta,
                         b == nullptr ? nullptr : static_cast<const T*>(b->data()));
    };
    if (gemm.num_proposals(call_with(0, &bias_device)) == 0) return;
    const auto plain = product(to_floats(x), false, to_floats(w), false, s);
    const auto with = [&](double beta, bool with_bias) {
      auto expected = plain;
      for (std::int64_t i = 0; i < s.M * s.N; ++i) {
        expected[i] += beta * as_double(residual[i]);
        if (with_bias) expected[i] += as_double(bias[i % s.N]);
      }
      return expected;
    };
    const auto matches = [&](const Buffer<T>& got, const std::vector<double>& expected,
                             double more = 0) {
      return relative_l2(download(got, stream), expected) < tolerance<T>(s.K) + more;
    };
    // A library's GELU may use a coarse tanh (llmc/ops/gemm/gemm.h); the slope and derivative of
    // GELU double its error at most.
    constexpr double kCoarseTanh = kCudaTarget ? 2 * 0x1p-11 : 0;

    GemmCall<T, T> call = call_with(0.5f, &bias_device);
    call.addend = residual_device.data();
    gemm.run(call, stream);
    CHECK(matches(out, with(0.5, true)));

    const auto in_place = upload(residual, stream);
    call = call_with(1.0f, &bias_device);
    call.c = in_place.data();
    gemm.run(call, stream);
    CHECK(matches(in_place, with(1, true)));

    const Buffer<T> aux(s.M * s.N);
    for (const bool with_bias : {true, false}) {
      call = call_with(0, with_bias ? &bias_device : nullptr);
      call.epilogue = Epilogue::gelu;
      call.aux = aux.data();
      if (gemm.num_proposals(call) == 0) continue;  // not every library supports it in every dtype
      gemm.run(call, stream);
      CHECK(matches(aux, with(0, with_bias)));
      CHECK(matches(out, oracle::gelu_forward(with(0, with_bias)), kCoarseTanh));
    }

    const auto before_device = upload(before_gelu, stream);
    call = call_with(0, nullptr);
    call.epilogue = Epilogue::gelu_backward;
    call.aux = before_device.data();
    if (gemm.num_proposals(call) == 0) return;
    gemm.run(call, stream);
    const auto floats = to_floats(before_gelu);
    CHECK(matches(out, oracle::gelu_backward(plain, oracle::Vec(floats.begin(), floats.end())),
                  kCoarseTanh));
    CHECK(to_floats(download(before_device, stream)) == floats);  // read, not written
  }

  TEST_CASE("K is split only for weight gradients whose K is a multiple of 128") {
    GemmOptions split;
    split.split_k = true;
    const auto allowed = [&]<class TO, class TI>(GemmCall<TO, TI> call, std::int64_t k) {
      call.k = k;
      return may_split_k(call, split);
    };
    const GemmCall<float, bf16> weight_gradient;
    for (const std::int64_t k : {128, 32768, 65536}) CHECK(allowed(weight_gradient, k));
    for (const std::int64_t k : {64, 192, 65535}) CHECK(!allowed(weight_gradient, k));
    CHECK(allowed(GemmCall<float, fp16>(), 128));
    CHECK(!allowed(GemmCall<float, float>(), 128));
    CHECK(!allowed(GemmCall<bf16, bf16>(), 128));
    GemmCall<float, bf16> call;
    call.k = 128;
    CHECK(!may_split_k(call, GemmOptions()));
    call.epilogue = Epilogue::gelu;
    CHECK(!may_split_k(call, split));
  }

  TEST_CASE("the error names an epilogue that no library supports") {
    Stream stream;
    Gemm gemm;
    const Buffer<float> memory(64);
    GemmCall<float, float> call;
    call.m = 4;
    call.n = call.k = 8;
    call.a = call.b = memory.data();
    call.c = memory.data();
    call.epilogue = Epilogue::gelu;
    CHECK_THROWS_WITH_AS(gemm.run(call, stream), doctest::Contains("the input of GELU, is null"),
                         Error);
    call.aux = memory.data();
    call.n = 7;
    CHECK_THROWS_WITH_AS(gemm.run(call, stream),
                         doctest::Contains("7 numbers, not a multiple of 8"), Error);
    call.n = 8;
    call.epilogue = Epilogue::gelu_backward;
    call.bias = memory.data();
    CHECK_THROWS_WITH_AS(gemm.run(call, stream), doctest::Contains("a bias is not supported"),
                         Error);
  }

  TEST_CASE("the error names a tensor whose shape does not match") {
    Stream stream;
    Gemm gemm;
    const Buffer<float> a(24), b(24), c(24);
    const float* no_bias = nullptr;
    CHECK_THROWS_WITH_AS(
        matmul(make_tensor(c.data(), 3, 8), make_tensor((const float*)a.data(), 3, 8),
               Transpose::no, make_tensor((const float*)b.data(), 3, 8), Transpose::no, 0.0f,
               no_bias, gemm, stream),
        "tensor 'b' has shape (3, 8), expected (8, 8)", Error);
    const Buffer<bf16> half(64);
    const auto view = make_tensor(static_cast<const bf16*>(half.data()), 4, 8);
    CHECK_THROWS_WITH_AS(matmul(make_tensor(a.data(), 4, 4), view, Transpose::no, view,
                                Transpose::yes, 0.0f, view.data, gemm, stream),
                         doctest::Contains("bias has another type"), Error);
  }
}
