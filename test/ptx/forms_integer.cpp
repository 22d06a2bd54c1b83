// Integer arithmetic (PTX ISA 9.0, section 9.7.1), and bit fields. Sums and products wrap around.
#include <bit>
#include <limits>
#include <string>
#include <type_traits>

#include "test/ptx/lanes.h"

namespace llmc_ptx {

namespace {

template <class T>
using Unsigned = std::make_unsigned_t<T>;

struct Add {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(Unsigned<T>(a) + Unsigned<T>(b));
  }
};
struct Subtract {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(Unsigned<T>(a) - Unsigned<T>(b));
  }
};
struct MultiplyLow {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(U64(Unsigned<T>(a)) * U64(Unsigned<T>(b)));
  }
};
struct MultiplyHigh {
  template <class T>
  static T apply(T a, T b) {
    using Wide = std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>;
    return static_cast<T>((Wide{a} * Wide{b}) >> (8 * sizeof(T)));
  }
};
template <class Wide>
struct MultiplyWide {
  template <class T>
  static Wide apply(T a, T b) {
    return Wide{a} * Wide{b};
  }
};
struct MultiplyAddLow {
  template <class T>
  static T apply(T a, T b, T c) {
    return Add::apply(MultiplyLow::apply(a, b), c);
  }
};
template <class Wide>
struct MultiplyAddWide {
  template <class T>
  static Wide apply(T a, T b, Wide c) {
    return Add::apply(static_cast<Wide>(Wide{a} * Wide{b}), c);
  }
};
// The manual leaves a division by zero open; so is the quotient that does not fit.
struct Divide {
  template <class T>
  static T apply(T a, T b) {
    if (b == 0) return static_cast<T>(-1);
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return Subtract::apply(T{0}, a);
    return static_cast<T>(a / b);
  }
};
struct Remainder {
  template <class T>
  static T apply(T a, T b) {
    if (b == 0) return a;
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return 0;
    return static_cast<T>(a % b);
  }
};
struct Minimum {
  template <class T>
  static T apply(T a, T b) {
    return a < b ? a : b;
  }
};
struct Maximum {
  template <class T>
  static T apply(T a, T b) {
    return a > b ? a : b;
  }
};
struct Negate {
  template <class T>
  static T apply(T a) {
    return Subtract::apply(T{0}, a);
  }
};
struct Absolute {
  template <class T>
  static T apply(T a) {
    return a < 0 ? Negate::apply(a) : a;
  }
};

// b, of which `length` bits from `position` on are the low bits of a.
template <class T>
void insert_bits(Warp& warp, const Instruction& i) {
  const T* const a = warp.lanes<T>(i.operands[1]);
  const T* const b = warp.lanes<T>(i.operands[2]);
  const U32* const positions = warp.lanes<U32>(i.operands[3]);
  const U32* const lengths = warp.lanes<U32>(i.operands[4]);
  constexpr U32 kBits = 8 * sizeof(T);
  write_lanes(warp, warp.lanes<T>(i.operands[0]), [=](int lane) -> T {
    const U32 position = positions[lane] & 255, length = lengths[lane] & 255;
    if (position >= kBits) return b[lane];
    const T ones = length >= kBits ? ~T{0} : static_cast<T>((T{1} << length) - 1);
    const T mask = static_cast<T>(ones << position);
    return static_cast<T>((b[lane] & ~mask) | ((a[lane] << position) & mask));
  });
}

// Each half byte of c chooses a byte of b:a, or with its highest bit the sign of that byte.
struct Permute {
  static U32 apply(U32 a, U32 b, U32 c) {
    const U64 bytes = U64{b} << 32 | a;
    U32 result = 0;
    for (int k = 0; k < 4; ++k) {
      const U32 choice = c >> (4 * k) & 15;
      U32 byte = static_cast<U32>(bytes >> (8 * (choice & 7))) & 255;
      if ((choice & 8) != 0) byte = (byte & 128) != 0 ? 255 : 0;
      result |= byte << (8 * k);
    }
    return result;
  }
};

template <class T>
void add_type(FormTable& table, const std::string& type) {
  const auto name = [&](const char* opcode) { return opcode + type; };
  add_binary<Add, T, T>(table, "9.7.1.1", name("add.").c_str());
  add_binary<Subtract, T, T>(table, "9.7.1.2", name("sub.").c_str());
  add_binary<MultiplyLow, T, T>(table, "9.7.1.3", name("mul.lo.").c_str());
  add_ternary<MultiplyAddLow, T, T>(table, "9.7.1.4", name("mad.lo.").c_str());
  add_binary<Divide, T, T>(table, "9.7.1.8", name("div.").c_str());
  add_binary<Remainder, T, T>(table, "9.7.1.9", name("rem.").c_str());
  add_binary<Minimum, T, T>(table, "9.7.1.12", name("min.").c_str());
  add_binary<Maximum, T, T>(table, "9.7.1.13", name("max.").c_str());
  if constexpr (std::is_signed_v<T>) {
    add_unary<Absolute, T, T>(table, "9.7.1.10", name("abs.").c_str());
    add_unary<Negate, T, T>(table, "9.7.1.11", name("neg.").c_str());
  }
  if constexpr (sizeof(T) >= 4)
    add_binary<MultiplyHigh, T, T>(table, "9.7.1.3", name("mul.hi.").c_str());
  if constexpr (sizeof(T) < 8) {
    using Wide =
        std::conditional_t<std::is_signed_v<T>, std::conditional_t<sizeof(T) == 2, S32, S64>,
                           std::conditional_t<sizeof(T) == 2, U32, U64>>;
    add_binary<MultiplyWide<Wide>, Wide, T>(table, "9.7.1.3", name("mul.wide.").c_str());
    add_ternary<MultiplyAddWide<Wide>, Wide, T>(table, "9.7.1.4", name("mad.wide.").c_str());
  }
}

}  // namespace

void add_integer_forms(FormTable& table) {
  add_type<S16>(table, "s16");
  add_type<U16>(table, "u16");
  add_type<S32>(table, "s32");
  add_type<U32>(table, "u32");
  add_type<S64>(table, "s64");
  add_type<U64>(table, "u64");
  table.add(
      {.name = "bfi.b32", .section = "9.7.1.20", .operands = "Wwwww", .run = insert_bits<U32>});
  table.add(
      {.name = "bfi.b64", .section = "9.7.1.20", .operands = "Dddww", .run = insert_bits<U64>});
  add_ternary<Permute, U32, U32>(table, "9.7.9.7", "prmt.b32");
}

}  // namespace llmc_ptx
