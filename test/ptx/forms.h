// The forms of instructions: each is an opcode with its modifiers, such as "add.s32".
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "test/ptx/program.h"

namespace llmc_ptx {

// `operands` has a letter per operand, in the order of the text, with braces flattened:
//
//   P H W D   a predicate, a register of 16, 32 or 64 bits; lower case: it is read, upper case: it
//   is written X         a register of any width; lower case: it is read, and may be a number [ an
//   address: a register or a name, and an offset i l       a number that is the instruction's
//   immediate; a label
//
// Forms of mov with braces have " pack" or " unpack" after their name.
struct Form {
  std::string name;
  const char* section = "";  // of the manual, PTX ISA 9.0
  std::string operands;
  Run run = nullptr;
  std::int64_t immediate = 0;
  Kind kind = Kind::plain;
  // For a form with X or [: chooses its run by the widths of these registers.
  std::function<Run(const std::vector<Width>& widths)> by_width = {};
  Width number_width = Width::bits32;  // of a number in place of x
};

class FormTable {
 public:
  static const FormTable& all();

  // Null if there is none.
  const Form* find(std::string_view name) const;
  const std::map<std::string, Form, std::less<>>& forms() const { return forms_; }

  void add(Form form);

 private:
  std::map<std::string, Form, std::less<>> forms_;
};

// The run of add.f32 or sub.f32 whose operand 1 or 2 is a product; operands 3 and 4 are its
// factors. The seed decides whether the product is rounded.
Run sum_with_product(bool subtracts, int product);

// Each file of forms adds its own.
void add_integer_forms(FormTable& table);
void add_float_forms(FormTable& table);
void add_logic_forms(FormTable& table);
void add_compare_forms(FormTable& table);
void add_convert_forms(FormTable& table);
void add_move_forms(FormTable& table);
void add_memory_forms(FormTable& table);
void add_matrix_forms(FormTable& table);
void add_warp_forms(FormTable& table);
void add_control_forms(FormTable& table);

}  // namespace llmc_ptx
