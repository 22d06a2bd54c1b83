// Conversions (PTX ISA 9.0, section 9.7.9.22) and moves between registers (9.7.9.3 and 9.7.9.4). A
// register may be wider than the type of its operand: the upper bits of a source are ignored, those
// of a result are its extension.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "test/ptx/floats.h"
#include "test/ptx/lanes.h"

namespace llmc_ptx {

namespace {

// Types of PTX that C++ lacks, as bits.
struct Fp16 {
  U16 bits;
};
struct Bf16 {
  U16 bits;
};

template <class From>
auto widened(From x) {
  if constexpr (std::is_same_v<From, Fp16>) {
    return from_fp16(x.bits);
  } else if constexpr (std::is_same_v<From, Bf16>) {
    return from_bf16(x.bits);
  } else {
    return x;
  }
}

enum class Rounding { none, nearest, zero, down, up };

template <class F>
F round_to_integer(F x, Rounding rounding) {
  switch (rounding) {
    case Rounding::nearest:
      return std::nearbyint(x);
    case Rounding::down:
      return std::floor(x);
    case Rounding::up:
      return std::ceil(x);
    default:
      return std::trunc(x);
  }
}

// NaN becomes 0; what does not fit becomes the nearest number of the type.
template <class To, class F>
To saturated(F x) {
  if (x != x) return 0;
  if (x <= static_cast<F>(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
  if (x >= static_cast<F>(std::numeric_limits<To>::max())) return std::numeric_limits<To>::max();
  return static_cast<To>(x);
}

template <class To, class From, Rounding kRounding, bool kSaturate>
struct Convert {
  static To apply(From from) {
    const auto x = widened(from);
    using X = std::remove_const_t<decltype(x)>;
    if constexpr (std::is_same_v<To, Fp16>) {
      return {to_fp16(x)};
    } else if constexpr (std::is_same_v<To, Bf16>) {
      return {to_bf16(x)};
    } else if constexpr (std::is_floating_point_v<To>) {
      if constexpr (kSaturate) return x > 0 ? std::min(x, X{1}) : X{0};  // NaN becomes 0
      if constexpr (std::is_same_v<To, X> && kRounding != Rounding::none)
        return round_to_integer(x, kRounding);
      return static_cast<To>(x);
    } else if constexpr (std::is_floating_point_v<X>) {
      return saturated<To>(round_to_integer(x, kRounding));
    } else if constexpr (kSaturate) {
      using Wide = std::conditional_t<std::is_signed_v<X>, S64, U64>;
      return static_cast<To>(std::clamp(Wide{x}, static_cast<Wide>(std::numeric_limits<To>::min()),
                                        static_cast<Wide>(std::numeric_limits<To>::max())));
    } else {
      return static_cast<To>(x);
    }
  }
};

// A value of type T in a register R.
template <class T, class R>
T from_register(R x) {
  if constexpr (std::is_same_v<T, Fp16> || std::is_same_v<T, Bf16>) {
    return {static_cast<U16>(x)};
  } else if constexpr (std::is_floating_point_v<T>) {
    return std::bit_cast<T>(x);
  } else {
    return static_cast<T>(x);
  }
}
template <class R, class T>
R to_register(T x) {
  if constexpr (std::is_same_v<T, Fp16> || std::is_same_v<T, Bf16>) {
    return x.bits;
  } else if constexpr (std::is_floating_point_v<T>) {
    return std::bit_cast<R>(x);
  } else {
    return static_cast<R>(x);
  }
}

template <class To, class From, Rounding kRounding, bool kSaturate, class R, class A>
void convert(Warp& warp, const Instruction& i) {
  const A* const a = warp.lanes<A>(i.operands[1]);
  write_lanes(warp, warp.lanes<R>(i.operands[0]), [=](int lane) -> R {
    return to_register<R>(
        Convert<To, From, kRounding, kSaturate>::apply(from_register<From, A>(a[lane])));
  });
}

// The run for registers of these widths; null if a type does not fit.
template <class To, class From, Rounding kRounding, bool kSaturate>
Run convert_by_width(const std::vector<Width>& widths) {
  const auto with_result = [&]<class R>() -> Run {
    if constexpr (sizeof(R) < sizeof(To) ||
                  (std::is_floating_point_v<To> && sizeof(R) != sizeof(To))) {
      return nullptr;
    } else {
      const auto with_source = [&]<class A>() -> Run {
        if constexpr (sizeof(A) < sizeof(From) ||
                      (std::is_floating_point_v<From> && sizeof(A) != sizeof(From))) {
          return nullptr;
        } else {
          return convert<To, From, kRounding, kSaturate, R, A>;
        }
      };
      return with_register(widths[1], with_source);
    }
  };
  return with_register(widths[0], with_result);
}

template <class To, class From, Rounding kRounding = Rounding::none, bool kSaturate = false>
void add(FormTable& table, const std::string& name) {
  table.add({.name = "cvt." + name,
             .section = "9.7.9.21",
             .operands = "Xx",
             .by_width = convert_by_width<To, From, kRounding, kSaturate>});
}

template <class To>
void add_from_integers(FormTable& table, const std::string& to) {
  add<To, S8>(table, to + ".s8");
  add<To, U8>(table, to + ".u8");
  add<To, S16>(table, to + ".s16");
  add<To, U16>(table, to + ".u16");
  add<To, S32>(table, to + ".s32");
  add<To, U32>(table, to + ".u32");
  add<To, S64>(table, to + ".s64");
  add<To, U64>(table, to + ".u64");
}

template <class To>
void add_integer(FormTable& table, const std::string& to) {
  add_from_integers<To>(table, to);
  add<To, float, Rounding::nearest>(table, "rni." + to + ".f32");
  add<To, float, Rounding::zero>(table, "rzi." + to + ".f32");
  add<To, float, Rounding::down>(table, "rmi." + to + ".f32");
  add<To, float, Rounding::up>(table, "rpi." + to + ".f32");
}

// cvt.rn.bf16x2.f32 d, a, b: a becomes the upper half.
template <U16 (*kNarrow)(float)>
void pack_halves(Warp& warp, const Instruction& i) {
  const float* const a = warp.lanes<float>(i.operands[1]);
  const float* const b = warp.lanes<float>(i.operands[2]);
  write_lanes(warp, warp.lanes<U32>(i.operands[0]),
              [=](int lane) { return U32{kNarrow(a[lane])} << 16 | kNarrow(b[lane]); });
}

template <class T>
void add_moves(FormTable& table, std::initializer_list<const char*> types) {
  for (const char* type : types)
    add_unary<Copy, T, T>(table, "9.7.9.3", (std::string("mov.") + type).c_str());
}

template <class Whole, class Half>
void pack(Warp& warp, const Instruction& i) {
  const Half* const low = warp.lanes<Half>(i.operands[1]);
  const Half* const high = warp.lanes<Half>(i.operands[2]);
  write_lanes(warp, warp.lanes<Whole>(i.operands[0]), [=](int lane) {
    return static_cast<Whole>(Whole{high[lane]} << (8 * sizeof(Half)) | low[lane]);
  });
}

template <class Whole, class Half>
void unpack(Warp& warp, const Instruction& i) {
  const Whole* const whole = warp.lanes<Whole>(i.operands[2]);
  write_lanes(warp, warp.lanes<Half>(i.operands[0]),
              [=](int lane) { return static_cast<Half>(whole[lane]); });
  write_lanes(warp, warp.lanes<Half>(i.operands[1]),
              [=](int lane) { return static_cast<Half>(whole[lane] >> (8 * sizeof(Half))); });
}

void copy_predicate(Warp& warp, const Instruction& i) {
  U32& out = warp.predicate(i.operands[0]);
  out = (out & ~warp.active()) | (warp.predicate(i.operands[1]) & warp.active());
}

}  // namespace

void add_convert_forms(FormTable& table) {
  add_integer<S8>(table, "s8");
  add_integer<U8>(table, "u8");
  add_integer<S16>(table, "s16");
  add_integer<U16>(table, "u16");
  add_integer<S32>(table, "s32");
  add_integer<U32>(table, "u32");
  add_integer<S64>(table, "s64");
  add_integer<U64>(table, "u64");
  add_from_integers<float>(table, "rn.f32");
  add_from_integers<double>(table, "rn.f64");
  add<float, double>(table, "rn.f32.f64");
  add<double, float>(table, "f64.f32");
  add<float, Fp16>(table, "f32.f16");
  add<float, Bf16>(table, "f32.bf16");
  add<Fp16, float>(table, "rn.f16.f32");
  add<Bf16, float>(table, "rn.bf16.f32");
  add<float, float, Rounding::none, true>(table, "sat.f32.f32");
  add<float, float, Rounding::nearest>(table, "rni.f32.f32");
  add<double, double, Rounding::zero>(table, "rzi.f64.f64");
  table.add({.name = "cvt.rn.bf16x2.f32",
             .section = "9.7.9.21",
             .operands = "Www",
             .run = pack_halves<to_bf16>});
  table.add({.name = "cvt.rn.f16x2.f32",
             .section = "9.7.9.21",
             .operands = "Www",
             .run = pack_halves<to_fp16>});
}

void add_move_forms(FormTable& table) {
  add_moves<U16>(table, {"b16", "u16", "s16"});
  add_moves<U32>(table, {"b32", "u32", "s32", "f32"});
  add_moves<U64>(table, {"b64", "u64", "s64", "f64"});
  table.add({.name = "mov.pred", .section = "9.7.9.3", .operands = "Pp", .run = copy_predicate});
  table.add(
      {.name = "mov.b32 pack", .section = "9.7.9.4", .operands = "Whh", .run = pack<U32, U16>});
  table.add(
      {.name = "mov.b64 pack", .section = "9.7.9.4", .operands = "Dww", .run = pack<U64, U32>});
  table.add(
      {.name = "mov.b32 unpack", .section = "9.7.9.4", .operands = "HHw", .run = unpack<U32, U16>});
  table.add(
      {.name = "mov.b64 unpack", .section = "9.7.9.4", .operands = "WWd", .run = unpack<U64, U32>});
}

}  // namespace llmc_ptx
