// The page of forms, test/ptx/FORMS.md: every form of instruction with its section of the manual,
// how it passes on undefined bits, and the test that compares it with values computed in another
// way. LLMC_WRITE_FORMS=1 writes the page again.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "test/ptx/forms.h"
#include "test/ptx/undefined.h"

namespace {

using llmc_ptx::Flow;
using llmc_ptx::Form;

constexpr const char* kPage = "test/ptx/FORMS.md";

struct SectionTest {
  const char* section;  // the beginning of its number
  const char* test;
};

// The first one that fits counts.
constexpr SectionTest kTests[] = {
    {"9.7.14.5.15", "`ptx_matrix`: rows and columns by the manual's formulae"},
    {"9.7.14.", "`ptx_matrix`: fragments by the manual's formulae; sums in fp64 or integers"},
    {"9.7.13.13", "`ptx_fault_programs`: launches that overlap"},
    {"9.7.13.5", "`ptx_memory`: counts of all threads"},
    {"9.7.13.9", "`ptx_control`: predicates of several lanes"},
    {"9.7.13.", "`ptx_control`, `ptx_faults`: orders and missing barriers"},
    {"9.7.12.", "`ptx_control`: loops, early exits, calls"},
    {"9.7.1.", "`ptx_arithmetic`: integers of 128 bits"},
    {"9.7.3.21", "`ptx_floats`: bounds of the error, exact cases"},
    {"9.7.3.14", "`ptx_floats`: bounds of the error, exact cases"},
    {"9.7.3.", "`ptx_floats`: floats of 113 bits, rounded once"},
    {"9.7.6.", "`ptx_arithmetic`, `ptx_floats`: comparisons with NaN, selections"},
    {"9.7.8.", "`ptx_arithmetic`: integers of 128 bits"},
    {"9.7.9.3", "`ptx_floats`: moves"},
    {"9.7.9.4", "`ptx_floats`: moves of halves"},
    {"9.7.9.6", "`ptx_control`: sources and predicates by the manual's formulae"},
    {"9.7.9.7", "`ptx_arithmetic`: integers of 128 bits"},
    {"9.7.9.8", "`ptx_memory`: bytes of each lane, extension"},
    {"9.7.9.9", "`ptx_memory`: bytes of each lane"},
    {"9.7.9.11", "`ptx_memory`: bytes of each lane"},
    {"9.7.9.20", "`ptx_memory`: generic addresses and back"},
    {"9.7.9.21", "`ptx_floats`: floats of 113 bits and integers of 128 bits"},
    {"9.7.9.25", "`ptx_memory`, `ptx_undefined`: bytes before and after the wait"}};

const char* test_of(const std::string& section) {
  for (const SectionTest& entry : kTests) {
    if (section.starts_with(entry.section)) return entry.test;
  }
  return nullptr;
}

const char* flow_text(const Form& form) {
  if (form.name.starts_with("vote.")) return "predicates must be defined";
  switch (form.kind == llmc_ptx::Kind::plain ? llmc_ptx::undefined_rule(form.name).flow
                                             : Flow::none) {
    case Flow::none:
      return "";
    case Flow::whole:
      return "the whole result";
    case Flow::carry:
      return "the bits from the lowest one on";
    case Flow::follow:
      return "move with the bits";
    case Flow::conjunction:
      return "not where the other bit is 0";
    case Flow::disjunction:
      return "not where the other bit is 1";
    case Flow::either:
      return "the same bits";
    case Flow::equality:
      return "not if a defined bit differs";
    case Flow::matrix:
      return "its row or column";
    case Flow::memory:
      return "with the bytes; addresses must be defined";
  }
  return "";
}

// Numbers of a section, so that 9.7.9 is before 9.7.13.
std::vector<int> numbers_of(const std::string& section) {
  std::vector<int> numbers;
  for (std::size_t at = 0; at < section.size();) {
    std::size_t used = 0;
    numbers.push_back(std::stoi(section.substr(at), &used));
    at += used + 1;
  }
  return numbers;
}

std::string page() {
  using Key = std::tuple<std::vector<int>, std::string, std::string, std::string>;
  std::map<Key, std::vector<std::string>> rows;
  for (const auto& [name, form] : llmc_ptx::FormTable::all().forms()) {
    if (name == "nop") continue;  // of the executor
    const std::string opcode = name.substr(0, name.find('.'));
    rows[{numbers_of(form.section), form.section, opcode, flow_text(form)}].push_back(
        name.substr(opcode.size()));
  }
  std::string text =
      "# Forms of instructions\n\n"
      "Written by `LLMC_WRITE_FORMS=1 make test DEVICE=ptx SUITE=ptx_forms`. Sections are those of "
      "the manual (PTX ISA 9.0).\n"
      "`ptx_undefined` also runs each form of arithmetic with several values of its undefined "
      "bits.\n\n"
      "| section | instruction | forms | undefined bits make undefined | tested by |\n"
      "|---|---|---|---|---|\n";
  for (const auto& [key, suffixes] : rows) {
    const auto& [numbers, section, opcode, flow] = key;
    std::string forms;
    for (const std::string& suffix : suffixes)
      forms += (forms.empty() ? "" : " ") + (suffix.empty() ? std::string("alone") : suffix);
    const char* const test = test_of(section);
    text += "| " + section + " | `" + opcode + "` | " + forms + " | " + flow + " | " +
            (test == nullptr ? "" : test) + " |\n";
  }
  return text;
}

}  // namespace

TEST_SUITE("ptx_forms") {
  TEST_CASE("every form has a section of the manual, and a test of its kind") {
    for (const auto& [name, form] : llmc_ptx::FormTable::all().forms()) {
      CAPTURE(name);
      if (name != "nop") CHECK(test_of(form.section) != nullptr);
    }
  }

  TEST_CASE("the page of forms has all of them") {
    const std::string expected = page();
    if (std::getenv("LLMC_WRITE_FORMS") != nullptr) std::ofstream(kPage) << expected;
    std::ifstream file(kPage);
    const std::string written{std::istreambuf_iterator<char>(file), {}};
    const bool is_up_to_date = written == expected;
    INFO(kPage << " is not up to date; it says how to write it");
    CHECK(is_up_to_date);
  }
}
