// The text of PTX, as nvcc writes it, in functions and statements (PTX ISA 9.0, chapters 4, 5 and
// 11).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace llmc_ptx {

// A place in a source file. `caller` is the place of the call into which nvcc inlined it.
struct Location {
  std::string file;
  int line = 0;
  std::string function;  // inlined there; empty: the kernel itself
  int caller = -1;       // index in Function::locations; -1: none
};

// "@!%p1 add.s32 %r1, %r2, 3;" has the form "add.s32", the predicate "%p1" and three operands. An
// operand is a register, a number, a name, "{%f1, %f2}", "[%rd1+8]" or "(retval0)", without blanks.
struct Statement {
  std::string form;
  std::vector<std::string> operands;
  std::string predicate;
  bool negated = false;
  int line = 0;       // in the file of PTX
  int location = -1;  // in Function::locations
};

enum class Width : std::uint8_t { predicate, bits16, bits32, bits64 };

// A variable in a state space: of a function (.local, .param) or of a file (.global, .shared).
struct Variable {
  std::string name, space;
  std::int64_t alignment = 1, bytes = 0;  // 0 bytes: dynamic shared memory
  std::vector<std::uint8_t> values;       // empty: not initialised
};

struct Function {
  std::string name;
  std::string file;  // of the PTX
  std::vector<Variable> parameters, results, variables;
  std::map<std::string, Width> registers;
  std::map<std::string, int> labels;  // the statement that follows
  std::vector<Statement> statements;
  std::vector<Location> locations;
};

// A file of PTX. Its functions are parsed when they are requested.
class Source {
 public:
  // Throws an Error if the text has no header of PTX.
  Source(std::string name, std::string text);

  const std::string& name() const { return name_; }
  std::vector<std::string> kernels() const;
  bool has(const std::string& function) const { return places_.contains(function); }
  // "sm_90a".
  const std::string& target() const { return target_; }
  // Variables of the file.
  const std::vector<Variable>& variables() const { return variables_; }
  // Throws an Error that names the line if the text is not understood.
  Function parse(const std::string& function) const;

 private:
  struct Place {
    std::size_t begin = 0;
    int line = 0;
    bool is_kernel = false;
  };

  void read_debug_strings();

  std::string name_, text_, target_;
  std::map<std::string, Place> places_;
  std::map<int, std::string> files_;
  std::map<std::string, std::string> strings_;  // names of inlined functions, by label
  std::vector<Variable> variables_;
};

}  // namespace llmc_ptx
