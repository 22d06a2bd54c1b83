// Branches, barriers and exchange between lanes; and faults, each of which the executor must report
// at its place.
#include <doctest/doctest.h>

#include <cstdint>
#include <string>

#include "test/ptx/grid.h"
#include "test/ptx_rig.h"

namespace {

using namespace llmc_test;

// A body that has the thread's number in %lane, p0 in %in, p1 in %out plus 4 bytes per thread, and
// registers.
std::string body(const std::string& text) {
  return kernel_text(
      ".reg .b64 %in, %out, %at, %d<8>; .reg .b32 %lane, %r<16>; .reg .pred %p<8>;\n"
      "mov.u32 %lane, %tid.x;\nmul.wide.u32 %at, %lane, 4;\nld.param.u64 %in, [p0];\nld.param.u64 "
      "%out, [p1];\n"
      "add.s64 %out, %out, %at;\n" +
          text,
      2);
}

struct Rig {
  DeviceArray<std::uint32_t> in{64}, out{256};

  void run(const std::string& text, int threads = 32, std::int64_t shared = 0) {
    run_text(body(text), {in.data(), out.data()}, threads, shared);
  }
  std::string fault(const std::string& text, int threads = 32, std::int64_t shared = 0) {
    return fault_of(body(text), {in.data(), out.data()}, threads, shared);
  }
};

void expect_part(const std::string& message, const std::string& part) {
  CAPTURE(message);
  CAPTURE(part);
  CHECK(message.find(part) != std::string::npos);
}

}  // namespace

TEST_SUITE("ptx_control") {
  TEST_CASE("lanes that diverge meet again, in loops and with early exits") {
    Rig rig;
    // Lane l adds 1 to l; lanes above 20 end at once; lanes of odd numbers add 100.
    rig.run(
        "setp.gt.u32 %p0, %lane, 20;\n@%p0 ret;\nmov.u32 %r0, 0;\nmov.u32 %r1, 0;\n"
        "$loop:\nsetp.ge.u32 %p1, %r1, %lane;\n@%p1 bra $done;\nadd.s32 %r1, %r1, 1;\nadd.s32 %r0, "
        "%r0, %r1;\nbra.uni $loop;\n"
        "$done:\nand.b32 %r2, %lane, 1;\nsetp.eq.u32 %p2, %r2, 0;\n@%p2 bra $even;\nadd.s32 %r0, "
        "%r0, 100;\nbra.uni $end;\n"
        "$even:\nadd.s32 %r0, %r0, 7;\n$end:\nst.global.u32 [%out], %r0;\nexit;");
    for (std::uint32_t lane = 0; lane < 32; ++lane) {
      const std::uint32_t expected =
          lane > 20 ? 0 : lane * (lane + 1) / 2 + (lane % 2 == 1 ? 100 : 7);
      REQUIRE(rig.out[lane] == expected);
    }
    // After the branches, the warp is whole: a collective does not complain.
    CHECK(rig.fault("setp.gt.u32 %p0, %lane, 9;\n@%p0 bra $more;\nadd.s32 %r0, %lane, 1;\n$more:\n"
                    "shfl.sync.bfly.b32 %r1|%p1, %lane, 1, 31, -1;\nret;")
              .empty());
  }

  TEST_CASE("shfl: sources and predicates of each mode follow the manual's formulae") {
    std::mt19937_64 random(1);
    for (const std::string mode : {"idx", "up", "down", "bfly"}) {
      for (int round = 0; round < 20; ++round) {
        const std::vector<Lanes> in = {some_bits(random, {}), some_bits(random, {1, 2, 16}),
                                       some_bits(random, {0, 31, 0x1F1F, 0x181F, 0x1C1F, 0x1800}),
                                       [] {
                                         Lanes all;
                                         all.fill(~0ull);
                                         return all;
                                       }()};
        const auto out =
            run_instruction("shfl.sync." + mode + ".b32 $0|$1, $2, $3, $4, $5", "WPwwww", in);
        for (int lane = 0; lane < 32; ++lane) {
          const auto l = static_cast<std::size_t>(lane);
          const int b = static_cast<int>(in[1][l] & 31), c = static_cast<int>(in[2][l] & 31),
                    segment = static_cast<int>(in[2][l] >> 8 & 31);
          const int max_lane = (lane & segment) | (c & ~segment), min_lane = lane & segment;
          int j = mode == "idx"    ? min_lane | (b & ~segment)
                  : mode == "up"   ? lane - b
                  : mode == "down" ? lane + b
                                   : lane ^ b;
          const bool inside = mode == "up" ? j >= max_lane : j <= max_lane;
          if (!inside) j = lane;
          REQUIRE((out[1][l] & 1) == static_cast<std::uint64_t>(inside));
          REQUIRE((out[0][l] & 0xFFFFFFFF) == (in[0][static_cast<std::size_t>(j)] & 0xFFFFFFFF));
        }
      }
    }
  }

  TEST_CASE("barriers order the warps of a block, and reduce a predicate") {
    Rig rig;
    for (const int hit : {77, 500}) {
      rig.in[0] = static_cast<std::uint32_t>(hit);
      rig.run(
          "shl.b32 %r1, %lane, 2;\nst.shared.u32 [%r1], %lane;\nbar.sync 0;\nxor.b32 %r2, %r1, "
          "508;\nld.shared.u32 %r3, [%r2];\n"
          "ld.global.u32 %r4, [%in];\nsetp.eq.u32 %p1, %lane, %r4;\nbar.red.or.pred %p2, 0, "
          "%p1;\nselp.b32 %r5, 1000, 0, %p2;\n"
          "add.s32 %r3, %r3, %r5;\nst.global.u32 [%out], "
          "%r3;\nmembar.gl;\nfence.acq_rel.gpu;\ngriddepcontrol.launch_dependents;\n"
          "griddepcontrol.wait;\nret;",
          128, 512);
      for (std::uint32_t i = 0; i < 128; ++i)
        REQUIRE(rig.out[i] == (127 - i) + (hit < 128 ? 1000 : 0));
    }
    // The predicate may be inverted.
    rig.run(
        "setp.eq.u32 %p1, %lane, %lane;\nbar.red.or.pred %p2, 0, !%p1;\nselp.b32 %r5, 1, 2, "
        "%p2;\nst.global.u32 [%out], %r5;\nret;",
        64);
    CHECK(rig.out[0] == 2);
  }

  TEST_CASE("votes: any and all of the named lanes, also of a part of the warp") {
    Rig rig;
    const std::string result =
        "selp.b32 %r1, 1, 0, %p1;\nst.global.u32 [%out], %r1;\nret;\nEND: ret;";
    // Lanes below the second number vote whether they are below the first one.
    struct Vote {
      int below, lanes;
      bool any, all;
    };
    for (const Vote& vote :
         {Vote{0, 32, false, false}, Vote{1, 32, true, false}, Vote{31, 32, true, false},
          Vote{32, 32, true, true}, Vote{16, 16, true, true}, Vote{15, 16, true, false}}) {
      for (const bool all : {false, true}) {
        for (const bool inverted : {false, true}) {
          const std::string mask = vote.lanes == 32 ? "-1" : "65535";
          rig.run("setp.ge.u32 %p2, %lane, " + std::to_string(vote.lanes) + ";\n@%p2 bra END;\n" +
                  (inverted ? "setp.ge.u32" : "setp.lt.u32") + " %p0, %lane, " +
                  std::to_string(vote.below) + ";\nvote.sync." + (all ? "all" : "any") +
                  ".pred %p1, " + (inverted ? "!%p0" : "%p0") + ", " + mask + ";\n" + result);
          for (std::uint32_t lane = 0; lane < static_cast<std::uint32_t>(vote.lanes); ++lane)
            REQUIRE(rig.out[lane] == (all ? vote.all : vote.any));
        }
      }
    }
  }

  TEST_CASE("a call becomes part of its caller") {
    const std::string text =
        ".version 9.0\n.target sm_90a\n.address_size 64\n.func (.param .b64 result) twice(.param "
        ".b64 x, .param .b64 y);\n"
        ".visible .entry test(.param .u64 p0, .param .u64 p1)\n{\n.reg .b64 %a, %b, %out; .reg "
        ".f64 %x;\nld.param.u64 %out, [p1];\n"
        "mov.f64 %x, 0d4008000000000000;\n{ // callseq 0, 0\n.param .b64 param0;\nst.param.f64 "
        "[param0+0], %x;\n.param .b64 param1;\n"
        "st.param.f64 [param1+0], %x;\n.param .b64 retval0;\ncall.uni (retval0), twice, (param0, "
        "param1);\n"
        "ld.param.f64 %a, [retval0+0];\n} // callseq 0\nst.global.f64 [%out], %a;\nret;\n}\n"
        ".func (.param .b64 result) twice(.param .b64 x, .param .b64 y)\n{\n.reg .f64 %x<3>; .reg "
        ".pred %p;\nld.param.f64 %x0, [x];\n"
        "ld.param.f64 %x1, [y];\nsetp.gt.f64 %p, %x0, 0d0000000000000000;\n@%p bra $go;\nmov.f64 "
        "%x2, %x0;\nbra.uni $end;\n"
        "$go:\nadd.f64 %x2, %x0, %x1;\n$end:\nst.param.f64 [result+0], %x2;\nret;\n}\n";
    DeviceArray<double> out(1);
    run_text(text, {nullptr, out.data()});
    CHECK(out[0] == 6);
  }

  TEST_CASE("a sum may be fused with its product, or not, as the seed decides") {
    // (1 + 2^-12)^2 - 1 keeps its last bit only if the product is not rounded.
    const std::string text = kernel_text(
        ".reg .b64 %out; .reg .f32 %a, %b, %p<4>, %s<4>;\nld.param.u64 %out, [p0];\n"
        "mov.f32 %a, 0f3F800800;\nmul.f32 %p0, %a, %a;\nadd.f32 %s0, %p0, 0fBF800000;\n"
        "mul.f32 %p1, %a, %a;\nsub.f32 %s1, 0f3F800000, %p1;\nmul.f32 %p2, %a, %a;\n"
        "sub.f32 %s2, %p2, 0f3F800000;\nmul.rn.f32 %p3, %a, %a;\nadd.f32 %s3, %p3, 0fBF800000;\n"
        "st.global.f32 [%out], %s0;\nst.global.f32 [%out+4], %s1;\nst.global.f32 [%out+8], "
        "%s2;\nst.global.f32 [%out+12], %s3;\nret;",
        1);
    const float rounded = 0x1p-11f, exact = 0x1p-11f + 0x1p-24f;
    int fused = 0;
    for (std::uint64_t seed = 0; seed < 16; ++seed) {
      DeviceArray<float> out(4);
      run_text(text, {out.data()}, 32, 0, {}, seed);
      CHECK(out[3] == rounded);
      for (std::size_t i = 0; i < 3; ++i) {
        const float sum = i == 1 ? -out[i] : out[i];
        CHECK((sum == rounded || sum == exact));
        fused += sum == exact;
        if (seed == 0) CHECK(sum == rounded);
      }
    }
    CHECK(fused > 10);
    CHECK(fused < 40);
  }
}

TEST_SUITE("ptx_faults") {
  TEST_CASE("an unknown form, operand or label is an error when the kernel is read") {
    Rig rig;
    expect_part(rig.fault("add.s33 %r0, %r1, %r2;\nret;"),
                "line 13: the executor does not know the form 'add.s33': add.s33 %r0, %r1, %r2");
    expect_part(rig.fault("add.s32 %r0, %r1;\nret;"), "another number of operands");
    expect_part(rig.fault("add.s32 %r0, %r1, %d1;\nret;"), "the register %d1 has another width");
    expect_part(rig.fault("add.s32 %r0, %r1, nothing;\nret;"),
                "'nothing' is neither a register nor a name nor a number");
    expect_part(rig.fault("cvt.u64.u32 %r0, %r1;\nret;"), "registers of these widths");
    expect_part(fault_of("no PTX", {}), "it has no .version");
  }

  TEST_CASE("accesses that are misaligned, or outside memory, name statement, block and thread") {
    Rig rig;
    const std::string misaligned = rig.fault(
        "add.s64 %d0, %in, 2;\nsetp.eq.u32 %p0, %lane, 7;\n@%p0 ld.global.u32 %r0, [%d0];\nret;");
    expect_part(misaligned, "test, block (0, 0, 0), thread 7: a misaligned access of 4 bytes");
    expect_part(misaligned, "in ld.global.u32 at line 15 of test.ptx");
    expect_part(rig.fault("ld.global.v4.u32 {%r0, %r1, %r2, %r3}, [%in+4];\nret;"),
                "misaligned access of 16 bytes");
    expect_part(rig.fault("ld.global.u32 %r0, [%in+256];\nret;"),
                "4 bytes at 256 of the tensor, which has 256 bytes");
    expect_part(rig.fault("ld.global.v2.u32 {%r0, %r1}, [%in+256];\nret;"),
                "8 bytes at 256 of the tensor, which has 256 bytes");
    expect_part(rig.fault("mov.u64 %d0, 64;\nst.global.u32 [%d0], %lane;\nret;"),
                "at the address 0x40, which is in no allocation");
    expect_part(rig.fault("st.shared.u32 [128], %lane;\nret;", 32, 128),
                "at 128 of the block's shared memory, which has 128 bytes");
    expect_part(
        rig.fault(
            "mov.u64 %d0, dynamic;\ncvta.shared.u64 %d0, %d0;\nst.u32 [%d0+4096], %lane;\nret;", 32,
            128),
        "shared memory");
    expect_part(rig.fault("ld.param.u64 %d0, [p1+8];\nret;"),
                "of the parameters, which has 16 bytes");
    expect_part(
        rig.fault("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r0, %r1, %r2, %r3}, [8];\nret;", 32,
                  512),
        "misaligned access of 16 bytes");
    expect_part(rig.fault("mov.u32 %r0, 8;\ncp.async.cg.shared.global [%r0], [%in], 16, 16;\nret;",
                          32, 512),
                "misaligned");
  }

  TEST_CASE("memory that was freed is in no allocation") {
    Rig rig;
    const void* gone;
    {
      const auto freed = std::make_unique<DeviceArray<std::uint32_t>>(64);
      gone = freed->data();
    }
    expect_part(fault_of(body("ld.global.u32 %r0, [%in];\nret;"), {gone, rig.out.data()}),
                "which is in no allocation");
  }

  TEST_CASE("collectives of a warp must have all lanes of their mask, and no other") {
    Rig rig;
    const std::string half = "setp.lt.u32 %p0, %lane, 16;\n@%p0 bra $in;\nbra.uni $out;\n$in:\n";
    const std::string end = "\n$out:\nret;";
    expect_part(rig.fault(half + "shfl.sync.idx.b32 %r0|%p1, %lane, 0, 31, -1;" + end),
                "shfl waits for a lane that is elsewhere");
    CHECK(rig.fault(half + "shfl.sync.idx.b32 %r0|%p1, %lane, 0, 31, 65535;" + end).empty());
    expect_part(rig.fault(half + "shfl.sync.idx.b32 %r0|%p1, %lane, 0, 31, 255;" + end),
                "shfl by a lane that its mask lacks");
    expect_part(rig.fault(half + "shfl.sync.idx.b32 %r0|%p1, %lane, 20, 31, 65535;" + end),
                "shfl from a lane that does not take part");
    expect_part(rig.fault(half + "bar.warp.sync -1;" + end),
                "bar.warp.sync waits for a lane that is elsewhere");
    expect_part(rig.fault("shl.b32 %r0, 1, %lane;\nbar.warp.sync %r0;\nret;"),
                "with another mask than other lanes");
    expect_part(
        rig.fault(
            half + "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r0, %r1, %r2, %r3}, [0];" + end, 32,
            512),
        "ldmatrix by a part of a warp");
    expect_part(rig.fault(half +
                          "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%r0, %r1, %r2, %r3}, "
                          "{%r4, %r5, %r6, %r7}, {%r8, %r9}, {%r0, %r1, %r2, %r3};" +
                          end),
                "mma by a part of a warp");
  }

  TEST_CASE("a barrier that a part of a warp reaches, or two barriers at a time") {
    Rig rig;
    expect_part(rig.fault("setp.lt.u32 %p0, %lane, 16;\n@%p0 bra $in;\nbra.uni "
                          "$out;\n$in:\nbar.sync 0;\n$out:\nret;"),
                "a barrier of the block, reached by a part of a warp in bar.sync");
    const std::string other = rig.fault(
        "setp.lt.u32 %p0, %lane, 32;\n@%p0 bra $in;\nbar.sync 1;\nbra.uni $out;\n$in:\nbar.sync "
        "0;\n$out:\nret;",
        64);
    expect_part(other, "waits at another one, at line ");
    // Warps that have ended do not count.
    CHECK(rig.fault("setp.lt.u32 %p0, %lane, 32;\n@%p0 ret;\nbar.sync 0;\nret;", 64).empty());
  }

  TEST_CASE("copies that are pending at the end, or larger than 16 bytes") {
    Rig rig;
    expect_part(rig.fault("shl.b32 %r0, %lane, 4;\ncp.async.cg.shared.global [%r0], [%in], 16, "
                          "16;\ncp.async.commit_group;\nret;",
                          32, 512),
                "copies of cp.async are pending at the end");
    expect_part(rig.fault("cp.async.cg.shared.global [0], [%in], 16, 17;\nret;", 32, 512),
                "a copy of more than 16 bytes");
    expect_part(rig.fault("setp.lt.u32 %p0, %lane, 16;\n@%p0 bra $in;\nbra.uni "
                          "$out;\n$in:\ncp.async.commit_group;\n$out:\nret;"),
                "a commit of copies by a part of a warp");
  }

  TEST_CASE("races in shared memory: only barriers order, of the block or of the warp") {
    Rig rig;
    // Each thread writes its word and reads the one of a thread `distance` lanes away.
    const auto text = [](const std::string& between, int distance) {
      return "shl.b32 %r1, %lane, 2;\nst.shared.u32 [%r1], %lane;\n" + between +
             "\nxor.b32 %r2, %r1, " + std::to_string(4 * distance) +
             ";\nld.shared.u32 %r3, [%r2];\nst.global.u32 [%out], %r3;\nret;";
    };
    const std::string shuffle = "shfl.sync.bfly.b32 %r4|%p1, %lane, 1, 31, -1;";
    expect_part(rig.fault(text("", 1), 32, 512), "a race: a read, and a write of thread");
    expect_part(rig.fault(text(shuffle, 1), 32, 512), "a race: a read, and a write of thread");
    CHECK(rig.fault(text("bar.warp.sync -1;", 1), 32, 512).empty());
    expect_part(rig.fault(text("bar.warp.sync -1;", 32), 64, 512), "a race: a ");
    CHECK(rig.fault(text("bar.sync 0;", 32), 64, 512).empty());
    // A write after reads, and two writes.
    const std::string after = "bar.sync 0;\nld.shared.u32 %r3, [0];\n";
    const std::string write =
        "setp.eq.u32 %p2, %lane, 40;\nadd.s32 %r5, %lane, 1;\n@%p2 st.shared.u32 [0], %r5;\nret;";
    expect_part(rig.fault(after + write, 64, 512), "a race: a write, and read");
    CHECK(rig.fault(after + "bar.sync 0;\n" + write, 64, 512).empty());
    // Reads before a warp's barrier are ordered, although a lane has read again since.
    const std::string again =
        after +
        "bar.warp.sync -1;\nsetp.eq.u32 %p2, %lane, 3;\nadd.s32 %r5, %lane, 1;\n"
        "@%p2 ld.shared.u32 %r3, [0];\n@%p2 st.shared.u32 [0], %r5;\nret;";
    CHECK(rig.fault(again, 32, 512).empty());
    expect_part(rig.fault(again, 64, 512), "a race: a ");
    expect_part(rig.fault("st.shared.u32 [0], %lane;\nret;", 32, 512),
                "a race: a write, and a write of thread");
    CHECK(rig.fault("mov.u32 %r1, 7;\nst.shared.u32 [0], %r1;\nret;", 32, 512).empty());
    // The bytes of ldmatrix and of asynchronous copies count, too.
    expect_part(
        rig.fault("shl.b32 %r1, %lane, 2;\nst.shared.u32 [%r1], %r1;\nshl.b32 %r2, %lane, "
                  "4;\nand.b32 %r2, %r2, 127;\n"
                  "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r3, %r4, %r5, %r6}, [%r2];\nret;",
                  32, 512),
        "a race: a read");
    expect_part(
        rig.fault("shl.b32 %r1, %lane, 4;\ncp.async.cg.shared.global [%r1], [%in], 16, "
                  "16;\ncp.async.commit_group;\n"
                  "cp.async.wait_group 0;\nxor.b32 %r2, %r1, 16;\nld.shared.u32 %r3, [%r2];\nret;",
                  32, 512),
        "a race: a read, and a write of thread");
  }

  TEST_CASE("races between blocks: the last block sees others by fence, atomic and fence") {
    DeviceArray<std::uint32_t> data(64), counter(1);
    // Each block writes a word; the block that arrives last adds all of them.
    const auto fault = [&](const std::string& barrier, const std::string& first,
                           const std::string& second) {
      std::ranges::fill(data.data(), data.data() + 64, 0xFFFFu);
      counter[0] = 0;
      const std::string text = kernel_text(
          ".reg .b64 %data, %counter, %at, %own; .reg .b32 %lane, %b, %n, %old, %x; .reg .pred %p, "
          "%last;\n"
          "ld.param.u64 %data, [p0];\nld.param.u64 %counter, [p1];\nmov.u32 %lane, "
          "%tid.x;\nmov.u32 %b, %ctaid.x;\n"
          "mul.wide.u32 %at, %b, 4;\nadd.s64 %own, %data, %at;\nsetp.ne.u32 %p, %lane, 40;\n@!%p "
          "st.global.u32 [%own], %b;\n" +
              barrier + "\nsetp.ne.u32 %p, %lane, 0;\n@%p bra $end;\n" + first +
              "\natom.global.add.u32 %old, [%counter], 1;\n" + second +
              "\nsetp.ne.u32 %last, %old, 3;\n@%last bra $end;\nld.global.u32 %x, "
              "[%data];\nld.global.u32 %x, [%data+4];\n"
              "ld.global.u32 %x, [%data+8];\nld.global.u32 %x, [%data+12];\n$end:\nret;",
          2);
      const std::vector<const void*> parameters = {data.data(), counter.data()};
      try {
        run_text(text, parameters, 64, 0, {.x = 4});
      } catch (const llmc::Error& error) {
        return std::string(error.what());
      }
      return std::string();
    };
    CHECK(fault("bar.sync 0;", "membar.gl;", "membar.gl;").empty());
    expect_part(fault("bar.sync 0;", "", "membar.gl;"), "a race: a read, and a write of block");
    expect_part(fault("bar.sync 0;", "membar.gl;", ""), "a race: a read, and a write of block");
    expect_part(fault("", "membar.gl;", "membar.gl;"), "a race: a read, and a write of block");
    // Two blocks write one word.
    const std::string both = kernel_text(
        ".reg .b64 %d; .reg .b32 %b;\nld.param.u64 %d, [p0];\nmov.u32 %b, %ctaid.x;\n"
        "st.global.u32 [%d], %b;\nret;",
        1);
    expect_part(fault_of(both, {data.data()}, 32, 0, {.x = 3}),
                "a race: a write, and a write of block");
  }
}
