// Floating-point arithmetic (PTX ISA 9.0, section 9.7.3). Where the manual states a rounding, it is
// the same here.
#include <cmath>
#include <string>

#include "llmc/base/hash.h"
#include "test/ptx/floats.h"
#include "test/ptx/lanes.h"

namespace llmc_ptx {

namespace {

struct Add {
  template <class T>
  static T apply(T a, T b) {
    return a + b;
  }
};
struct Subtract {
  template <class T>
  static T apply(T a, T b) {
    return a - b;
  }
};
struct Multiply {
  template <class T>
  static T apply(T a, T b) {
    return a * b;
  }
};
struct Divide {
  template <class T>
  static T apply(T a, T b) {
    return a / b;
  }
};
struct Reciprocal {
  template <class T>
  static T apply(T a) {
    return T{1} / a;
  }
};
struct SquareRoot {
  template <class T>
  static T apply(T a) {
    return std::sqrt(a);
  }
};
struct MultiplyAdd {
  static float apply(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
  static double apply(double a, double b, double c) { return __builtin_fma(a, b, c); }
};
struct MultiplyAddDown {
  static float apply(float a, float b, float c) { return fma_down(a, b, c); }
};
struct Negate {
  template <class T>
  static T apply(T a) {
    return -a;
  }
};
struct Absolute {
  template <class T>
  static T apply(T a) {
    return std::fabs(a);
  }
};
// The smaller one; of a NaN and a number, the number. -0 is less than +0.
struct Minimum {
  template <class T>
  static T apply(T a, T b) {
    if (a != a) return b != b ? nan<T>() : b;
    if (b != b) return a;
    return a < b || (a == b && std::signbit(a)) ? a : b;
  }
  template <class T>
  static T nan() {
    if constexpr (sizeof(T) == 4) return std::bit_cast<float>(kCanonicalNan);
    return std::numeric_limits<T>::quiet_NaN();
  }
};
struct Maximum {
  template <class T>
  static T apply(T a, T b) {
    if (a != a) return b != b ? Minimum::nan<T>() : b;
    if (b != b) return a;
    return a > b || (a == b && !std::signbit(a)) ? a : b;
  }
};

// 2^a with a relative error below 2^-22, which the seed and a determine. Powers of whole numbers
// are exact.
template <bool kFlush>
void power_of_two(Warp& warp, const Instruction& i) {
  const float* const a = warp.lanes<float>(i.operands[1]);
  const U64 seed = warp.block().seed;
  write_lanes(warp, warp.lanes<float>(i.operands[0]), [=](int lane) -> float {
    const float x = kFlush ? flush_subnormal(a[lane]) : a[lane];
    double power = std::exp2(double{x});
    if (seed != 0 && x != std::floor(x)) {
      const U64 random = llmc::mix64(seed, std::bit_cast<U32>(x));
      power *= 1 + (llmc::unit_interval(random) - 0.5) * 0x1p-22;
    }
    const auto result = static_cast<float>(power);
    return kFlush ? flush_subnormal(result) : result;
  });
}

// 1 / a of the upper 32 bits of a, in the upper 32 bits.
struct GrossReciprocal {
  static double apply(double a) {
    const auto upper = [](double x) {
      return std::bit_cast<double>(std::bit_cast<U64>(x) & 0xFFFFFFFF00000000);
    };
    const double flushed =
        std::fabs(a) < std::numeric_limits<double>::min() ? std::copysign(0.0, a) : upper(a);
    const double result = upper(1 / flushed);
    return std::fabs(result) < std::numeric_limits<double>::min() ? std::copysign(0.0, result)
                                                                  : result;
  }
};

template <bool kSubtracts, int kProduct>
void run_sum_with_product(Warp& warp, const Instruction& i) {
  const U64 seed = warp.block().seed;
  const bool is_fused = seed != 0 && (llmc::mix64(seed, 0x66757365, warp.place()) & 1) != 0;
  const float* const x = warp.lanes<float>(i.operands[1]);
  const float* const y = warp.lanes<float>(i.operands[2]);
  const float* const a = warp.lanes<float>(i.operands[3]);
  const float* const b = warp.lanes<float>(i.operands[4]);
  write_lanes(warp, warp.lanes<float>(i.operands[0]), [=](int lane) -> float {
    if (!is_fused) return kSubtracts ? x[lane] - y[lane] : x[lane] + y[lane];
    if (kProduct == 1) return __builtin_fmaf(a[lane], b[lane], kSubtracts ? -y[lane] : y[lane]);
    return __builtin_fmaf(kSubtracts ? -a[lane] : a[lane], b[lane], x[lane]);
  });
}

template <class T>
void add_type(FormTable& table, const std::string& type) {
  // Without a rounding, the form rounds to nearest; ptxas may fuse it with another one.
  for (const char* rounding : {"", "rn."}) {
    add_binary<Add, T, T>(table, "9.7.3.3", (std::string("add.") + rounding + type).c_str());
    add_binary<Subtract, T, T>(table, "9.7.3.4", (std::string("sub.") + rounding + type).c_str());
    add_binary<Multiply, T, T>(table, "9.7.3.5", (std::string("mul.") + rounding + type).c_str());
  }
  add_ternary<MultiplyAdd, T, T>(table, "9.7.3.6", ("fma.rn." + type).c_str());
  add_binary<Divide, T, T>(table, "9.7.3.8", ("div.rn." + type).c_str());
  add_unary<Absolute, T, T>(table, "9.7.3.9", ("abs." + type).c_str());
  add_unary<Negate, T, T>(table, "9.7.3.10", ("neg." + type).c_str());
  add_binary<Minimum, T, T>(table, "9.7.3.11", ("min." + type).c_str());
  add_binary<Maximum, T, T>(table, "9.7.3.12", ("max." + type).c_str());
  add_unary<Reciprocal, T, T>(table, "9.7.3.13", ("rcp.rn." + type).c_str());
  add_unary<SquareRoot, T, T>(table, "9.7.3.15", ("sqrt.rn." + type).c_str());
}

}  // namespace

Run sum_with_product(bool subtracts, int product) {
  if (subtracts)
    return product == 1 ? run_sum_with_product<true, 1> : run_sum_with_product<true, 2>;
  return product == 1 ? run_sum_with_product<false, 1> : run_sum_with_product<false, 2>;
}

void add_float_forms(FormTable& table) {
  add_type<float>(table, "f32");
  add_type<double>(table, "f64");
  add_ternary<MultiplyAddDown, float, float>(table, "9.7.3.6", "fma.rm.f32");
  add_unary<GrossReciprocal, double, double>(table, "9.7.3.14", "rcp.approx.ftz.f64");
  table.add({.name = "ex2.approx.f32",
             .section = "9.7.3.21",
             .operands = "Ww",
             .run = power_of_two<false>});
  table.add({.name = "ex2.approx.ftz.f32",
             .section = "9.7.3.21",
             .operands = "Ww",
             .run = power_of_two<true>});
}

}  // namespace llmc_ptx
