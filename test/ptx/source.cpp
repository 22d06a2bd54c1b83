#include "test/ptx/source.h"

#include <algorithm>
#include <array>
#include <utility>

#include "llmc/base/error.h"
#include "test/ptx/tokens.h"

namespace llmc_ptx {

namespace {

using llmc::require;

// Bytes of a fundamental type such as ".b8", ".f32" or ".u64"; 0: another word.
std::int64_t bytes_of_type(std::string_view type) {
  if (type.size() < 3 || type[0] != '.' ||
      std::string_view("busf").find(type[1]) == std::string_view::npos)
    return 0;
  const std::string_view bits = type.substr(2);
  return bits == "8" ? 1 : bits == "16" ? 2 : bits == "32" ? 4 : bits == "64" ? 8 : 0;
}

Width width_of_type(std::string_view type, const Tokens& tokens) {
  if (type == ".pred") return Width::predicate;
  switch (bytes_of_type(type)) {
    case 1:  // a register of 8 bits has at least 16
    case 2:
      return Width::bits16;
    case 4:
      return Width::bits32;
    case 8:
      return Width::bits64;
    default:
      tokens.error("registers of type '" + std::string(type) + "'");
  }
}

// Reads "align 8 .b8 name[16] = {1, 2}" after the state space, up to the sign that follows.
Variable read_variable(Tokens& tokens, std::string_view space) {
  Variable variable;
  variable.space = space;
  std::int64_t element = 0;
  for (;;) {
    const std::string_view word = tokens.take();
    if (word == ".align") {
      variable.alignment = tokens.take_number();
    } else if (word == ".ptr" || word == ".global" || word == ".shared") {
      continue;  // an attribute of a parameter
    } else if (const std::int64_t bytes = bytes_of_type(word)) {
      element = bytes;
    } else {
      variable.name = word;
      break;
    }
  }
  if (element == 0) tokens.error("a variable has no type");
  variable.alignment = std::max(variable.alignment, element);
  variable.bytes = element;
  if (tokens.take_if("[")) {
    variable.bytes = tokens.is("]") ? 0 : element * tokens.take_number();
    tokens.expect("]");
  }
  if (tokens.take_if("=")) {
    if (element != 1) tokens.error("only bytes are initialised");
    tokens.expect("{");
    while (!tokens.take_if("}")) {
      variable.values.push_back(static_cast<std::uint8_t>(tokens.take_number()));
      tokens.take_if(",");
    }
    variable.values.resize(static_cast<std::size_t>(variable.bytes));
  }
  return variable;
}

std::vector<Variable> read_parameters(Tokens& tokens) {
  std::vector<Variable> parameters;
  if (!tokens.take_if("(")) return parameters;
  while (!tokens.take_if(")")) {
    tokens.expect(".param");
    parameters.push_back(read_variable(tokens, ".param"));
    tokens.take_if(",");
  }
  return parameters;
}

// Reads the body of a function. Names that are declared in an inner block get a suffix, because
// another block may declare the same ones.
class BodyReader {
 public:
  BodyReader(Tokens& tokens, const std::map<int, std::string>& files,
             const std::map<std::string, std::string>& strings, Function& function)
      : tokens_(tokens), files_(files), strings_(strings), function_(function) {}

  void read() {
    tokens_.expect("{");
    scopes_.emplace_back();
    while (!scopes_.empty()) {
      if (tokens_.at_end()) tokens_.error(function_.name + " does not end");
      if (tokens_.take_if("{")) {
        scopes_.emplace_back();
        ++num_scopes_;
      } else if (tokens_.take_if("}")) {
        scopes_.pop_back();
      } else {
        read_line();
      }
    }
    // Labels at the end are only for debuggers.
    std::erase_if(function_.labels, [&](const auto& label) {
      return label.second == static_cast<int>(function_.statements.size());
    });
  }

 private:
  void read_line() {
    const int line = tokens_.line();
    if (tokens_.is("@")) return read_statement("", line);
    const std::string word(tokens_.take());
    if (word == ".reg") return read_registers();
    if (word == ".loc") return read_location();
    if (word == ".local" || word == ".param" || word == ".shared") {
      Variable variable = read_variable(tokens_, word);
      variable.name = declare(variable.name);
      function_.variables.push_back(std::move(variable));
      return tokens_.expect(";");
    }
    if (word == ".pragma") {
      tokens_.take();
      return tokens_.expect(";");
    }
    if (word[0] == '.') tokens_.error("the directive '" + word + "' is not known");
    if (tokens_.take_if(":")) {
      function_.labels[word] = static_cast<int>(function_.statements.size());
      return;
    }
    read_statement(word, line);
  }

  void read_registers() {
    const Width width = width_of_type(tokens_.take(), tokens_);
    do {
      const std::string name(tokens_.take());
      if (!tokens_.take_if("<")) {
        function_.registers[declare(name)] = width;
        continue;
      }
      const std::int64_t count = tokens_.take_number();
      tokens_.expect(">");
      for (std::int64_t i = 0; i < count; ++i) {
        function_.registers[name + std::to_string(i)] = width;
      }
    } while (tokens_.take_if(","));
    tokens_.expect(";");
  }

  // .loc 1 64 0, function_name $L__info_string0, inlined_at 2 58 3
  void read_location() {
    using Key = std::array<std::int64_t, 3>;
    const auto read_key = [&] {
      Key key;
      for (std::int64_t& part : key) part = tokens_.take_number();
      return key;
    };
    const Key key = read_key();
    Location location;
    const auto file = files_.find(static_cast<int>(key[0]));
    location.file = file != files_.end() ? file->second : "?";
    location.line = static_cast<int>(key[1]);
    while (tokens_.take_if(",")) {
      const std::string word(tokens_.take());
      if (word == "function_name") {
        const auto name = strings_.find(std::string(tokens_.take()));
        if (name != strings_.end()) location.function = name->second;
      } else if (word == "inlined_at") {
        const auto caller = by_key_.find(read_key());
        if (caller != by_key_.end()) location.caller = caller->second;
      } else {
        tokens_.error("'" + word + "' in a .loc");
      }
    }
    by_key_[key] = static_cast<int>(function_.locations.size());
    function_.locations.push_back(std::move(location));
  }

  void read_statement(std::string form, int line) {
    Statement statement;
    statement.line = line;
    statement.location = static_cast<int>(function_.locations.size()) - 1;
    if (form.empty()) {
      tokens_.expect("@");
      statement.negated = tokens_.take_if("!");
      statement.predicate = resolve(tokens_.take());
      form = tokens_.take();
    }
    statement.form = std::move(form);
    while (!tokens_.take_if(";")) {
      statement.operands.push_back(read_operand());
      tokens_.take_if(",");
    }
    function_.statements.push_back(std::move(statement));
  }

  std::string read_operand() {
    static const std::map<char, char> kClosing = {{'{', '}'}, {'[', ']'}, {'(', ')'}};
    std::string text;
    char closing = 0;
    for (;;) {
      if (tokens_.at_end()) tokens_.error("a statement does not end");
      if (closing == 0 && (tokens_.is(",") || tokens_.is(";"))) return text;
      const std::string_view token = tokens_.take();
      text += resolve(token);
      if (closing == 0 && kClosing.contains(token[0])) {
        closing = kClosing.at(token[0]);
      } else if (closing != 0 && token[0] == closing) {
        return text;
      }
    }
  }

  std::string declare(const std::string& name) {
    if (scopes_.size() == 1) return name;
    return scopes_.back()[name] = name + "@" + std::to_string(num_scopes_);
  }
  std::string resolve(std::string_view name) const {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      const auto inner = scope->find(std::string(name));
      if (inner != scope->end()) return inner->second;
    }
    return std::string(name);
  }

  Tokens& tokens_;
  const std::map<int, std::string>& files_;
  const std::map<std::string, std::string>& strings_;
  Function& function_;
  std::vector<std::map<std::string, std::string>> scopes_;
  int num_scopes_ = 0;
  std::map<std::array<std::int64_t, 3>, int> by_key_;
};

}  // namespace

Source::Source(std::string name, std::string text)
    : name_(std::move(name)), text_(std::move(text)) {
  require(text_.find(".version") != std::string::npos, name_ + " is no PTX: it has no .version");
  read_debug_strings();
  Tokens tokens(text_, 0, 1, name_);
  while (!tokens.at_end()) {
    const std::size_t begin = tokens.offset();
    const int line = tokens.line();
    const std::string_view word = tokens.take();
    if (word == ".version" || word == ".address_size") {
      tokens.take();
    } else if (word == ".target") {
      target_ = tokens.take();
      while (tokens.take_if(",")) tokens.take();
    } else if (word == ".file") {
      const auto number = static_cast<int>(tokens.take_number());
      const std::string_view quoted = tokens.take();
      files_[number] = quoted.substr(1, quoted.size() - 2);
    } else if (word == ".section") {
      tokens.take();
      tokens.skip_block();
    } else if (word == ".global" || word == ".shared" || word == ".const") {
      variables_.push_back(read_variable(tokens, word));
      tokens.expect(";");
    } else if (word == ".entry" || word == ".func") {
      if (word == ".func") read_parameters(tokens);
      const std::string function(tokens.take());
      read_parameters(tokens);
      while (!tokens.is("{") && !tokens.is(";")) tokens.take();
      if (tokens.take_if(";")) continue;  // a declaration
      places_[function] = {begin, line, word == ".entry"};
      tokens.skip_block();
    } else if (word != ".visible" && word != ".extern" && word != ".weak") {
      tokens.error("'" + std::string(word) + "' outside a function");
    }
  }
}

// Labels and the bytes that follow them: "$L__info_string0:" and ".b8 95,90,78".
void Source::read_debug_strings() {
  std::size_t at = text_.find(".section\t.debug_str");
  while (at != std::string::npos && (at = text_.find("$L__info_string", at)) != std::string::npos) {
    const std::size_t colon = text_.find(':', at);
    std::string& string = strings_[text_.substr(at, colon - at)];
    Tokens tokens(text_, colon + 1, 0, name_);
    while (tokens.take_if(".b8")) {
      do {
        if (const std::int64_t byte = tokens.take_number()) string += static_cast<char>(byte);
      } while (tokens.take_if(","));
    }
    at = colon;
  }
}

std::vector<std::string> Source::kernels() const {
  std::vector<std::string> names;
  for (const auto& [name, place] : places_) {
    if (place.is_kernel) names.push_back(name);
  }
  return names;
}

Function Source::parse(const std::string& name) const {
  const auto place = places_.find(name);
  require(place != places_.end(), name_ + " has no function " + name);
  Tokens tokens(text_, place->second.begin, place->second.line, name_);
  Function function;
  function.name = name;
  function.file = name_;
  if (tokens.take() == ".func") function.results = read_parameters(tokens);
  tokens.take();
  function.parameters = read_parameters(tokens);
  while (!tokens.is("{")) tokens.take();
  BodyReader(tokens, files_, strings_, function).read();
  return function;
}

}  // namespace llmc_ptx
