#include "test/ptx/inline_calls.h"

#include <algorithm>
#include <utility>

#include "llmc/base/error.h"

namespace llmc_ptx {

namespace {

// "(param0,param1)" in its names.
std::vector<std::string> names_in(const std::string& text) {
  std::vector<std::string> names(1);
  for (const char c : text) {
    if (c == ',') {
      names.emplace_back();
    } else if (c != '(' && c != ')') {
      names.back() += c;
    }
  }
  if (names.back().empty()) names.pop_back();
  return names;
}

Width width_of(const Variable& variable) {
  llmc::require(variable.bytes == 4 || variable.bytes == 8,
                "a parameter of a called function has " + std::to_string(variable.bytes) +
                    " bytes; allowed: 4 or 8");
  return variable.bytes == 4 ? Width::bits32 : Width::bits64;
}

class Inliner {
  static constexpr int kDeepest = 16;

 public:
  Inliner(Function& caller, const Source& source, int depth)
      : caller_(caller), source_(source), depth_(depth) {}

  void run() {
    std::vector<int> places(caller_.statements.size() + 1);
    for (std::size_t i = 0; i < caller_.statements.size(); ++i) {
      places[i] = static_cast<int>(out_.size());
      Statement& statement = caller_.statements[i];
      if (statement.form == "call" || statement.form == "call.uni") {
        call(statement);
      } else {
        out_.push_back(moved(std::move(statement)));
      }
    }
    places.back() = static_cast<int>(out_.size());
    for (auto& [label, place] : caller_.labels) place = places[static_cast<std::size_t>(place)];
    caller_.labels.merge(new_labels_);
    caller_.statements = std::move(out_);
  }

 private:
  // st.param.f64 [param0+0], %fd2 of a variable of the caller is mov.f64 param0, %fd2; ld.param
  // likewise.
  Statement moved(Statement statement) const {
    const bool stores = statement.form.starts_with("st.param.");
    if (!stores && !statement.form.starts_with("ld.param.")) return statement;
    std::string& address = statement.operands[stores ? 0 : 1];
    const std::string name = address.substr(1, std::min(address.find('+'), address.size() - 1) - 1);
    const bool is_own =
        std::ranges::any_of(caller_.variables, [&](const Variable& v) { return v.name == name; }) ||
        caller_.registers.contains(name);
    if (!is_own) return statement;
    address = name;
    statement.form = "mov." + statement.form.substr(9);
    return statement;
  }

  void call(const Statement& call) {
    std::size_t at = call.operands[0][0] == '(' ? 1 : 0;
    const std::vector<std::string> results =
        at == 1 ? names_in(call.operands[0]) : std::vector<std::string>();
    const std::string& name = call.operands[at];
    llmc::require(source_.has(name), caller_.file + ", line " + std::to_string(call.line) +
                                         ": a call of " + name + ", which is not in the file");
    llmc::require(depth_ < kDeepest, name + " calls itself");
    Function callee = without_calls(source_.parse(name), source_, depth_ + 1);
    const std::string suffix = "@" + name + std::to_string(out_.size());
    std::map<std::string, std::string> renamed;
    const auto bind = [&](const std::vector<Variable>& formal,
                          const std::vector<std::string>& actual) {
      llmc::require(formal.size() == actual.size(),
                    "a call of " + name + " has another number of operands");
      for (std::size_t i = 0; i < formal.size(); ++i) {
        renamed[formal[i].name] = actual[i];
        caller_.registers[actual[i]] = width_of(formal[i]);
      }
    };
    bind(callee.results, results);
    bind(callee.parameters, at + 1 < call.operands.size() ? names_in(call.operands[at + 1])
                                                          : std::vector<std::string>());
    for (const auto& [reg, width] : callee.registers) {
      renamed[reg] = reg + suffix;
      caller_.registers[reg + suffix] = width;
    }
    for (Variable variable : callee.variables) {
      renamed[variable.name] = variable.name += suffix;
      caller_.variables.push_back(std::move(variable));
    }
    for (const auto& [label, place] : callee.labels) {
      renamed[label] = label + suffix;
      new_labels_[label + suffix] = static_cast<int>(out_.size()) + place;
    }
    append(std::move(callee), renamed, suffix, call);
  }

  void append(Function callee, const std::map<std::string, std::string>& renamed,
              const std::string& suffix, const Statement& call) {
    const int first_location = static_cast<int>(caller_.locations.size());
    for (Location location : callee.locations) {
      if (location.function.empty()) location.function = callee.name;
      location.caller = location.caller < 0 ? call.location : location.caller + first_location;
      caller_.locations.push_back(std::move(location));
    }
    const std::string end = "end" + suffix;
    for (Statement statement : callee.statements) {
      for (std::string& operand : statement.operands) operand = rename(operand, renamed);
      statement.predicate = rename(statement.predicate, renamed);
      statement.location =
          statement.location < 0 ? call.location : statement.location + first_location;
      if (statement.form == "ret") {
        statement.form = "bra";
        statement.operands = {end};
      }
      out_.push_back(moved(std::move(statement)));
    }
    new_labels_[end] = static_cast<int>(out_.size());
    // Something must follow the label.
    Statement nothing;
    nothing.form = "nop";
    nothing.line = call.line;
    nothing.location = call.location;
    out_.push_back(std::move(nothing));
  }

  static std::string rename(const std::string& operand,
                            const std::map<std::string, std::string>& renamed) {
    static const std::string kSigns = "{}[](),+-|!";
    std::string result, word;
    const auto flush = [&] {
      const auto other = renamed.find(word);
      result += other != renamed.end() ? other->second : word;
      word.clear();
    };
    for (const char c : operand) {
      if (kSigns.find(c) == std::string::npos) {
        word += c;
      } else {
        flush();
        result += c;
      }
    }
    flush();
    return result;
  }

  Function& caller_;
  const Source& source_;
  std::vector<Statement> out_;
  std::map<std::string, int> new_labels_;
  int depth_;
};

}  // namespace

Function without_calls(Function function, const Source& source, int depth) {
  const bool calls = std::ranges::any_of(function.statements, [](const Statement& statement) {
    return statement.form.starts_with("call");
  });
  if (calls) Inliner(function, source, depth).run();
  return function;
}

}  // namespace llmc_ptx
