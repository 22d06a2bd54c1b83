// Small kernels in PTX for tests of the executor: one instruction between loads and stores, and
// whole texts.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "llmc/base/error.h"
#include "test/ptx/decode.h"
#include "test/ptx/device_memory.h"
#include "test/ptx/forms.h"
#include "test/ptx/grid.h"
#include "test/ptx/races.h"

namespace llmc_test {

using Lanes = std::array<std::uint64_t, llmc_ptx::kLanes>;

// Memory that kernels may access while this exists.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t count) : values_(count) {
    llmc_ptx::DeviceMemory::instance().add(values_.data(), count * sizeof(T),
                                           llmc_ptx::Owner::host);
  }
  ~DeviceArray() { llmc_ptx::DeviceMemory::instance().remove(values_.data()); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() { return values_.data(); }
  T& operator[](std::size_t i) { return values_[i]; }
  const std::vector<T>& values() const { return values_; }

 private:
  std::vector<T> values_;
};

// A text with a kernel `test` that has parameters of 64 bits: `parameters` in number.
inline std::string kernel_text(const std::string& body, int parameters) {
  std::string text =
      ".version 9.0\n.target sm_90a\n.address_size 64\n.extern .shared .align 128 .b8 dynamic[];\n";
  text += ".visible .entry test(";
  for (int i = 0; i < parameters; ++i)
    text += (i == 0 ? "" : ", ") + (".param .u64 p" + std::to_string(i));
  return text + ")\n{\n" + body + "\n}\n";
}

inline llmc_ptx::Program program_of(const std::string& text) {
  const llmc_ptx::Source source("test.ptx", text);
  return llmc_ptx::decode(source.parse("test"), source);
}

// Runs a text's kernel with pointers as parameters.
inline void run_text(const std::string& text, const std::vector<const void*>& parameters,
                     int threads = 32, std::int64_t shared = 0, llmc_ptx::Dim3 grid = {},
                     std::uint64_t seed = 1) {
  const llmc_ptx::Program program = program_of(text);
  llmc_ptx::run_grid(program,
                     {.grid = grid,
                      .threads = threads,
                      .dynamic_shared_bytes = shared,
                      .races = std::make_shared<llmc_ptx::GlobalRaces>()},
                     reinterpret_cast<const std::byte*>(parameters.data()), seed);
}

// The message of the Error of a run; empty if there is none.
inline std::string fault_of(const std::string& text, const std::vector<const void*>& parameters,
                            int threads = 32, std::int64_t shared = 0, llmc_ptx::Dim3 grid = {}) {
  try {
    run_text(text, parameters, threads, shared, grid);
  } catch (const llmc::Error& error) {
    return error.what();
  }
  return "";
}

// The registers of a form: PTX's type of each operand, such as "b32"; "pred" for predicates.
inline std::vector<std::string> register_types(const std::string& letters,
                                               const std::vector<std::string>& of_x) {
  std::vector<std::string> types;
  std::size_t x = 0;
  for (const char letter : letters) {
    switch (letter | 32) {
      case 'p':
        types.push_back("pred");
        break;
      case 'h':
        types.push_back("b16");
        break;
      case 'w':
        types.push_back("b32");
        break;
      case 'd':
        types.push_back("b64");
        break;
      default:
        types.push_back(of_x.at(x++));
    }
  }
  return types;
}

// Runs one instruction in 32 lanes. `text` has its operands as $0, $1, ... in the order of the
// form's letters; inputs and outputs are those that are read and written, in that order. `of_x`:
// the types of its X and x.
struct Results {
  std::vector<Lanes> values, undefined;  // bits
};

// `undefined`: the bits of the inputs that are; empty: none.
inline Results run_partly_undefined(const std::string& text, const std::string& letters,
                                    const std::vector<Lanes>& inputs,
                                    const std::vector<Lanes>& undefined,
                                    const std::vector<std::string>& of_x = {},
                                    std::uint64_t seed = 1) {
  const std::vector<std::string> types = register_types(letters, of_x);
  std::string declare = ".reg .b64 %in, %out, %at; .reg .b32 %lane, %bits;\n", load, store,
              instruction = text;
  int reads = 0, writes = 0;
  for (std::size_t i = 0; i < letters.size(); ++i) {
    const std::string name = "%x" + std::to_string(i), &type = types[i];
    declare += ".reg ." + type + " " + name + ";\n";
    const bool is_written = letters[i] >= 'A' && letters[i] <= 'Z';
    int& count = is_written ? writes : reads;
    const std::string place = "+" + std::to_string(count++ * 256);
    if (is_written) {
      const std::string from = type == "pred" ? "%bits" : name;
      if (type == "pred") store += "selp.b32 %bits, 1, 0, " + name + ";\n";
      store +=
          "st.global." + (type == "pred" ? "b32" : type) + " [%out" + place + "], " + from + ";\n";
    } else if (type == "pred") {
      load += "ld.global.b32 %bits, [%in" + place + "];\nsetp.ne.b32 " + name + ", %bits, 0;\n";
    } else {
      load += "ld.global." + type + " " + name + ", [%in" + place + "];\n";
    }
    const std::size_t at = instruction.find("$" + std::to_string(i));
    llmc::require(at != std::string::npos, text + " lacks operand " + std::to_string(i));
    instruction.replace(at, 2 + (i > 9), name);
  }
  const std::string body = declare + "mov.u32 %lane, %tid.x;\nmul.wide.u32 %at, %lane, 8;\n" +
                           "ld.param.u64 %in, [p0];\nld.param.u64 %out, [p1];\n" +
                           "add.s64 %in, %in, %at;\nadd.s64 %out, %out, %at;\n" + load +
                           instruction + ";\n" + store + "ret;";
  DeviceArray<Lanes> in(static_cast<std::size_t>(reads) + 1),
      out(static_cast<std::size_t>(writes) + 1);
  for (std::size_t i = 0; i < inputs.size(); ++i) in[i] = inputs[i];
  auto& memory = llmc_ptx::DeviceMemory::instance();
  for (std::size_t i = 0; i < undefined.size(); ++i) {
    const auto* const bits = reinterpret_cast<const std::byte*>(undefined[i].data());
    memory.set_undefined(&in[i], {bits, bits + sizeof(Lanes)});
  }
  run_text(kernel_text(body, 2), {in.data(), out.data()}, 32, 0, {}, seed);
  Results results{{out.values().begin(), out.values().end() - 1}, {}};
  for (int i = 0; i < writes; ++i) {
    Lanes& bits = results.undefined.emplace_back();
    const auto bytes = memory.undefined(&out[static_cast<std::size_t>(i)], sizeof bits);
    std::memcpy(bits.data(), bytes.data(), sizeof bits);
  }
  return results;
}

inline std::vector<Lanes> run_instruction(const std::string& text, const std::string& letters,
                                          const std::vector<Lanes>& inputs,
                                          const std::vector<std::string>& of_x = {},
                                          std::uint64_t seed = 1) {
  return run_partly_undefined(text, letters, inputs, {}, of_x, seed).values;
}

// "add.s32 $0, $1, $2" for a form with three operands.
inline std::string plain_text(const std::string& name, std::size_t operands) {
  std::string text = name;
  for (std::size_t i = 0; i < operands; ++i) text += (i == 0 ? " $" : ", $") + std::to_string(i);
  return text;
}

// Random bits; in the first lanes, values at the limits.
inline Lanes some_bits(std::mt19937_64& random, const std::vector<std::uint64_t>& special) {
  Lanes lanes;
  for (std::uint64_t& lane : lanes) lane = random();
  for (std::uint64_t& lane : lanes) {
    if (random() % 3 == 0 && !special.empty()) lane = special[random() % special.size()];
  }
  return lanes;
}

}  // namespace llmc_test
