// Instructions whose lanes compute on their own: a function of a lane's values, called for each
// lane.
#pragma once

#include <cstdint>
#include <type_traits>

#include "test/ptx/forms.h"
#include "test/ptx/warp.h"

namespace llmc_ptx {

using U16 = std::uint16_t;
using U32 = std::uint32_t;
using U64 = std::uint64_t;
using S8 = std::int8_t;
using U8 = std::uint8_t;
using S16 = std::int16_t;
using S32 = std::int32_t;
using S64 = std::int64_t;

// Returns f.operator()<R>() for the type R of a register of this width, which is no predicate.
template <class F>
Run with_register(Width width, const F& f) {
  switch (width) {
    case Width::bits16:
      return f.template operator()<U16>();
    case Width::bits32:
      return f.template operator()<U32>();
    default:
      return f.template operator()<U64>();
  }
}

// For add_unary: the value itself.
struct Copy {
  template <class T>
  static T apply(T a) {
    return a;
  }
};

inline bool has_lane(U32 mask, int lane) {
  return (mask >> lane & 1) != 0;
}

// Calls set(lane) for the active lanes.
template <class Set>
void for_active(const Warp& warp, const Set& set) {
  for (int lane = 0; lane < kLanes; ++lane) {
    if (has_lane(warp.active(), lane)) set(lane);
  }
}

// Writes value(lane) to the active lanes of `out`. The loops are those that compilers turn into
// SIMD: a register of an instruction is another one of its registers, or has no bytes in common
// with it.
template <class R, class Value>
void write_lanes(const Warp& warp, R* out, const Value& value) {
  const U32 active = warp.active();
  if (active == ~U32{0}) {
#pragma GCC ivdep
    for (int lane = 0; lane < kLanes; ++lane) out[lane] = value(lane);
    return;
  }
  alignas(64) R values[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) values[lane] = value(lane);
#pragma GCC ivdep
  for (int lane = 0; lane < kLanes; ++lane)
    out[lane] = has_lane(active, lane) ? values[lane] : out[lane];
}

// A predicate of all lanes, of which the active ones are written.
template <class Test>
void write_predicate(Warp& warp, Operand out, const Test& test) {
  U32 bits = 0;
  for (int lane = 0; lane < kLanes; ++lane) bits |= static_cast<U32>(test(lane)) << lane;
  U32& old = warp.predicate(out);
  old = (old & ~warp.active()) | (bits & warp.active());
}

template <class Op, class R, class A>
void run_unary(Warp& warp, const Instruction& i) {
  const A* const a = warp.lanes<A>(i.operands[1]);
  write_lanes(warp, warp.lanes<R>(i.operands[0]),
              [=](int lane) -> R { return Op::apply(a[lane]); });
}

template <class Op, class R, class A, class B>
void run_binary(Warp& warp, const Instruction& i) {
  const A* const a = warp.lanes<A>(i.operands[1]);
  const B* const b = warp.lanes<B>(i.operands[2]);
  write_lanes(warp, warp.lanes<R>(i.operands[0]),
              [=](int lane) -> R { return Op::apply(a[lane], b[lane]); });
}

template <class Op, class R, class A, class B, class C>
void run_ternary(Warp& warp, const Instruction& i) {
  const A* const a = warp.lanes<A>(i.operands[1]);
  const B* const b = warp.lanes<B>(i.operands[2]);
  const C* const c = warp.lanes<C>(i.operands[3]);
  write_lanes(warp, warp.lanes<R>(i.operands[0]),
              [=](int lane) -> R { return Op::apply(a[lane], b[lane], c[lane]); });
}

// The letter of Form::operands for a value of type T.
template <class T>
constexpr char letter(bool written) {
  static_assert(sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8);
  const char read = sizeof(T) == 2 ? 'h' : sizeof(T) == 4 ? 'w' : 'd';
  return written ? static_cast<char>(read - 'a' + 'A') : read;
}

template <class Op, class R, class A>
void add_unary(FormTable& table, const char* section, const char* name) {
  table.add({.name = name,
             .section = section,
             .operands = {letter<R>(true), letter<A>(false)},
             .run = run_unary<Op, R, A>});
}

template <class Op, class R, class A, class B = A>
void add_binary(FormTable& table, const char* section, const char* name) {
  table.add({.name = name,
             .section = section,
             .operands = {letter<R>(true), letter<A>(false), letter<B>(false)},
             .run = run_binary<Op, R, A, B>});
}

template <class Op, class R, class A, class B = A, class C = R>
void add_ternary(FormTable& table, const char* section, const char* name) {
  table.add({.name = name,
             .section = section,
             .operands = {letter<R>(true), letter<A>(false), letter<B>(false), letter<C>(false)},
             .run = run_ternary<Op, R, A, B, C>});
}

}  // namespace llmc_ptx
