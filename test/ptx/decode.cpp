#include "test/ptx/decode.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "llmc/base/error.h"
#include "llmc/device/math.h"
#include "test/ptx/contraction.h"
#include "test/ptx/control_flow.h"
#include "test/ptx/forms.h"
#include "test/ptx/inline_calls.h"
#include "test/ptx/operands.h"
#include "test/ptx/provenance.h"
#include "test/ptx/registers.h"

namespace llmc_ptx {

namespace {

// The number of a special register; std::nullopt for another operand.
std::optional<std::size_t> special_number(const std::string& name) {
  const auto entry = std::ranges::find(kSpecialNames, name);
  if (entry == kSpecialNames.end()) return std::nullopt;
  return static_cast<std::size_t>(entry - kSpecialNames.begin());
}

// A statement with its form, and its operands one by one.
struct Parsed {
  const Form* form = nullptr;
  std::vector<std::string> operands;
};

class Decoder {
 public:
  Decoder(const Function& function, const Source& source)
      : function_(without_calls(function, source)), flow_(function_) {
    program_.name = function.name;
    program_.file = function.file;
    program_.can_overlap = !source.target().starts_with("sm_8");
    for (const auto& [name, width] : {std::pair{"_P", Width::predicate},
                                      {"_H", Width::bits16},
                                      {"_W", Width::bits32},
                                      {"_D", Width::bits64}}) {
      function_.registers[name] = width;
    }
    place_variables(source);
  }

  Program run() {
    std::vector<Use> uses;
    for (const Statement& statement : function_.statements) {
      at_ = &statement;
      parsed_.push_back(parse(statement));
      uses.push_back(use_of(statement, parsed_.back()));
    }
    products_ = find_fusable_products(function_, flow_, uses);
    for (std::size_t s = 0; s < uses.size(); ++s) {
      if (!products_[s]) continue;
      for (const std::string& factor : products_[s]->factors) {
        if (width_of(factor)) uses[s].reads.push_back(factor);
      }
    }
    for (SpecialRegister& special : program_.special) {
      special.place = {static_cast<std::uint32_t>(program_.register_bytes)};
      special_[kSpecialNames[special.number]] = special.place;
      program_.register_bytes += bytes_of_width(Width::bits32);
    }
    RegisterPlaces registers = place_registers(function_, flow_, uses, program_.register_bytes);
    places_ = std::move(registers.places);
    program_.register_bytes = registers.bytes;
    for (const std::string& name : registers.undefined_at_start) {
      const Width width = *width_of(name);
      program_.undefined_at_start.push_back({places_.at(name), bytes_of_width(width)});
    }
    register_roots_ = find_roots(function_, addresses_);
    program_.roots.emplace_back();
    for (std::size_t i = 0; i < parsed_.size(); ++i) {
      at_ = &function_.statements[i];
      add_instruction(parsed_[i]);
    }
    finish();
    return std::move(program_);
  }

 private:
  [[noreturn]] void error(const std::string& what) const {
    std::string text = at_->form;
    for (const std::string& operand : at_->operands)
      text += (&operand == &at_->operands[0] ? " " : ", ") + operand;
    llmc::fail(function_.file + ", line " + std::to_string(at_->line) + ": " + what + ": " + text);
  }

  // ---- variables ----

  void place_variables(const Source& source) {
    for (const Variable& parameter : function_.parameters) {
      program_.parameter_bytes = llmc::round_up(program_.parameter_bytes, parameter.alignment);
      addresses_[parameter.name] = program_.parameter_bytes;
      program_.parameter_bytes += parameter.bytes;
    }
    std::vector<const Variable*> dynamic;
    for (const auto* variables : {&source.variables(), &std::as_const(function_.variables)}) {
      for (const Variable& variable : *variables) {
        if (variable.space == ".param") continue;
        if (variable.bytes == 0) {
          dynamic.push_back(&variable);
        } else if (variable.space == ".global" || variable.space == ".const") {
          addresses_[variable.name] = program_.add_values(variable);
        } else {
          std::int64_t& used =
              variable.space == ".local" ? program_.local_bytes : program_.shared_bytes;
          used = llmc::round_up(used, variable.alignment);
          addresses_[variable.name] = used;
          used += variable.bytes;
        }
      }
    }
    for (const Variable* variable : dynamic) {
      program_.shared_bytes = llmc::round_up(program_.shared_bytes, variable->alignment);
      addresses_[variable->name] = program_.shared_bytes;
    }
  }

  // ---- forms and uses ----

  Parsed parse(const Statement& statement) {
    Parsed parsed;
    std::string name = statement.form;
    if (name.starts_with("mov.") && statement.operands.size() == 2) {
      if (statement.operands[0][0] == '{') name += " unpack";
      if (statement.operands[1][0] == '{') name += " pack";
    }
    parsed.form = FormTable::all().find(name);
    if (parsed.form == nullptr) error("the executor does not know the form '" + name + "'");
    for (const std::string& operand : statement.operands) flatten(operand, parsed.operands);
    const std::string& letters = parsed.form->operands;
    // The second result of shfl may be left out.
    if (letters.starts_with("WP") && parsed.operands.size() + 1 == letters.size()) {
      parsed.operands.insert(parsed.operands.begin() + 1, "_");
    }
    if (parsed.operands.size() != letters.size())
      error("it has another number of operands than the form");
    for (std::size_t i = 0; i < letters.size(); ++i) {
      if (parsed.operands[i] == "_") parsed.operands[i] = std::string("_") + letters[i];
    }
    return parsed;
  }

  std::optional<Width> width_of(const std::string& name) const {
    const auto entry = function_.registers.find(name);
    if (entry != function_.registers.end()) return entry->second;
    return std::nullopt;
  }

  Use use_of(const Statement& statement, const Parsed& parsed) {
    Use use;
    const auto read = [&](const std::string& name) {
      if (width_of(name)) use.reads.push_back(name);
      const std::optional<std::size_t> number = special_number(name);
      if (number && std::ranges::count(program_.special, *number, &SpecialRegister::number) == 0) {
        program_.special.push_back({*number, {}});
      }
    };
    if (!statement.predicate.empty()) {
      read(statement.predicate);
      use.writes_all_lanes = false;
    }
    for (std::size_t i = 0; i < parsed.operands.size(); ++i) {
      const std::string& text = parsed.operands[i];
      switch (parsed.form->operands[i]) {
        case '[':
          read(split_address(text).base);
          break;
        case 'i':
        case 'l':
          break;
        case 'P':
        case 'H':
        case 'W':
        case 'D':
        case 'X':
          if (!width_of(text)) error("'" + text + "' is no register");
          use.writes.push_back(text);
          break;
        default:
          read(text[0] == '!' ? text.substr(1) : text);
      }
    }
    return use;
  }

  // ---- instructions ----

  void add_instruction(const Parsed& parsed) {
    const Form& form = *parsed.form;
    Instruction instruction;
    instruction.run = form.run;
    instruction.kind = form.kind;
    instruction.immediate = form.immediate;
    instruction.is_predicated = !at_->predicate.empty();
    instruction.negated = at_->negated;
    if (instruction.is_predicated) instruction.predicate = places_.at(at_->predicate);
    first_operand_.push_back(program_.operands.size());
    UndefinedRule rule = undefined_rule(form.name);
    const auto add_operand = [&](Operand operand, char letter) {
      if (rule.count == UndefinedRule::kMost) error("it has too many operands");
      rule.letters[rule.count++] = letter;
      program_.operands.push_back(operand);
    };
    std::vector<Width> widths;
    int num_addresses = 0;
    for (std::size_t i = 0; i < parsed.operands.size(); ++i) {
      const std::string& text = parsed.operands[i];
      switch (const char letter = form.operands[i]) {
        case 'l': {
          const auto label = function_.labels.find(text);
          if (label == function_.labels.end()) error("there is no label '" + text + "'");
          instruction.target = label->second;
          break;
        }
        case 'i':
          instruction.immediate = static_cast<std::int64_t>(number(text));
          break;
        case '[': {
          const Address address = split_address(text);
          (num_addresses++ == 0 ? instruction.offset : instruction.second_offset) = address.offset;
          const Width width = width_of(address.base).value_or(Width::bits64);
          widths.push_back(width);
          add_operand(operand(address.base, width), width == Width::bits32 ? 'a' : 'A');
          instruction.roots = roots_of(address.base);
          break;
        }
        case 'X':
        case 'x': {
          const Width width = width_of(text).value_or(form.number_width);
          widths.push_back(width);
          add_operand(operand(text, width), letter_of_width(width, letter == 'X'));
          break;
        }
        default: {
          if (text[0] == '!') instruction.negates_source = true;
          add_operand(operand(text[0] == '!' ? text.substr(1) : text, width_of_letter(letter)),
                      letter);
        }
      }
    }
    if (const auto& product = products_[program_.code.size()]) {
      for (const std::string& factor : product->factors)
        add_operand(operand(factor, Width::bits32), 'w');
      program_.has_fusable_sums = true;
      instruction.run = sum_with_product(form.name.starts_with("sub."), product->operand);
    }
    if (form.by_width) {
      instruction.run = form.by_width(widths);
      if (instruction.run == nullptr) error("registers of these widths");
    }
    program_.code.push_back(instruction);
    program_.rules.push_back(rule);
    program_.origins.push_back({&form, at_->line, at_->location});
  }

  static char letter_of_width(Width width, bool is_written) {
    const char letter = width == Width::bits16 ? 'h' : width == Width::bits32 ? 'w' : 'd';
    return is_written ? static_cast<char>(letter - 'a' + 'A') : letter;
  }

  // The entry of Program::roots for an address in a register.
  int roots_of(const std::string& base) {
    const auto entry = register_roots_.find(base);
    if (entry == register_roots_.end()) return 0;
    const std::vector<std::int64_t> offsets = entry->second.offsets();
    const auto same = std::ranges::find(program_.roots, offsets);
    if (same == program_.roots.end()) {
      program_.roots.push_back(offsets);
      return static_cast<int>(program_.roots.size()) - 1;
    }
    return static_cast<int>(same - program_.roots.begin());
  }

  static Width width_of_letter(char letter) {
    switch (letter) {
      case 'P':
      case 'p':
        return Width::predicate;
      case 'H':
      case 'h':
        return Width::bits16;
      case 'W':
      case 'w':
        return Width::bits32;
      default:
        return Width::bits64;
    }
  }

  Operand operand(const std::string& text, Width width) {
    if (const std::optional<Width> own = width_of(text)) {
      if (*own != width) error("the register " + text + " has another width");
      return places_.at(text);
    }
    if (const auto special = special_.find(text); special != special_.end()) {
      if (width != Width::bits32) error("the register " + text + " has 32 bits");
      return special->second;
    }
    return constant(
        width == Width::predicate && number(text) != 0 ? ~std::uint64_t{0} : number(text), width);
  }

  std::uint64_t number(const std::string& text) const {
    if (const auto address = addresses_.find(text); address != addresses_.end()) {
      return static_cast<std::uint64_t>(address->second);
    }
    std::size_t used = 0;
    std::uint64_t value = 0;
    try {
      if (text.starts_with("0f") || text.starts_with("0F") || text.starts_with("0d") ||
          text.starts_with("0D")) {
        value = std::stoull(text.substr(2), &used, 16);
        used += 2;
      } else if (text[0] == '-') {
        value = static_cast<std::uint64_t>(std::stoll(text, &used, 0));
      } else {
        value = std::stoull(text, &used, 0);
      }
    } catch (const std::exception&) {
      used = 0;
    }
    if (used == 0 || used != text.size())
      error("'" + text + "' is neither a register nor a name nor a number");
    return value;
  }

  Operand constant(std::uint64_t value, Width width) {
    const auto [place, is_new] = constants_.try_emplace({value, width});
    if (is_new) {
      const std::size_t bytes = bytes_of_width(width), lane = bytes / kLanes;
      place->second = {static_cast<std::uint32_t>(constant_bytes_.size()) | Operand::kConstant};
      constant_bytes_.resize(constant_bytes_.size() + std::max<std::size_t>(bytes, 64));
      std::byte* const at = &constant_bytes_[place->second.offset()];
      if (width == Width::predicate) std::memcpy(at, &value, bytes);
      for (std::size_t i = 0; i < kLanes; ++i) std::memcpy(at + i * lane, &value, lane);
    }
    return place->second;
  }

  // Sets what depends on all instructions.
  void finish() {
    program_.zero = constant(0, Width::bits64);
    program_.locations = std::move(function_.locations);
    program_.constants = aligned_bytes(
        std::max<std::int64_t>(64, static_cast<std::int64_t>(constant_bytes_.size())));
    std::ranges::copy(constant_bytes_, program_.constants.get());
    const auto end = static_cast<int>(program_.code.size());
    for (std::size_t i = 0; i < program_.code.size(); ++i) {
      Instruction& instruction = program_.code[i];
      instruction.operands = program_.operands.data() + first_operand_[i];
      if (instruction.kind != Kind::branch) continue;
      const int join = flow_.post_dominator(flow_.block_of(static_cast<int>(i)));
      instruction.join =
          join == flow_.end() ? end : flow_.blocks()[static_cast<std::size_t>(join)].first;
      if (instruction.join < end)
        program_.code[static_cast<std::size_t>(instruction.join)].is_join = true;
    }
  }

  Function function_;
  ControlFlow flow_;
  Program program_;
  const Statement* at_ = nullptr;
  std::vector<Parsed> parsed_;
  std::map<std::string, std::int64_t> addresses_;
  std::map<std::string, Operand> places_, special_;
  std::map<std::string, Roots> register_roots_;
  std::vector<std::optional<FusableProduct>> products_;
  std::map<std::pair<std::uint64_t, Width>, Operand> constants_;
  std::vector<std::byte> constant_bytes_;
  std::vector<std::size_t> first_operand_;
};

}  // namespace

Program decode(const Function& function, const Source& source) {
  return Decoder(function, source).run();
}

}  // namespace llmc_ptx
