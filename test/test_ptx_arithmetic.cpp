// Each form of integer arithmetic, logic, comparison and selection, against integers of 128 bits.
#include <doctest/doctest.h>

#include <cstdint>
#include <set>
#include <string>

#include "test/ptx_rig.h"

namespace {

using namespace llmc_test;
using Wide = __int128;

// "mul.wide.s32": its opcode, and its type.
struct Name {
  std::string opcode;
  bool is_signed = false;
  int bits = 0;

  explicit Name(const std::string& form) {
    const std::size_t dot = form.rfind('.');
    opcode = form.substr(0, dot);
    is_signed = form[dot + 1] == 's';
    bits = form.substr(dot + 1) == "pred" ? 1 : std::stoi(form.substr(dot + 2));
  }
  Wide value(std::uint64_t x) const {
    const Wide low = static_cast<Wide>(bits == 64 ? x : x & ((std::uint64_t{1} << bits) - 1));
    return is_signed && (low >> (bits - 1) & 1) != 0 ? low - (Wide{1} << bits) : low;
  }
};

const std::vector<std::uint64_t> kLimits = {
    0,          1,          2,          3,          31,     32,       33,     63,
    64,         65,         127,        128,        0x7FFF, 0x8000,   0xFFFF, 0x7FFFFFFF,
    0x80000000, 0xFFFFFFFF, 1ull << 63, ~0ull >> 1, ~0ull,  ~0ull - 1};

Wide permuted(std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  const std::uint64_t bytes = (b & 0xFFFFFFFF) << 32 | (a & 0xFFFFFFFF);
  Wide result = 0;
  for (int k = 0; k < 4; ++k) {
    const auto choice = static_cast<int>(c >> (4 * k) & 15);
    const Wide byte = static_cast<Wide>(bytes >> (choice % 8 * 8) & 255);
    result += (choice < 8 ? byte : byte / 128 * 255) << (8 * k);
  }
  return result;
}

// The result of a form that computes one integer of one, two or three, before it is cut to its
// width.
Wide result_of(const Name& name, std::uint64_t x, std::uint64_t y, std::uint64_t z) {
  const std::string& op = name.opcode;
  const Wide a = name.value(x), b = name.value(y);
  const auto distance = static_cast<std::uint32_t>(y);
  if (op == "add") return a + b;
  if (op == "sub") return a - b;
  if (op == "mul.lo" || op == "mul.wide") return a * b;
  if (op == "mul.hi") {
    // Halves, because a product of 128 bits without sign does not fit.
    const Wide low = b & 0xFFFFFFFF, high = b >> 32;
    return name.bits == 32 ? (a * b) >> 32 : (((a * low) >> 32) + a * high) >> 32;
  }
  if (op == "mad.lo") return a * b + name.value(z);
  if (op == "mad.wide") return a * b + static_cast<Wide>(z);
  if (op == "div") return b == 0 ? Wide{-1} : a / b;
  if (op == "rem") return b == 0 ? a : a % b;
  if (op == "min") return a < b ? a : b;
  if (op == "max") return a < b ? b : a;
  if (op == "abs") return a < 0 ? -a : a;
  if (op == "neg") return -a;
  if (op == "and") return a & b;
  if (op == "or") return a | b;
  if (op == "xor") return a ^ b;
  if (op == "not") return ~a;
  if (op == "shl") return distance >= 64 ? 0 : a << distance;
  if (op == "shr") return distance >= 64 ? (a < 0 ? -1 : 0) : a >> distance;
  if (op == "prmt") return permuted(x, y, z);
  FAIL("no definition of " << op);
  return 0;
}

bool is_integer_form(const std::string& name) {
  static const std::set<std::string> kOpcodes = {"add", "sub", "mul", "mad", "div", "rem",
                                                 "min", "max", "abs", "neg", "and", "or",
                                                 "xor", "not", "shl", "shr", "prmt"};
  return kOpcodes.contains(name.substr(0, name.find('.'))) &&
         name.find(".f") == std::string::npos && !name.ends_with("pred");
}

std::uint64_t cut(Wide value, std::size_t bits) {
  const auto low = static_cast<std::uint64_t>(value);
  return bits == 64 ? low : low & ((std::uint64_t{1} << bits) - 1);
}

std::size_t bits_of(char letter) {
  return letter == 'H' ? 16 : letter == 'W' ? 32 : 64;
}

}  // namespace

TEST_SUITE("ptx_arithmetic") {
  TEST_CASE("integer forms have the results of integers of 128 bits") {
    std::mt19937_64 random(1);
    int count = 0;
    for (const auto& [name, form] : llmc_ptx::FormTable::all().forms()) {
      if (!is_integer_form(name)) continue;
      CAPTURE(name);
      ++count;
      for (int round = 0; round < 6; ++round) {
        std::vector<Lanes> in;
        for (std::size_t i = 1; i < form.operands.size(); ++i)
          in.push_back(some_bits(random, kLimits));
        const Lanes out =
            run_instruction(plain_text(name, form.operands.size()), form.operands, in)[0];
        in.resize(3);
        for (std::size_t lane = 0; lane < out.size(); ++lane) {
          const Wide expected = result_of(Name(name), in[0][lane], in[1][lane], in[2][lane]);
          REQUIRE(cut(static_cast<Wide>(out[lane]), bits_of(form.operands[0])) ==
                  cut(expected, bits_of(form.operands[0])));
        }
      }
    }
    CHECK(count >= 80);
  }

  TEST_CASE("bfi inserts bits at a position") {
    std::mt19937_64 random(2);
    for (const int bits : {32, 64}) {
      const std::string name = "bfi.b" + std::to_string(bits);
      const std::vector<Lanes> in = {some_bits(random, {}), some_bits(random, {}),
                                     some_bits(random, {0, 1, 5, 31, 32, 63, 64, 255, 256}),
                                     some_bits(random, {0, 1, 7, 31, 32, 63, 64, 255, 256})};
      const Lanes out = run_instruction(plain_text(name, 5), bits == 32 ? "Wwwww" : "Dddww", in)[0];
      for (std::size_t lane = 0; lane < out.size(); ++lane) {
        std::uint64_t expected = in[1][lane];
        const std::uint64_t position = in[2][lane] & 255, length = in[3][lane] & 255;
        for (std::uint64_t i = 0; i < length && position + i < static_cast<std::uint64_t>(bits);
             ++i) {
          const std::uint64_t bit = std::uint64_t{1} << (position + i);
          const bool is_set = i < static_cast<std::uint64_t>(bits) && (in[0][lane] >> i & 1) != 0;
          expected = is_set ? expected | bit : expected & ~bit;
        }
        REQUIRE(cut(static_cast<Wide>(out[lane]), bits) == cut(static_cast<Wide>(expected), bits));
      }
    }
  }

  TEST_CASE("logic of predicates has a bit per lane") {
    std::mt19937_64 random(3);
    for (const std::string op : {"and", "or", "xor", "not"}) {
      const std::vector<Lanes> in = {some_bits(random, {0, 1}), some_bits(random, {0, 0})};
      const std::string letters = op == "not" ? "Pp" : "Ppp";
      const Lanes out = run_instruction(plain_text(op + ".pred", letters.size()), letters, in)[0];
      for (std::size_t lane = 0; lane < out.size(); ++lane) {
        const bool a = static_cast<std::uint32_t>(in[0][lane]) != 0,
                   b = static_cast<std::uint32_t>(in[1][lane]) != 0;
        const bool expected = op == "and"   ? a && b
                              : op == "or"  ? a || b
                              : op == "xor" ? a != b
                                            : !a;
        REQUIRE((out[lane] & 1) == static_cast<std::uint64_t>(expected));
      }
    }
  }

  TEST_CASE("comparisons of integers, and selections") {
    std::mt19937_64 random(4);
    int count = 0;
    for (const auto& [form_name, form] : llmc_ptx::FormTable::all().forms()) {
      const bool is_comparison = form_name.starts_with("setp."),
                 is_selection = form_name.starts_with("selp.");
      if ((!is_comparison && !is_selection) ||
          (is_comparison && form_name.find(".f") != std::string::npos))
        continue;
      CAPTURE(form_name);
      ++count;
      const Name name(form_name);
      const std::string op = name.opcode.substr(5 < name.opcode.size() ? 5 : 4);
      std::vector<Lanes> in = {some_bits(random, kLimits), some_bits(random, kLimits),
                               some_bits(random, {0, 1})};
      for (std::size_t lane = 0; lane < 8; ++lane) in[1][lane] = in[0][lane];
      if (is_comparison) in.pop_back();
      const Lanes out =
          run_instruction(plain_text(form_name, form.operands.size()), form.operands, in)[0];
      for (std::size_t lane = 0; lane < out.size(); ++lane) {
        const Wide a = name.value(in[0][lane]), b = name.value(in[1][lane]);
        if (is_selection) {
          const Wide expected = static_cast<std::uint32_t>(in[2][lane]) != 0 ? a : b;
          REQUIRE(cut(static_cast<Wide>(out[lane]), name.bits) == cut(expected, name.bits));
          continue;
        }
        const bool expected = op == "eq"   ? a == b
                              : op == "ne" ? a != b
                              : op == "lt" ? a < b
                              : op == "le" ? a <= b
                              : op == "gt" ? a > b
                                           : a >= b;
        REQUIRE((out[lane] & 1) == static_cast<std::uint64_t>(expected));
      }
    }
    CHECK(count >= 50);
  }
}
