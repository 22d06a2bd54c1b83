// Regular expressions of Python that choose modules of a model, in PEFT's adapter_config.json.
// PCRE2 matches them: what such expressions use means the same in both.
#pragma once

#include <string>

namespace llmc {

// Whether the expression matches all of `name`, as re.fullmatch does. Throws an error that begins
// with `what`, such as "DIR/adapter_config.json: target_modules", if the expression is not valid or
// takes too long.
bool matches_fully(const std::string& expression, const std::string& name, const std::string& what);

}  // namespace llmc
