// Each form of floating-point arithmetic, conversions and moves, against wider numbers.
#include <doctest/doctest.h>

#include <bit>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <string>

#include "test/ptx_rig.h"

namespace {

using namespace llmc_test;
using Quad = __float128;

constexpr double kInfinity = std::numeric_limits<double>::infinity(),
                 kNan = std::numeric_limits<double>::quiet_NaN();

std::uint64_t bits_of(double x, bool is_double) {
  return is_double ? std::bit_cast<std::uint64_t>(x)
                   : std::bit_cast<std::uint32_t>(static_cast<float>(x));
}
double number_of(std::uint64_t bits, bool is_double) {
  return is_double ? std::bit_cast<double>(bits)
                   : double{std::bit_cast<float>(static_cast<std::uint32_t>(bits))};
}

// Numbers of many magnitudes, and the special ones.
Lanes some_numbers(std::mt19937_64& random, bool is_double) {
  const double special[] = {0.0,  -0.0,  1.0,    -1.0, kInfinity, -kInfinity,
                            kNan, 1e-40, -1e-45, 0.5,  3e38,      255.5};
  Lanes lanes;
  for (std::uint64_t& lane : lanes) {
    const double x = std::ldexp(static_cast<double>(random() >> 11) * 0x1p-53 - 0.5,
                                static_cast<int>(random() % 60) - 30);
    lane = bits_of(random() % 4 == 0 ? special[random() % 12] : x, is_double);
  }
  return lanes;
}

// The exact result, or one with 113 bits, before it is rounded to the type.
Quad exact_result(const std::string& op, double a, double b, double c) {
  if (op == "add" || op == "add.rn") return Quad{a} + Quad{b};
  if (op == "sub" || op == "sub.rn") return Quad{a} - Quad{b};
  if (op == "mul" || op == "mul.rn") return Quad{a} * Quad{b};
  if (op == "fma.rn") return Quad{a} * Quad{b} + Quad{c};
  if (op == "div.rn") return Quad{a} / Quad{b};
  if (op == "rcp.rn") return Quad{1} / Quad{a};
  if (op == "sqrt.rn") return static_cast<Quad>(sqrtl(static_cast<long double>(a)));
  if (op == "abs") return a < 0 || (a == 0 && std::signbit(a)) ? -Quad{a} : Quad{a};
  if (op == "neg") return -Quad{a};
  if (op == "min")
    return std::isnan(a) ? b : std::isnan(b) || a < b || (a == b && std::signbit(a)) ? a : b;
  if (op == "max")
    return std::isnan(a) ? b : std::isnan(b) || a > b || (a == b && !std::signbit(a)) ? a : b;
  FAIL("no definition of " << op);
  return 0;
}

double rounded(Quad x, bool is_double) {
  return is_double ? static_cast<double>(x) : double{static_cast<float>(x)};
}

bool is_float_form(const std::string& name) {
  static const std::map<std::string, int> kOpcodes = {
      {"add", 2},  {"sub", 2}, {"mul", 2}, {"fma", 3}, {"div", 2}, {"rcp", 1},
      {"sqrt", 1}, {"abs", 1}, {"neg", 1}, {"min", 2}, {"max", 2}};
  return kOpcodes.contains(name.substr(0, name.find('.'))) &&
         (name.ends_with(".f32") || name.ends_with(".f64")) &&
         name.find("approx") == std::string::npos && name != "fma.rm.f32";
}

struct Type {
  std::string reg;
  int bits;
  bool is_signed, is_float;
};

const std::map<std::string, Type> kTypes = {
    {"s8", {"b16", 8, true, false}},   {"u8", {"b16", 8, false, false}},
    {"s16", {"b16", 16, true, false}}, {"u16", {"b16", 16, false, false}},
    {"s32", {"b32", 32, true, false}}, {"u32", {"b32", 32, false, false}},
    {"s64", {"b64", 64, true, false}}, {"u64", {"b64", 64, false, false}},
    {"f16", {"b16", 16, true, true}},  {"bf16", {"b16", 16, true, true}},
    {"f32", {"b32", 32, true, true}},  {"f64", {"b64", 64, true, true}}};

// The value of the low bits of a register.
Quad value_of(const std::string& name, std::uint64_t bits) {
  const Type& type = kTypes.at(name);
  if (name == "f64") return std::bit_cast<double>(bits);
  if (name == "f32") return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
  if (name == "bf16") return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  if (name == "f16") {
    const auto half = static_cast<std::uint16_t>(bits);
    const int exponent = half >> 10 & 31, fraction = half & 1023;
    const double size = exponent == 31  ? (fraction != 0 ? kNan : kInfinity)
                        : exponent == 0 ? std::ldexp(fraction, -24)
                                        : std::ldexp(1024 + fraction, exponent - 25);
    return (half >> 15) != 0 ? -size : size;
  }
  const std::uint64_t low = type.bits == 64 ? bits : bits & ((std::uint64_t{1} << type.bits) - 1);
  if (type.is_signed && (low >> (type.bits - 1)) != 0)
    return static_cast<Quad>(low) - static_cast<Quad>(__uint128_t{1} << type.bits);
  return static_cast<Quad>(low);
}

// A number near x that the format of `digits` bits and least exponent has; ties to even.
double rounded_to(double x, int digits, int least, double largest) {
  if (x == 0 || !std::isfinite(x)) return x;
  const int exponent = std::max(std::ilogb(x), least) - digits + 1;
  const double steps = std::nearbyint(std::ldexp(x, -exponent));
  const double result = std::ldexp(steps, exponent);
  return std::fabs(result) > largest ? std::copysign(kInfinity, x) : result;
}

double rounded_integer(double x, const std::string& how) {
  return how == "rni"   ? std::nearbyint(x)
         : how == "rmi" ? std::floor(x)
         : how == "rpi" ? std::ceil(x)
                        : std::trunc(x);
}

// "cvt.rzi.s32.f32" in its parts.
struct Conversion {
  std::string how, to, from;

  explicit Conversion(const std::string& name) {
    std::string rest = name.substr(4);
    from = rest.substr(rest.rfind('.') + 1);
    rest.resize(rest.rfind('.'));
    to = rest.substr(rest.rfind('.') == std::string::npos ? 0 : rest.rfind('.') + 1);
    how = rest.size() == to.size() ? "" : rest.substr(0, rest.size() - to.size() - 1);
  }

  // The bits that the register of the result must have, whose upper ones are the extension of the
  // type.
  std::uint64_t expected(std::uint64_t bits) const {
    const Quad x = value_of(from, bits);
    const auto number = static_cast<double>(x);
    if (to == "f16") return half_bits(rounded_to(number, 11, -14, 65504));
    if (to == "bf16")
      return std::bit_cast<std::uint32_t>(
                 static_cast<float>(rounded_to(number, 8, -126, 3.3895313892515355e38))) >>
             16;
    if (to == "f32" || to == "f64") {
      double result = to == "f64" ? number : double{static_cast<float>(x)};
      if (how == "sat") result = number > 0 ? std::fmin(number, 1.0) : 0.0;
      if (how.size() == 3 && how.back() == 'i') result = rounded_integer(number, how);
      return bits_of(result, to == "f64");
    }
    const Type& type = kTypes.at(to);
    std::uint64_t low;
    if (kTypes.at(from).is_float) {
      const double most = std::ldexp(1.0, type.is_signed ? type.bits - 1 : type.bits);
      const double integer = std::isnan(number) ? 0 : rounded_integer(number, how);
      if (integer >= most) {
        low = type.is_signed ? (std::uint64_t{1} << (type.bits - 1)) - 1 : ~std::uint64_t{0};
      } else if (integer <= (type.is_signed ? -most : 0)) {
        low = type.is_signed ? std::uint64_t{1} << (type.bits - 1) : 0;
      } else {
        low = integer < 0 ? static_cast<std::uint64_t>(static_cast<std::int64_t>(integer))
                          : static_cast<std::uint64_t>(integer);
      }
    } else {
      low = x < 0 ? static_cast<std::uint64_t>(static_cast<std::int64_t>(x))
                  : static_cast<std::uint64_t>(x);
    }
    const auto wide = static_cast<std::uint64_t>(static_cast<__int128>(value_of(to, low)));
    return kTypes.at(to).reg == "b64" ? wide
                                      : wide & (kTypes.at(to).reg == "b32" ? 0xFFFFFFFF : 0xFFFF);
  }

  static std::uint64_t half_bits(double x) {
    const std::uint64_t sign = std::signbit(x) ? 0x8000 : 0;
    const double size = std::fabs(x);
    if (std::isinf(x)) return sign | 0x7C00;
    if (size < 0x1p-14) return sign | static_cast<std::uint64_t>(size * 0x1p24);
    const int exponent = std::ilogb(size);
    return sign + (static_cast<std::uint64_t>(exponent + 14) << 10) +
           static_cast<std::uint64_t>(std::ldexp(size, 10 - exponent));
  }
};

}  // namespace

TEST_SUITE("ptx_floats") {
  TEST_CASE("arithmetic is that of 113 bits, rounded once") {
    std::mt19937_64 random(1);
    int count = 0;
    for (const auto& [name, form] : llmc_ptx::FormTable::all().forms()) {
      if (!is_float_form(name)) continue;
      CAPTURE(name);
      ++count;
      const bool is_double = name.ends_with("64");
      for (int round = 0; round < 8; ++round) {
        std::vector<Lanes> in;
        for (std::size_t i = 1; i < form.operands.size(); ++i)
          in.push_back(some_numbers(random, is_double));
        const Lanes out =
            run_instruction(plain_text(name, form.operands.size()), form.operands, in)[0];
        in.resize(3);
        for (std::size_t lane = 0; lane < out.size(); ++lane) {
          const auto arg = [&](std::size_t i) { return number_of(in[i][lane], is_double); };
          const std::string op = name.substr(0, name.size() - 4);
          const double expected = rounded(exact_result(op, arg(0), arg(1), arg(2)), is_double);
          const double actual = number_of(out[lane], is_double);
          CAPTURE(arg(0));
          CAPTURE(arg(1));
          // A root of a double has 64 bits here, which is not always enough.
          const double slack = op == "sqrt.rn" && is_double ? 0x1p-52 * std::fabs(expected) : 0;
          if (std::isnan(expected)) {
            REQUIRE(std::isnan(actual));
          } else {
            REQUIRE((actual == expected || std::fabs(actual - expected) <= slack));
            REQUIRE(std::signbit(actual) == std::signbit(expected));
          }
        }
      }
    }
    CHECK(count >= 28);
  }

  TEST_CASE("fma.rm rounds down") {
    std::mt19937_64 random(2);
    const std::vector<Lanes> in = {some_numbers(random, false), some_numbers(random, false),
                                   some_numbers(random, false)};
    const Lanes out = run_instruction("fma.rm.f32 $0, $1, $2, $3", "Wwww", in)[0];
    for (std::size_t lane = 0; lane < out.size(); ++lane) {
      const Quad exact = Quad{number_of(in[0][lane], false)} * number_of(in[1][lane], false) +
                         number_of(in[2][lane], false);
      const double actual = number_of(out[lane], false);
      if (exact != exact) continue;
      REQUIRE(Quad{actual} <= exact);
      if (std::isfinite(actual))
        REQUIRE(Quad{std::nextafter(static_cast<float>(actual), HUGE_VALF)} > exact);
    }
  }

  TEST_CASE("approximations stay within their bounds, and exact cases are exact") {
    std::mt19937_64 random(3);
    for (const std::string name : {"ex2.approx.f32", "ex2.approx.ftz.f32"}) {
      Lanes in;
      for (std::size_t lane = 0; lane < in.size(); ++lane) {
        const double x = lane < 8 ? static_cast<double>(lane) * 7 - 20
                                  : static_cast<double>(random() % 100000) / 500 - 120;
        in[lane] = bits_of(x, false);
      }
      bool differs = false;
      const Lanes first = run_instruction(plain_text(name, 2), "Ww", {in}, {}, 1)[0];
      const Lanes other = run_instruction(plain_text(name, 2), "Ww", {in}, {}, 2)[0];
      CHECK(run_instruction(plain_text(name, 2), "Ww", {in}, {}, 1)[0] == first);
      for (std::size_t lane = 0; lane < in.size(); ++lane) {
        const double exact = std::exp2(number_of(in[lane], false)),
                     error = std::fabs(number_of(first[lane], false) - exact);
        REQUIRE(error <= (lane < 8 ? 0 : 0x1p-22 * exact));
        differs = differs || first[lane] != other[lane];
      }
      CHECK(differs);
    }
    CHECK(number_of(run_instruction("ex2.approx.f32 $0, $1", "Ww",
                                    {Lanes{bits_of(-kInfinity, false)}})[0][0],
                    false) == 0);
    // -140 has a subnormal power, which the form with ftz flushes.
    CHECK(number_of(run_instruction("ex2.approx.ftz.f32 $0, $1", "Ww",
                                    {Lanes{bits_of(-140, false)}})[0][0],
                    false) == 0);
    CHECK(number_of(
              run_instruction("ex2.approx.f32 $0, $1", "Ww", {Lanes{bits_of(-140, false)}})[0][0],
              false) == 0x1p-140);
    Lanes in;
    for (std::uint64_t& lane : in)
      lane = bits_of(static_cast<double>(random() % 1000000 + 1) / 1000, true);
    const Lanes out = run_instruction("rcp.approx.ftz.f64 $0, $1", "Dd", {in})[0];
    for (std::size_t lane = 0; lane < in.size(); ++lane) {
      const double exact = 1 / number_of(in[lane], true);
      REQUIRE(std::fabs(number_of(out[lane], true) - exact) <= 0x1p-19 * exact);
      REQUIRE((out[lane] & 0xFFFFFFFF) == 0);
    }
  }

  TEST_CASE("comparisons of floats: a NaN makes ordered ones false and unordered ones true") {
    std::mt19937_64 random(4);
    for (const auto& [name, form] : llmc_ptx::FormTable::all().forms()) {
      if (!name.starts_with("setp.") || name.find(".f") == std::string::npos) continue;
      CAPTURE(name);
      const bool is_double = name.ends_with("64"), is_unordered = name[7] == 'u';
      const std::string op = name.substr(5, 2);
      std::vector<Lanes> in = {some_numbers(random, is_double), some_numbers(random, is_double)};
      for (std::size_t lane = 0; lane < 4; ++lane) in[1][lane] = in[0][lane];
      in[0][5] = bits_of(kNan, is_double);
      const Lanes out = run_instruction(plain_text(name, 3), "P" + form.operands.substr(1), in)[0];
      for (std::size_t lane = 0; lane < out.size(); ++lane) {
        const double a = number_of(in[0][lane], is_double), b = number_of(in[1][lane], is_double);
        bool expected = op == "eq"   ? a == b
                        : op == "ne" ? a != b
                        : op == "lt" ? a < b
                        : op == "le" ? a <= b
                        : op == "gt" ? a > b
                                     : a >= b;
        if (std::isnan(a) || std::isnan(b)) expected = is_unordered;
        REQUIRE((out[lane] & 1) == static_cast<std::uint64_t>(expected));
      }
    }
  }

  TEST_CASE("conversions, in registers that fit the types and in wider ones") {
    std::mt19937_64 random(5);
    int count = 0;
    for (const auto& [name, form] : llmc_ptx::FormTable::all().forms()) {
      if (!name.starts_with("cvt.") || name.find("x2") != std::string::npos) continue;
      CAPTURE(name);
      ++count;
      const Conversion conversion(name);
      const Type &to = kTypes.at(conversion.to), &from = kTypes.at(conversion.from);
      const bool is_float = from.is_float && from.bits >= 32;
      const Lanes in = is_float ? some_numbers(random, from.bits == 64)
                                : some_bits(random, {0, 1, 127, 128, 255, 0x7FFF, 0x8000, ~0ull});
      const Lanes out = run_instruction(plain_text(name, 2), "Xx", {in}, {to.reg, from.reg})[0];
      for (std::size_t lane = 0; lane < out.size(); ++lane) {
        const Quad x = value_of(conversion.from, in[lane]);
        const std::uint64_t mask = to.reg == "b64" ? ~0ull : to.reg == "b32" ? 0xFFFFFFFF : 0xFFFF;
        CAPTURE(in[lane]);
        if (x != x && to.is_float && conversion.how != "sat") {
          const Quad result = value_of(conversion.to, out[lane] & mask);
          REQUIRE(result != result);
        } else {
          REQUIRE((out[lane] & mask) == conversion.expected(in[lane]));
        }
      }
    }
    CHECK(count >= 120);
    // s8 of a register of 32 bits, into one of 32 bits.
    const Lanes in = some_bits(random, {});
    const Lanes out = run_instruction("cvt.s16.s8 $0, $1", "Xx", {in}, {"b32", "b32"})[0];
    for (std::size_t lane = 0; lane < out.size(); ++lane) {
      REQUIRE(static_cast<std::int32_t>(out[lane]) == static_cast<std::int8_t>(in[lane]));
    }
  }

  TEST_CASE("pairs of halves, and moves of whole registers and of their halves") {
    std::mt19937_64 random(6);
    const std::vector<Lanes> in = {some_numbers(random, false), some_numbers(random, false)};
    for (const std::string type : {"bf16", "f16"}) {
      const Lanes pair = run_instruction("cvt.rn." + type + "x2.f32 $0, $1, $2", "Www", in)[0];
      const Lanes high =
          run_instruction("cvt.rn." + type + ".f32 $0, $1", "Xx", {in[0]}, {"b16", "b32"})[0];
      const Lanes low =
          run_instruction("cvt.rn." + type + ".f32 $0, $1", "Xx", {in[1]}, {"b16", "b32"})[0];
      for (std::size_t lane = 0; lane < pair.size(); ++lane) {
        REQUIRE((pair[lane] & 0xFFFFFFFF) == ((high[lane] & 0xFFFF) << 16 | (low[lane] & 0xFFFF)));
      }
    }
    const Lanes bits = some_bits(random, {});
    for (const std::string type :
         {"b16", "u16", "s16", "b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64"}) {
      const int width = std::stoi(type.substr(1));
      const std::string letters = width == 16 ? "Hh" : width == 32 ? "Ww" : "Dd";
      const Lanes out = run_instruction("mov." + type + " $0, $1", letters, {bits})[0];
      const std::uint64_t mask = width == 64 ? ~0ull : (1ull << width) - 1;
      for (std::size_t lane = 0; lane < out.size(); ++lane)
        REQUIRE((out[lane] & mask) == (bits[lane] & mask));
    }
    const Lanes predicate = run_instruction("mov.pred $0, $1", "Pp", {some_bits(random, {0})})[0];
    CHECK((predicate[0] | 1) == 1);
    const auto halves = run_instruction("mov.b64 {$0, $1}, $2", "WWd", {bits});
    const auto quarters = run_instruction("mov.b32 {$0, $1}, $2", "HHw", {bits});
    const Lanes joined = run_instruction("mov.b64 $0, {$1, $2}", "Dww", {halves[0], halves[1]})[0];
    const Lanes half_joined =
        run_instruction("mov.b32 $0, {$1, $2}", "Whh", {quarters[0], quarters[1]})[0];
    for (std::size_t lane = 0; lane < bits.size(); ++lane) {
      REQUIRE((halves[0][lane] & 0xFFFFFFFF) == (bits[lane] & 0xFFFFFFFF));
      REQUIRE((halves[1][lane] & 0xFFFFFFFF) == bits[lane] >> 32);
      REQUIRE((quarters[1][lane] & 0xFFFF) == (bits[lane] >> 16 & 0xFFFF));
      REQUIRE(joined[lane] == bits[lane]);
      REQUIRE((half_joined[lane] & 0xFFFFFFFF) == (bits[lane] & 0xFFFFFFFF));
    }
  }
}
