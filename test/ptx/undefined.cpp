#include "test/ptx/undefined.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "test/ptx/device_memory.h"
#include "test/ptx/lanes.h"
#include "test/ptx/memory.h"

namespace llmc_ptx {

namespace {

struct Prefix {
  std::string_view text;
  Flow flow;
  std::uint16_t chooses = 0;
};

// The first one that fits counts; other forms are `whole`.
constexpr Prefix kPrefixes[] = {{"and.", Flow::conjunction},
                                {"or.", Flow::disjunction},
                                {"xor.", Flow::either},
                                {"not.", Flow::either},
                                {"cvta.", Flow::carry},
                                {"mov.", Flow::follow},
                                {"shl.", Flow::follow, 1 << 2},
                                {"shr.", Flow::follow, 1 << 2},
                                {"bfi.", Flow::follow, 1 << 3 | 1 << 4},
                                {"prmt.", Flow::follow, 1 << 3},
                                {"selp.", Flow::follow, 1 << 3},
                                {"shfl.", Flow::follow, 1 << 1 | 1 << 3 | 1 << 4 | 1 << 5},
                                {"mul.lo.", Flow::carry},
                                {"mad.lo.", Flow::carry},
                                {"mma.", Flow::matrix},
                                {"ld", Flow::memory},  // and ldmatrix
                                {"st.", Flow::memory},
                                {"atom.", Flow::memory},
                                {"cp.async.cg", Flow::memory},
                                {"cp.async", Flow::none},
                                {"membar", Flow::none},
                                {"fence", Flow::none},
                                {"griddepcontrol", Flow::none},
                                {"nop", Flow::none}};

bool is_integer(std::string_view type) {
  return type.size() >= 2 && (type[0] == 's' || type[0] == 'u' || type[0] == 'b') &&
         type[1] >= '0' && type[1] <= '9';
}

bool is_written(char letter) {
  return letter == 'P' || letter == 'H' || letter == 'W' || letter == 'D';
}
bool is_predicate(char letter) {
  return letter == 'P' || letter == 'p';
}

// Calls f.operator()<R>() for the register type of a letter that is no predicate.
template <class F>
void with_letter(char letter, const F& f) {
  switch (letter | 32) {
    case 'h':
      return f.template operator()<U16>();
    case 'w':
      return f.template operator()<U32>();
    default:
      return f.template operator()<U64>();
  }
}

class FlowStep {
 public:
  FlowStep(Warp& warp, const Instruction& instruction)
      : warp_(warp), i_(instruction), rule_(warp.block().program->rules[warp.place()]) {}

  void run() {
    if (rule_.flow == Flow::none || !touches_undefined()) return;
    switch (rule_.flow) {
      case Flow::memory:
        return check_addresses();
      case Flow::matrix:
        return pass_matrix();
      case Flow::follow:
        return follow();
      case Flow::carry:
      case Flow::conjunction:
      case Flow::disjunction:
      case Flow::either:
        if (is_predicate(rule_.letters[0])) return pass_predicates();
        return with_letter(rule_.letters[0], [&]<class T>() { pass_bits<T>(); });
      case Flow::equality:
        return with_letter(rule_.letters[1], [&]<class T>() { compare<T>(); });
      default:
        return pass_lanes(read_undefined(0));
    }
  }

 private:
  bool touches_undefined() const {
    for (std::size_t k = 0; k < rule_.count; ++k) {
      if (rule_.letters[k] != '-' && warp_.has_undefined(i_.operands[k])) return true;
    }
    return false;
  }

  // The lanes in which an operand has an undefined bit.
  U32 undefined_lanes(std::size_t k) const {
    const Operand operand = i_.operands[k];
    const char letter = rule_.letters[k];
    if (letter == '-' || !warp_.has_undefined(operand)) return 0;
    if (is_predicate(letter)) return warp_.predicate(warp_.undefined(operand));
    U32 lanes = 0;
    const auto collect = [&]<class T>() {
      const T* const bits = warp_.lanes<T>(warp_.undefined(operand));
      for (int lane = 0; lane < kLanes; ++lane) lanes |= U32{bits[lane] != 0} << lane;
    };
    if (letter == 'a') {
      collect.template operator()<U32>();
    } else if (letter == 'A') {
      collect.template operator()<U64>();
    } else {
      with_letter(letter, collect);
    }
    return lanes;
  }

  // The lanes in which one of the operands that are read is undefined; `only`: bits of operands, 0:
  // all.
  U32 read_undefined(std::uint16_t only) const {
    U32 lanes = 0;
    for (std::size_t k = 0; k < rule_.count; ++k) {
      if (is_written(rule_.letters[k]) || (only != 0 && (only >> k & 1) == 0)) continue;
      lanes |= undefined_lanes(k);
    }
    return lanes;
  }

  // All results are undefined in these lanes.
  void pass_lanes(U32 lanes) {
    for (std::size_t k = 0; k < rule_.count; ++k) {
      const char letter = rule_.letters[k];
      if (!is_written(letter)) continue;
      const Operand out = warp_.undefined(i_.operands[k]);
      if (is_predicate(letter)) {
        set_predicate(k, lanes);
        continue;
      }
      with_letter(letter, [&]<class T>() {
        write_lanes(warp_, warp_.lanes<T>(out),
                    [=](int lane) { return has_lane(lanes, lane) ? static_cast<T>(~T{0}) : T{0}; });
      });
      update(k);
    }
  }

  void set_predicate(std::size_t k, U32 lanes) {
    U32& bits = warp_.predicate(warp_.undefined(i_.operands[k]));
    bits = (bits & ~warp_.active()) | (lanes & warp_.active());
    update(k);
  }

  void update(std::size_t k) {
    const char letter = rule_.letters[k];
    warp_.update_undefined(i_.operands[k], is_predicate(letter) ? 4
                                           : letter == 'H'      ? 2 * kLanes
                                           : letter == 'W'      ? 4 * kLanes
                                                                : 8 * kLanes);
  }

  template <class T>
  void pass_bits() {
    const Flow flow = rule_.flow;
    T bits[kLanes] = {}, values[kLanes] = {};
    for (std::size_t k = 1; k < rule_.count; ++k) {
      const T* const value = warp_.lanes<T>(i_.operands[k]);
      const T* const undefined = warp_.lanes<T>(warp_.undefined(i_.operands[k]));
      for (int lane = 0; lane < kLanes; ++lane) {
        T& bit = bits[lane];
        if (k == 1 || flow == Flow::either || flow == Flow::carry) {
          bit |= undefined[lane];
        } else if (flow == Flow::conjunction) {
          bit = (bit & undefined[lane]) | (values[lane] & undefined[lane]) | (bit & value[lane]);
        } else {
          bit = (bit & undefined[lane]) | (static_cast<T>(~values[lane]) & undefined[lane]) |
                (bit & static_cast<T>(~value[lane]));
        }
        values[lane] = value[lane];
      }
    }
    if (flow == Flow::carry) {
      for (T& bit : bits) bit |= static_cast<T>(T{0} - bit);
    }
    write_lanes(warp_, warp_.lanes<T>(warp_.undefined(i_.operands[0])),
                [&](int lane) { return bits[lane]; });
    update(0);
  }

  void pass_predicates() {
    const auto value = [&](std::size_t k) { return warp_.predicate(i_.operands[k]); };
    const U32 a = undefined_lanes(1), b = rule_.count > 2 ? undefined_lanes(2) : 0;
    U32 bits = a | b;
    if (rule_.flow == Flow::conjunction) bits = (a & b) | (value(1) & b) | (a & value(2));
    if (rule_.flow == Flow::disjunction) bits = (a & b) | (~value(1) & b) | (a & ~value(2));
    set_predicate(0, bits);
  }

  template <class T>
  void compare() {
    const T* const a = warp_.lanes<T>(i_.operands[1]);
    const T* const b = warp_.lanes<T>(i_.operands[2]);
    const T* const a_bits = warp_.lanes<T>(warp_.undefined(i_.operands[1]));
    const T* const b_bits = warp_.lanes<T>(warp_.undefined(i_.operands[2]));
    U32 lanes = 0;
    for (int lane = 0; lane < kLanes; ++lane) {
      const T bits = a_bits[lane] | b_bits[lane];
      const bool differs = (static_cast<T>(a[lane] ^ b[lane]) & static_cast<T>(~bits)) != 0;
      lanes |= U32{bits != 0 && !differs} << lane;
    }
    set_predicate(0, lanes);
  }

  // Runs the instruction on the undefined bits of its operands.
  void follow() {
    const U32 chosen = rule_.chooses == 0 ? 0 : read_undefined(rule_.chooses) & warp_.active();
    if (chosen != 0) {
      if (rule_.letters[1] == 'P')
        warp_.error("an undefined distance or mask", std::countr_zero(chosen));
      return pass_lanes(read_undefined(0));
    }
    std::array<Operand, UndefinedRule::kMost> operands;
    for (std::size_t k = 0; k < rule_.count; ++k) {
      const bool chooses = (rule_.chooses >> k & 1) != 0;
      operands[k] = chooses ? i_.operands[k] : warp_.undefined(i_.operands[k]);
    }
    Instruction on_bits = i_;
    on_bits.operands = operands.data();
    on_bits.negates_source = false;
    i_.run(warp_, on_bits);
    for (std::size_t k = 0; k < rule_.count; ++k) {
      if (!is_written(rule_.letters[k])) continue;
      if ((rule_.chooses >> k & 1) != 0) {
        set_predicate(k, 0);
      } else {
        update(k);
      }
    }
  }

  // Lane l of A has rows l / 4 and l / 4 + 8, in turn; of B column l / 4; of C and D columns 2 (l %
  // 4) and the next one of these rows, whatever the type of the elements.
  void pass_matrix() {
    bool rows[16] = {}, columns[8] = {};
    for (std::size_t r = 0; r < 4; ++r) {
      const U32 a = undefined_lanes(4 + r), b = r < 2 ? undefined_lanes(8 + r) : 0;
      for (int lane = 0; lane < kLanes; ++lane) {
        rows[lane / 4 + (r % 2 == 0 ? 0 : 8)] |= has_lane(a, lane);
        columns[lane / 4] |= has_lane(b, lane);
      }
    }
    U32 lanes[4];
    for (std::size_t e = 0; e < 4; ++e) {
      lanes[e] = undefined_lanes(10 + e);
      for (int lane = 0; lane < kLanes; ++lane) {
        const int row = lane / 4 + (e < 2 ? 0 : 8), column = lane % 4 * 2 + static_cast<int>(e % 2);
        lanes[e] |= U32{rows[row] || columns[column]} << lane;
      }
    }
    for (std::size_t e = 0; e < 4; ++e) {
      U32* const out = warp_.lanes<U32>(warp_.undefined(i_.operands[e]));
      write_lanes(warp_, out,
                  [&](int lane) { return has_lane(lanes[e], lane) ? ~U32{0} : U32{0}; });
      update(e);
    }
  }

  void check_addresses() {
    for (std::size_t k = 0; k < rule_.count; ++k) {
      const char letter = rule_.letters[k];
      // The size of an asynchronous copy is its last operand.
      const bool is_size = k > 0 && letter == 'w' && (rule_.letters[0] | 32) == 'a';
      if (letter != 'a' && letter != 'A' && !(is_size && rule_.letters[1] == 'A')) continue;
      const U32 lanes = undefined_lanes(k) & warp_.active();
      if (lanes != 0)
        warp_.error(is_size ? "an undefined size" : "an undefined address",
                    std::countr_zero(lanes));
    }
  }

  Warp& warp_;
  const Instruction& i_;
  const UndefinedRule& rule_;
};

}  // namespace

UndefinedRule undefined_rule(std::string_view form) {
  UndefinedRule rule;
  for (const Prefix& prefix : kPrefixes) {
    if (!form.starts_with(prefix.text)) continue;
    rule.flow = prefix.flow;
    rule.chooses = prefix.chooses;
    return rule;
  }
  const std::size_t first = form.find('.'), last = form.rfind('.');
  if (first == std::string_view::npos) return rule;
  const std::string_view opcode = form.substr(0, first), type = form.substr(last + 1);
  const bool is_plain = is_integer(type) && form.find(".wide.") == std::string_view::npos;
  if ((opcode == "add" || opcode == "sub" || opcode == "neg") && is_plain) rule.flow = Flow::carry;
  if (form.starts_with("setp.eq.") || form.starts_with("setp.ne."))
    rule.flow = is_integer(type) ? Flow::equality : Flow::whole;
  if (opcode == "cvt" && is_integer(type) && first + 1 < last &&
      is_integer(form.substr(first + 1, last - first - 1))) {
    rule.flow = Flow::follow;
  }
  return rule;
}

void flow_undefined(Warp& warp, const Instruction& instruction) {
  FlowStep(warp, instruction).run();
}

void require_defined(Warp& warp, Operand predicate, std::uint32_t lanes) {
  if (!warp.has_undefined(predicate)) return;
  const U32 bits = warp.predicate(warp.undefined(predicate)) & lanes;
  if (bits != 0) warp.error("an undefined predicate", std::countr_zero(bits));
}

bool any_undefined(const std::byte* bits, std::uint64_t bytes) {
  unsigned any = 0;
  for (std::uint64_t i = 0; i < bytes; ++i) any |= static_cast<unsigned>(bits[i]);
  return any != 0;
}

std::byte* undefined_bits(Warp& warp, const std::byte* place, std::uint64_t bytes) {
  const Block& block = warp.block();
  const auto within = [=](const std::byte* begin, std::int64_t size) {
    return place >= begin && place < begin + size;
  };
  if (within(block.shared, block.shared_bytes))
    return block.shared_undefined + (place - block.shared);
  if (within(warp.local(), block.program->local_bytes * kLanes))
    return warp.local_undefined() + (place - warp.local());
  if (within(block.parameters, block.program->parameter_bytes)) return nullptr;
  const auto address = reinterpret_cast<std::uintptr_t>(place);
  Range& range = warp.last_range();
  if (!range.holds(address, bytes)) range = DeviceMemory::instance().find(address);
  return range.undefined == nullptr ? nullptr : range.undefined + (address - range.begin);
}

void require_defined_by_others(Warp& warp, int lane, const std::byte* place, std::uint64_t bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(place);
  const auto store = DeviceMemory::instance().undefined_store(address, bytes, warp.block().launch);
  if (store) warp.error("a load of bytes that were " + *store + ";", lane);
}

}  // namespace llmc_ptx
