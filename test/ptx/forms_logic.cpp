// Logic and shifts (PTX ISA 9.0, section 9.7.8), comparison and selection (9.7.6).
#include <algorithm>
#include <string>

#include "test/ptx/lanes.h"

namespace llmc_ptx {

namespace {

struct And {
  template <class T>
  static T apply(T a, T b) {
    return a & b;
  }
};
struct Or {
  template <class T>
  static T apply(T a, T b) {
    return a | b;
  }
};
struct Xor {
  template <class T>
  static T apply(T a, T b) {
    return a ^ b;
  }
};
struct Not {
  template <class T>
  static T apply(T a) {
    return static_cast<T>(~a);
  }
};
// Distances beyond the width count as the width.
struct ShiftLeft {
  template <class T>
  static T apply(T a, U32 distance) {
    return distance >= 8 * sizeof(T) ? T{0} : static_cast<T>(a << distance);
  }
};
struct ShiftRight {
  template <class T>
  static T apply(T a, U32 distance) {
    constexpr U32 kLast = 8 * sizeof(T) - 1;
    if (!std::is_signed_v<T> && distance > kLast) return T{0};
    return static_cast<T>(a >> std::min(distance, kLast));
  }
};

template <class Op>
void predicates(Warp& warp, const Instruction& i) {
  const U32 a = warp.predicate(i.operands[1]), b = warp.predicate(i.operands[2]);
  U32& out = warp.predicate(i.operands[0]);
  out = (out & ~warp.active()) | (Op::apply(a, b) & warp.active());
}

void not_predicate(Warp& warp, const Instruction& i) {
  const U32 a = warp.predicate(i.operands[1]);
  U32& out = warp.predicate(i.operands[0]);
  out = (out & ~warp.active()) | (~a & warp.active());
}

template <class Op>
void add_logic(FormTable& table, const char* section, const std::string& opcode) {
  add_binary<Op, U16, U16>(table, section, (opcode + ".b16").c_str());
  add_binary<Op, U32, U32>(table, section, (opcode + ".b32").c_str());
  add_binary<Op, U64, U64>(table, section, (opcode + ".b64").c_str());
  table.add(
      {.name = opcode + ".pred", .section = section, .operands = "Ppp", .run = predicates<Op>});
}

// With a NaN, ordered comparisons are false, and unordered ones are true.
template <class T, class Compare>
void compare(Warp& warp, const Instruction& i) {
  const T* const a = warp.lanes<T>(i.operands[1]);
  const T* const b = warp.lanes<T>(i.operands[2]);
  write_predicate(warp, i.operands[0], [=](int lane) { return Compare::apply(a[lane], b[lane]); });
}

struct Equal {
  template <class T>
  static bool apply(T a, T b) {
    return a == b;
  }
};
struct Less {
  template <class T>
  static bool apply(T a, T b) {
    return a < b;
  }
};
struct LessOrEqual {
  template <class T>
  static bool apply(T a, T b) {
    return a <= b;
  }
};
template <class Op>
struct Swapped {
  template <class T>
  static bool apply(T a, T b) {
    return Op::apply(b, a);
  }
};
template <class Op>
struct Negated {
  template <class T>
  static bool apply(T a, T b) {
    return !Op::apply(a, b);
  }
};
struct OrderedNotEqual {
  template <class T>
  static bool apply(T a, T b) {
    return a < b || a > b;
  }
};

template <class T, class Compare>
void add_comparison(FormTable& table, const std::string& comparison, const std::string& type) {
  table.add({.name = "setp." + comparison + "." + type,
             .section = "9.7.6.2",
             .operands = {'P', letter<T>(false), letter<T>(false)},
             .run = compare<T, Compare>});
}

template <class T>
void add_order(FormTable& table, const std::string& type) {
  add_comparison<T, Less>(table, "lt", type);
  add_comparison<T, LessOrEqual>(table, "le", type);
  add_comparison<T, Swapped<Less>>(table, "gt", type);
  add_comparison<T, Swapped<LessOrEqual>>(table, "ge", type);
}

template <class T>
void add_integer_comparisons(FormTable& table, const std::string& type) {
  add_comparison<T, Equal>(table, "eq", type);
  add_comparison<T, Negated<Equal>>(table, "ne", type);
  if (type[0] != 'b') add_order<T>(table, type);
}

template <class T>
void add_float_comparisons(FormTable& table, const std::string& type) {
  add_comparison<T, Equal>(table, "eq", type);
  add_comparison<T, OrderedNotEqual>(table, "ne", type);
  add_order<T>(table, type);
  add_comparison<T, Negated<OrderedNotEqual>>(table, "equ", type);
  add_comparison<T, Negated<Equal>>(table, "neu", type);
  add_comparison<T, Negated<Swapped<LessOrEqual>>>(table, "ltu", type);
  add_comparison<T, Negated<Swapped<Less>>>(table, "leu", type);
  add_comparison<T, Negated<LessOrEqual>>(table, "gtu", type);
  add_comparison<T, Negated<Less>>(table, "geu", type);
}

template <class T>
void select(Warp& warp, const Instruction& i) {
  const T* const a = warp.lanes<T>(i.operands[1]);
  const T* const b = warp.lanes<T>(i.operands[2]);
  const U32 chosen = warp.predicate(i.operands[3]);
  write_lanes(warp, warp.lanes<T>(i.operands[0]),
              [=](int lane) { return has_lane(chosen, lane) ? a[lane] : b[lane]; });
}

template <class T>
void add_selections(FormTable& table, std::initializer_list<const char*> types) {
  for (const char* type : types) {
    table.add({.name = std::string("selp.") + type,
               .section = "9.7.6.3",
               .operands = {letter<T>(true), letter<T>(false), letter<T>(false), 'p'},
               .run = select<T>});
  }
}

}  // namespace

void add_logic_forms(FormTable& table) {
  add_logic<And>(table, "9.7.8.1", "and");
  add_logic<Or>(table, "9.7.8.2", "or");
  add_logic<Xor>(table, "9.7.8.3", "xor");
  add_unary<Not, U16, U16>(table, "9.7.8.4", "not.b16");
  add_unary<Not, U32, U32>(table, "9.7.8.4", "not.b32");
  add_unary<Not, U64, U64>(table, "9.7.8.4", "not.b64");
  table.add({.name = "not.pred", .section = "9.7.8.4", .operands = "Pp", .run = not_predicate});
  add_binary<ShiftLeft, U16, U16, U32>(table, "9.7.8.8", "shl.b16");
  add_binary<ShiftLeft, U32, U32, U32>(table, "9.7.8.8", "shl.b32");
  add_binary<ShiftLeft, U64, U64, U32>(table, "9.7.8.8", "shl.b64");
  add_binary<ShiftRight, S16, S16, U32>(table, "9.7.8.9", "shr.s16");
  add_binary<ShiftRight, S32, S32, U32>(table, "9.7.8.9", "shr.s32");
  add_binary<ShiftRight, S64, S64, U32>(table, "9.7.8.9", "shr.s64");
  for (const char type : {'u', 'b'}) {
    const std::string name = std::string("shr.") + type;
    add_binary<ShiftRight, U16, U16, U32>(table, "9.7.8.9", (name + "16").c_str());
    add_binary<ShiftRight, U32, U32, U32>(table, "9.7.8.9", (name + "32").c_str());
    add_binary<ShiftRight, U64, U64, U32>(table, "9.7.8.9", (name + "64").c_str());
  }
}

void add_compare_forms(FormTable& table) {
  add_integer_comparisons<U16>(table, "b16");
  add_integer_comparisons<U16>(table, "u16");
  add_integer_comparisons<S16>(table, "s16");
  add_integer_comparisons<U32>(table, "b32");
  add_integer_comparisons<U32>(table, "u32");
  add_integer_comparisons<S32>(table, "s32");
  add_integer_comparisons<U64>(table, "b64");
  add_integer_comparisons<U64>(table, "u64");
  add_integer_comparisons<S64>(table, "s64");
  add_float_comparisons<float>(table, "f32");
  add_float_comparisons<double>(table, "f64");
  add_selections<U16>(table, {"b16", "u16", "s16"});
  add_selections<U32>(table, {"b32", "u32", "s32", "f32"});
  add_selections<U64>(table, {"b64", "u64", "s64", "f64"});
}

}  // namespace llmc_ptx
