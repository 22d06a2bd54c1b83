// Loads, stores, atomics and asynchronous copies of the executor of PTX.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>

#include "test/ptx_rig.h"

namespace {

using namespace llmc_test;

struct Access {
  std::string space, type;
  int vector;
  bool stores;

  // "ld.global.v4.u32"
  explicit Access(const std::string& form) : stores(form.starts_with("st")) {
    type = form.substr(form.rfind('.') + 1);
    vector = form.find(".v4") != std::string::npos   ? 4
             : form.find(".v2") != std::string::npos ? 2
                                                     : 1;
    for (const char* const one : {"global", "shared", "local", "param"}) {
      if (form.find(one) != std::string::npos) space = one;
    }
  }
  int bytes() const { return std::stoi(type.substr(1)) / 8; }
};

// A text whose threads load `access` from their own bytes of p0 (through shared or local memory if
// that is its space) and store what they get to p1; or the reverse for a store.
std::string copy_text(const std::string& form, const Access& access) {
  const std::string bytes = std::to_string(access.bytes() * access.vector),
                    reg = access.bytes() == 8   ? "b64"
                          : access.bytes() == 4 ? "b32"
                                                : "b16";
  std::string list;
  for (int i = 0; i < access.vector; ++i) list += (i == 0 ? "%v" : ", %v") + std::to_string(i);
  const std::string values = access.vector == 1 ? list : "{" + list + "}";
  const std::string plain = (access.vector > 1 ? ".v" + std::to_string(access.vector) : "") + ".u" +
                            access.type.substr(1);
  std::string text =
      ".local .align 16 .b8 depot[32];\n.reg .b64 %in, %out, %at, %other; .reg .b32 %lane;\n.reg "
      "." +
      reg + " " + list + ";\nmov.u32 %lane, %tid.x;\nmul.wide.u32 %at, %lane, " + bytes +
      ";\nld.param.u64 %in, [p0];\nld.param.u64 %out, [p1];\nadd.s64 %in, %in, %at;\nadd.s64 %out, "
      "%out, %at;\n";
  if (access.space == "shared") text += "mov.u64 %other, dynamic;\nadd.s64 %other, %other, %at;\n";
  if (access.space == "local") text += "mov.u64 %other, depot;\n";
  const bool is_elsewhere = access.space == "shared" || access.space == "local";
  if (access.stores) {
    text += "ld.global" + plain + " " + values + ", [%in];\n";
    text += form + " [" + (is_elsewhere ? "%other" : "%out") + "], " + values + ";\n";
    if (is_elsewhere)
      text += "ld." + access.space + plain + " " + values + ", [%other];\nst.global" + plain +
              " [%out], " + values + ";\n";
  } else {
    if (is_elsewhere)
      text += "ld.global" + plain + " " + values + ", [%in];\nst." + access.space + plain +
              " [%other], " + values + ";\n";
    text += form + " " + values + ", [" + (is_elsewhere ? "%other" : "%in") + "];\nst.global" +
            plain + " [%out], " + values + ";\n";
  }
  return kernel_text(text + "ret;", 2);
}

}  // namespace

TEST_SUITE("ptx_memory") {
  TEST_CASE("each form of load and store moves the bytes of its lane") {
    std::mt19937_64 random(1);
    int count = 0;
    for (const auto& [name, form] : llmc_ptx::FormTable::all().forms()) {
      if (!name.starts_with("ld.") && !name.starts_with("st.")) continue;
      if (name.starts_with("ldmatrix") || name.find("param") != std::string::npos) continue;
      CAPTURE(name);
      ++count;
      const Access access(name);
      const auto bytes = static_cast<std::size_t>(32 * access.bytes() * access.vector);
      DeviceArray<std::uint8_t> in(bytes), out(bytes);
      for (std::size_t i = 0; i < bytes; ++i) in[i] = static_cast<std::uint8_t>(random());
      run_text(copy_text(name, access), {in.data(), out.data()}, 32,
               static_cast<std::int64_t>(bytes));
      REQUIRE(out.values() == in.values());
    }
    CHECK(count >= 250);
  }

  TEST_CASE("loads of parameters, also through their generic address") {
    DeviceArray<std::uint64_t> out(32 * 3);
    for (const std::string type :
         {"b64", "u64", "s64", "f64", "u32", "s32", "b32", "f32", "u16", "u8"}) {
      const std::string reg = type.ends_with("64") ? "b64" : type.ends_with("32") ? "b32" : "b16";
      const std::string text = ".reg .b64 %out, %at, %p; .reg .b32 %lane; .reg ." + reg +
                               " %v, %w;\nld.param." + type +
                               " %v, [p1];\nmov.u64 %p, p1;\ncvta.param.u64 %p, %p;\nld." + type +
                               " %w, [%p];\nld.param.u64 %out, [p0];\nmov.u32 %lane, "
                               "%tid.x;\nmul.wide.u32 %at, %lane, 24;\n"
                               "add.s64 %out, %out, %at;\nst.global." +
                               reg + " [%out], %v;\nst.global." + reg + " [%out+8], %w;\nret;";
      const std::uint64_t value = 0x1122334455667788;
      const void* pointer;
      std::memcpy(&pointer, &value, 8);
      run_text(kernel_text(text, 2), {out.data(), pointer});
      const int bits = std::stoi(type.substr(1));
      const std::uint64_t mask = bits == 64 ? ~0ull : (1ull << bits) - 1;
      for (std::size_t lane = 0; lane < 32; ++lane) {
        REQUIRE((out[lane * 3] & mask) == (value & mask));
        REQUIRE((out[lane * 3 + 1] & mask) == (value & mask));
      }
    }
  }

  TEST_CASE("a smaller type is extended to its register") {
    DeviceArray<std::int32_t> out(32);
    DeviceArray<std::int8_t> in(32);
    std::iota(in.data(), in.data() + 32, std::int8_t{-16});
    for (const std::string type : {"s8", "u8"}) {
      run_text(kernel_text(".reg .b64 %in, %out, %at; .reg .b32 %lane, %v;\nmov.u32 %lane, "
                           "%tid.x;\ncvt.u64.u32 %at, %lane;\n"
                           "ld.param.u64 %in, [p0];\nld.param.u64 %out, [p1];\nadd.s64 %in, %in, "
                           "%at;\nshl.b64 %at, %at, 2;\n"
                           "add.s64 %out, %out, %at;\nld.global." +
                               type + " %v, [%in];\nst.global.u32 [%out], %v;\nret;",
                           2),
               {in.data(), out.data()});
      for (std::size_t lane = 0; lane < 32; ++lane) {
        REQUIRE(out[lane] == (type == "s8" ? in[lane] : static_cast<std::uint8_t>(in[lane])));
      }
    }
  }

  TEST_CASE("atomic additions count every thread of every block") {
    DeviceArray<std::uint32_t> counter(1), seen(32 * 4 * 3);
    run_text(kernel_text(".reg .b64 %c, %out, %at; .reg .b32 %i, %b, %n, %old;\nmov.u32 %i, "
                         "%tid.x;\nmov.u32 %b, %ctaid.x;\n"
                         "mov.u32 %n, %ntid.x;\nmad.lo.s32 %i, %b, %n, %i;\nmul.wide.u32 %at, %i, "
                         "4;\nld.param.u64 %c, [p0];\n"
                         "ld.param.u64 %out, [p1];\nadd.s64 %out, %out, %at;\natom.global.add.u32 "
                         "%old, [%c], 1;\n"
                         "st.global.u32 [%out], %old;\nret;",
                         2),
             {counter.data(), seen.data()}, 128, 0, {.x = 3});
    CHECK(counter[0] == 32 * 4 * 3);
    std::vector<std::uint32_t> sorted = seen.values();
    std::ranges::sort(sorted);
    for (std::size_t i = 0; i < sorted.size(); ++i) REQUIRE(sorted[i] == i);
  }

  TEST_CASE("addresses of spaces become generic ones, and back") {
    const Lanes in = {16, 32, 64};
    for (const std::string space : {"shared", "local"}) {
      const Lanes generic = run_instruction("cvta." + space + ".u64 $0, $1", "Dd", {in})[0];
      CHECK(generic != in);
      CHECK(run_instruction("cvta.to." + space + ".u64 $0, $1", "Dd", {generic})[0] == in);
    }
    CHECK(run_instruction("cvta.global.u64 $0, $1", "Dd", {in})[0] == in);
    CHECK(run_instruction("cvta.to.global.u64 $0, $1", "Dd", {in})[0] == in);
  }

  TEST_CASE("an asynchronous copy lands at its wait, and zeros follow its bytes") {
    const auto text = [](const std::string& wait, const std::string& size) {
      return kernel_text(
          ".reg .b64 %in, %out, %at; .reg .b32 %lane, %to, %size; .reg .b32 %a, %b, %c, %d;\n"
          "mov.u32 %lane, %tid.x;\nmul.wide.u32 %at, %lane, 16;\nshl.b32 %to, %lane, "
          "4;\nld.param.u64 %in, [p0];\n"
          "ld.param.u64 %out, [p1];\nadd.s64 %in, %in, %at;\nadd.s64 %out, %out, %at;\nmov.u32 "
          "%size, " +
              size +
              ";\n"
              "st.shared.v4.u32 [%to], {%lane, %lane, %lane, %lane};\n"
              "cp.async.cg.shared.global [%to], [%in], 16, %size;\ncp.async.commit_group;\n"
              "cp.async.commit_group;\n" +
              wait +
              "\nld.shared.v4.u32 {%a, %b, %c, %d}, [%to];\n"
              "st.global.v4.u32 [%out], {%a, %b, %c, %d};\ncp.async.wait_group 0;\nret;",
          2);
    };
    DeviceArray<std::uint32_t> in(128), out(128);
    std::iota(in.data(), in.data() + 128, 7u);
    run_text(text("cp.async.wait_group 1;", "16"), {in.data(), out.data()}, 32, 512);
    CHECK(out.values() == in.values());
    run_text(text("cp.async.wait_group 1;", "8"), {in.data(), out.data()}, 32, 512);
    CHECK((out[0] == in[0] && out[1] == in[1] && out[2] == 0 && out[3] == 0));
    // Size 0 does not read the source.
    run_text(text("cp.async.wait_group 1;", "0"), {nullptr, out.data()}, 32, 512);
    CHECK((out[0] == 0 && out[127] == 0));
    // A wait that leaves the group pending.
    run_text(text("cp.async.wait_group 2;", "16"), {in.data(), out.data()}, 32, 512);
    CHECK(out[0] == 0xA1A1A1A1);
  }
}
