// Undefined values: what instructions pass on, and what is reported. Which bits are undefined is
// checked by what it means: results that count as defined are the same for all values of undefined
// bits.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>

#include "test/ptx_rig.h"

namespace {

using namespace llmc_test;
using llmc_ptx::DeviceMemory;

// PTX's register type for a type in the name of a form, such as "s8".
std::string register_type(const std::string& type) {
  if (type.ends_with("64")) return "b64";
  return type.ends_with("32") || type.ends_with("16x2") ? "b32" : "b16";
}

// The types of the two operands of a conversion.
std::vector<std::string> types_of(const std::string& form) {
  const std::size_t last = form.rfind('.'), before = form.rfind('.', last - 1);
  return {register_type(form.substr(before + 1, last - before - 1)),
          register_type(form.substr(last + 1))};
}

bool is_arithmetic(const llmc_ptx::Form& form) {
  return form.kind == llmc_ptx::Kind::plain && !form.operands.empty() &&
         form.operands.find_first_of("[il") == std::string::npos &&
         !form.name.starts_with("mma.") && !form.name.starts_with("bar.");
}

std::vector<Lanes> random_lanes(std::mt19937_64& random, std::size_t count) {
  std::vector<Lanes> lanes(count);
  for (Lanes& lane : lanes) lane = some_bits(random, {0, 1, 2, 8, ~std::uint64_t{0}});
  return lanes;
}

// A body with %x, an undefined word of shared memory, its thread in %lane, p0 in %in, p1 in %out.
std::string undefined_body(const std::string& text) {
  return kernel_text(
      ".reg .b64 %in, %out, %at, %d<8>; .reg .b32 %lane, %x, %never, %r<16>; .reg .b16 %h<4>; .reg "
      ".pred %p<8>;\nmov.u32 %lane, %tid.x;\nmul.wide.u32 %at, %lane, 4;\nld.param.u64 %in, "
      "[p0];\nld.param.u64 %out, [p1];\nadd.s64 %out, %out, %at;\nld.shared.u32 %x, [1020];\n" +
          text + "\nret;",
      2);
}

struct Rig {
  DeviceArray<std::uint32_t> in{64}, out{64};

  std::string fault(const std::string& text) {
    return fault_of(undefined_body(text), {in.data(), out.data()}, 32, 1024);
  }
};

void expect_report(const std::string& text, const std::string& part) {
  Rig rig;
  const std::string message = rig.fault(text);
  CAPTURE(text);
  CAPTURE(message);
  CHECK(message.find(part) != std::string::npos);
}
void expect_none(const std::string& text) {
  Rig rig;
  const std::string message = rig.fault(text);
  CAPTURE(text);
  CHECK(message == "");
}

}  // namespace

TEST_SUITE("ptx_undefined") {
  TEST_CASE("what counts as defined does not depend on undefined bits, in every form") {
    std::mt19937_64 random(1);
    int forms = 0;
    for (const auto& [name, form] : llmc_ptx::FormTable::all().forms()) {
      if (!is_arithmetic(form) || name.starts_with("shfl.") || name.starts_with("vote.")) continue;
      ++forms;
      CAPTURE(name);
      std::string text = name;
      if (const std::size_t blank = text.find(' '); blank != std::string::npos) text.resize(blank);
      text = plain_text(text, form.operands.size());
      if (name.ends_with(" pack")) text = text.substr(0, text.find(' ')) + " $0, {$1, $2}";
      if (name.ends_with(" unpack")) text = text.substr(0, text.find(' ')) + " {$0, $1}, $2";
      const std::vector<std::string> of_x =
          form.operands == "Xx" ? types_of(name) : std::vector<std::string>();
      const auto reads = static_cast<std::size_t>(std::ranges::count_if(
          form.operands, [](char letter) { return letter >= 'a' && letter <= 'z'; }));
      for (int round = 0; round < 8; ++round) {
        const std::vector<Lanes> inputs = random_lanes(random, reads);
        std::vector<Lanes> undefined(reads), others = inputs;
        for (std::size_t i = 0; i < reads; ++i) {
          for (std::size_t lane = 0; lane < 32; ++lane) {
            // In some rounds whole inputs, in others some bits.
            const std::uint64_t bits = round % 2 == 0 ? random() & random() : ~std::uint64_t{0};
            undefined[i][lane] = random() % 2 == 0 ? bits : 0;
            others[i][lane] ^= undefined[i][lane] & random();
          }
        }
        const Results first = run_partly_undefined(text, form.operands, inputs, undefined, of_x);
        const Results second = run_partly_undefined(text, form.operands, others, undefined, of_x);
        for (std::size_t i = 0; i < first.values.size(); ++i) {
          for (std::size_t lane = 0; lane < 32; ++lane) {
            const std::uint64_t defined = ~(first.undefined[i][lane] | second.undefined[i][lane]);
            CHECK((first.values[i][lane] & defined) == (second.values[i][lane] & defined));
          }
        }
        const Results all = run_partly_undefined(text, form.operands, inputs, {}, of_x);
        for (const Lanes& bits : all.undefined) CHECK(bits == Lanes{});
      }
    }
    CHECK(forms > 250);
  }

  TEST_CASE("an undefined value that decides something is reported at its place") {
    expect_report("setp.eq.u32 %p0, %x, 5;\n@%p0 bra $end;\nadd.s32 %r0, %r0, 1;\n$end:",
                  "thread 0: an undefined predicate in bra at line 15");
    expect_report("setp.lt.u32 %p0, %x, 5;\n@%p0 st.global.u32 [%out], %lane;",
                  "an undefined predicate in st.global.u32");
    expect_report("setp.lt.u32 %p0, %x, 5;\n@%p0 exit;", "an undefined predicate in exit");
    expect_report("setp.lt.u32 %p0, %x, 5;\nbar.red.or.pred %p1, 0, %p0;",
                  "an undefined predicate in bar.red.or.pred");
    expect_report("mul.wide.u32 %d0, %x, 0;\nadd.s64 %d0, %in, %d0;\nld.global.u32 %r0, [%d0];",
                  "an undefined address in ld.global.u32");
    expect_report("and.b32 %r0, %x, 124;\nst.shared.u32 [%r0], %lane;",
                  "an undefined address in st.shared.u32");
    expect_report("setp.lt.u32 %p0, %x, 5;\nvote.sync.any.pred %p1, %p0, -1;",
                  "an undefined predicate in vote.sync.any.pred");
    expect_report("shfl.sync.idx.b32 %r0|%p0, %lane, %x, 31, -1;",
                  "an undefined distance or mask in shfl.sync.idx.b32");
    expect_report("atom.global.add.u32 %r0, [%in], %x;", "an undefined addend");
    expect_report(
        "shl.b32 %r0, %lane, 4;\nand.b32 %r1, %x, 16;\ncp.async.cg.shared.global [%r0], "
        "[%in], 16, %r1;",
        "an undefined size");
    expect_report("setp.eq.u32 %p0, %never, 5;\n@%p0 bra $end;\nadd.s32 %r0, %r0, 1;\n$end:",
                  "an undefined predicate in bra");
    // Written in some lanes only.
    expect_report(
        "setp.lt.u32 %p0, %lane, 9;\n@%p0 mov.u32 %r1, 1;\nsetp.eq.u32 %p1, %r1, 1;\n@%p1 "
        "bra $end;\nadd.s32 %r0, %lane, 1;\n$end:",
        "thread 9: an undefined predicate in bra");
  }

  TEST_CASE("memory passes on what is undefined") {
    const std::string decide =
        "setp.eq.u32 %p7, %r7, 5;\n@%p7 bra $end;\nadd.s32 %r0, %lane, "
        "1;\n$end:";
    const std::string report = "an undefined predicate in bra";
    expect_report(
        "shl.b32 %r1, %lane, 2;\nst.shared.u32 [%r1], %x;\nld.shared.u32 %r7, [%r1];\n" + decide,
        report);
    expect_none("shl.b32 %r1, %lane, 2;\nst.shared.u32 [%r1], %lane;\nld.shared.u32 %r7, [%r1];\n" +
                decide);
    // One of the bytes.
    expect_report(
        "shl.b32 %r1, %lane, 2;\nst.shared.u32 [%r1], %lane;\nst.shared.u8 [%r1+1], "
        "%x;\nld.shared.u32 %r7, [%r1];\n" +
            decide,
        report);
    expect_none(
        "shl.b32 %r1, %lane, 2;\nst.shared.u32 [%r1], %x;\nst.shared.u8 [%r1+1], "
        "%lane;\nld.shared.u8 %r7, [%r1+1];\n" +
        decide);
    // A copy before its wait, and after it.
    const std::string copy =
        "shl.b32 %r1, %lane, 4;\ncp.async.cg.shared.global [%r1], [%in], 16, "
        "16;\ncp.async.commit_group;\n";
    const std::string wait = "cp.async.wait_group 0;\n", load = "ld.shared.u32 %r7, [%r1];\n";
    expect_report(copy + load + wait + decide, report);
    expect_none(copy + wait + load + decide);
    // Rows of ldmatrix, of which only the first matrix is defined.
    const std::string rows =
        "shl.b32 %r1, %lane, 4;\nsetp.lt.u32 %p0, %lane, 8;\n@%p0 "
        "st.shared.v4.u32 [%r1], {%lane, %lane, %lane, %lane};\nbar.warp.sync "
        "-1;\nldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r4, %r5, %r6, %r3}, "
        "[%r1];\nmov.u32 %r7, ";
    expect_none(rows + "%r4;\n" + decide);
    expect_report(rows + "%r5;\n" + decide, report);
    // Lanes exchange it.
    expect_report(
        "setp.lt.u32 %p0, %lane, 31;\nselp.b32 %r1, %lane, %x, %p0;\nshfl.sync.bfly.b32 "
        "%r7|%p1, %r1, 31, 31, -1;\n" +
            decide,
        "thread 0: an undefined predicate in bra");
  }

  TEST_CASE("what undefined bits cannot change is not reported") {
    const auto decide = [](const std::string& bits) {
      return "setp.eq.u32 %p7, " + bits + ", 5;\n@%p7 bra $end;\nadd.s32 %r0, %lane, 1;\n$end:";
    };
    expect_none("and.b32 %r1, %x, 0;\n" + decide("%r1"));
    expect_none("or.b32 %r1, %x, -1;\n" + decide("%r1"));
    expect_none("shl.b32 %r1, %x, 8;\nprmt.b32 %r1, %r1, %lane, 0x4444;\n" + decide("%r1"));
    expect_none("setp.lt.u32 %p0, %lane, 40;\nselp.b32 %r1, %lane, %x, %p0;\n" + decide("%r1"));
    expect_none(
        "setp.lt.u32 %p0, %lane, 40;\nsetp.eq.u32 %p1, %x, 0;\nor.pred %p2, %p0, "
        "%p1;\n@%p2 bra $end;\nadd.s32 %r0, %lane, 1;\n$end:");
    expect_none(
        "shl.b32 %r1, %x, 16;\nor.b32 %r1, %r1, 3;\nsetp.ne.u32 %p0, %r1, 8;\n@%p0 bra "
        "$end;\nadd.s32 %r0, %lane, 1;\n$end:");
    expect_none(
        "mov.b32 {%h0, %h1}, %x;\ncvt.u16.u32 %h1, %lane;\nmov.b32 %r1, {%h0, "
        "%h1};\nshr.u32 %r1, %r1, 16;\n" +
        decide("%r1"));
  }

  TEST_CASE("an undefined row or column of a product makes only its own results undefined") {
    // Row 3 of A is undefined, or column 5 of B, or element (3, 2) of C.
    const auto product = [](const std::string& a, const std::string& b, const std::string& c) {
      return "mov.u32 %r0, 0;\nmov.u32 %r1, 0;\nmov.u32 %r2, 0;\nmov.u32 %r3, 0;\nshr.u32 %r8, "
             "%lane, 2;\nsetp.eq.u32 %p0, %r8, 3;\nsetp.eq.u32 %p1, %r8, 5;\nsetp.eq.u32 %p2, "
             "%lane, 13;\n" +
             a + b + c +
             "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%r4, %r5, %r6, %r7}, {%r0, "
             "%r1, %r2, %r3}, {%r9, %r10}, {%r11, %r1, %r1, %r1};\nst.global.u32 [%out], %r4;";
    };
    const auto undefined_lanes = [&](const std::string& text) {
      Rig rig;
      CHECK(rig.fault(text) == "");
      const auto bits = DeviceMemory::instance().undefined(rig.out.data(), 32 * 4);
      std::uint32_t lanes = 0;
      for (std::size_t i = 0; i < 32; ++i) lanes |= std::uint32_t{bits[4 * i] != std::byte{0}} << i;
      return lanes;
    };
    const std::string b = "mov.u32 %r9, 0;\nmov.u32 %r10, 0;\n", c = "mov.u32 %r11, 0;\n";
    CHECK(undefined_lanes(product("", b, c)) == 0);
    CHECK(undefined_lanes(product("selp.b32 %r0, %x, %r0, %p0;\n", b, c)) == 0xF000u);
    CHECK(undefined_lanes(product("", b + "selp.b32 %r9, %x, %r9, %p1;\n", c)) == 0);
    CHECK(undefined_lanes(product("", b + "selp.b32 %r10, %x, %r10, %p2;\n", c)) == 0);
    CHECK(undefined_lanes(product("", b, c + "selp.b32 %r11, %x, %r11, %p2;\n")) == 1u << 13);
    // Columns 0, 2, 4 and 6 are the first element's: lanes 16 to 19 of B have column 4.
    CHECK(undefined_lanes(
              product("", b + "setp.eq.u32 %p3, %lane, 17;\nselp.b32 %r9, %x, %r9, %p3;\n", c)) ==
          0x44444444u);
  }

  TEST_CASE("an undefined value that a launch stored is reported where others read it") {
    DeviceArray<std::uint32_t> out(64);
    const std::vector<const void*> parameters = {out.data(), out.data()};
    const std::string store = undefined_body("st.global.u32 [%out], %x;");
    CHECK(fault_of(store, parameters, 32, 1024) == "");
    auto& memory = DeviceMemory::instance();
    CHECK(memory.undefined_store(reinterpret_cast<std::uintptr_t>(out.data()), 4).has_value());
    CHECK_THROWS_WITH_AS(
        memory.host_reads(out.data(), 8),
        "the host reads 8 bytes that were stored undefined by test, block (0, 0, 0), "
        "thread 0, in st.global.u32 at line 14 of test.ptx",
        llmc::Error);
    const std::string load = undefined_body("ld.global.u32 %r0, [%out];");
    CHECK(fault_of(load, parameters, 32, 1024)
              .find("thread 0: a load of bytes that were stored "
                    "undefined by test") != std::string::npos);
    // A launch may read what it stored itself, and what was overwritten is defined.
    CHECK(fault_of(undefined_body("st.global.u32 [%out], %x;\nld.global.u32 %r0, [%out];"),
                   parameters, 32, 1024) == "");
    memory.host_writes(out.data(), 256);
    CHECK_NOTHROW(memory.host_reads(out.data(), 256));
    CHECK(fault_of(load, parameters, 32, 1024) == "");
  }

  TEST_CASE("an access must stay in the tensor of its pointer") {
    std::vector<std::uint32_t> buffer(256);
    auto& memory = DeviceMemory::instance();
    memory.add(buffer.data(), 1024, llmc_ptx::Owner::device);
    memory.add_tensor(buffer.data(), 256);
    memory.add_tensor(buffer.data() + 128, 256);
    const std::vector<const void*> both = {buffer.data(), buffer.data() + 128};
    // p1 plus the offset of the other tensor is an address that belongs to p0 only.
    const auto fault = [&](const std::string& text) {
      return fault_of(undefined_body(text), both, 32, 1024);
    };
    CHECK(fault("st.global.u32 [%out], %lane;\nadd.s64 %d0, %in, %at;\nst.global.u32 [%d0], "
                "%lane;") == "");
    const auto expect = [&](const std::string& text, const std::string& part) {
      const std::string message = fault(text);
      CAPTURE(message);
      CHECK(message.find(part) != std::string::npos);
    };
    expect("st.global.u32 [%out+-512], %lane;", "at -512 of the tensor, which has 256 bytes");
    expect("mad.wide.u32 %d0, %lane, 4, %in;\nst.global.u32 [%d0+512], %lane;",
           "at 512 of the tensor, which has 256 bytes");
    expect("st.global.u32 [%in+256], %lane;", "at 256 of the tensor, which has 256 bytes");
    // A pointer that may be one of two, and one that comes from memory.
    CHECK(fault("setp.lt.u32 %p0, %lane, 7;\nselp.b64 %d0, %in, %out, %p0;\nselp.b64 %d1, %at, 0, "
                "%p0;\nadd.s64 %d0, %d0, %d1;\nst.global.u32 [%d0], %lane;") == "");
    expect(
        "st.shared.u64 [0], %in;\nbar.warp.sync -1;\nld.shared.u64 %d0, [0];\nst.global.u32 "
        "[%d0+256], 1;",
        "which is in no allocation");
    memory.remove(buffer.data());
    expect("st.global.u32 [%out], %lane;", "which is in no allocation");
  }

  TEST_CASE("asynchronous copies arrive at some moment until the wait, which the seed decides") {
    DeviceArray<std::uint32_t> in(64), out(64);
    for (std::uint32_t i = 0; i < 64; ++i) in[i] = 1000 + i;
    // Stores the shared memory before the wait, whose undefined bits do not matter here, and after
    // it.
    const std::string text = undefined_body(
        "shl.b32 %r1, %lane, 4;\nmul.wide.u32 %d0, %lane, 4;\nand.b64 %d0, %d0, 112;\nadd.s64 %d0, "
        "%d0, %in;\ncp.async.cg.shared.global [%r1], [%d0], 16, 16;\ncp.async.commit_group;\n"
        "ld.shared.u32 %r2, [%r1];\ncp.async.wait_group 0;\nld.shared.u32 %r3, [%r1];\n"
        "st.global.u32 [%out], %r2;\nst.global.u32 [%out+128], %r3;");
    const auto early = [&](std::uint64_t seed) {
      run_text(text, {in.data(), out.data()}, 32, 1024, {}, seed);
      int count = 0;
      for (std::uint32_t i = 0; i < 32; ++i) {
        CHECK(out[32 + i] == 1000 + i / 4 * 4);
        count += out[i] == out[32 + i];
      }
      return count;
    };
    CHECK(early(0) == 0);
    CHECK(early(1) == 0);
    CHECK(early(2) > 5);
    CHECK(early(2) < 32);
    CHECK(early(2) == early(2));
  }
}
