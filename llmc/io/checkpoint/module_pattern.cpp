#include "llmc/io/checkpoint/module_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cstdint>
#include <memory>

#include "llmc/base/error.h"
#include "llmc/base/file.h"

namespace llmc {

namespace {

struct Free {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};

PCRE2_SPTR units(const std::string& text) {
  return reinterpret_cast<PCRE2_SPTR>(text.data());
}

[[noreturn]] void fail_pattern(const std::string& what, const std::string& expression, int error) {
  char reason[256] = "";
  pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(reason), sizeof reason);
  fail(what + ": the regular expression " + printable(expression) + ": " + reason);
}

}  // namespace

bool matches_fully(const std::string& expression, const std::string& name,
                   const std::string& what) {
  int error = 0;
  PCRE2_SIZE at = 0;
  const std::unique_ptr<pcre2_code, Free> code(
      pcre2_compile(units(expression), expression.size(),
                    PCRE2_UTF | PCRE2_ANCHORED | PCRE2_ENDANCHORED, &error, &at, nullptr));
  if (!code) fail_pattern(what, expression, error);
  const std::unique_ptr<pcre2_match_data, Free> match(pcre2_match_data_create(1, nullptr));
  const std::unique_ptr<pcre2_match_context, Free> context(pcre2_match_context_create(nullptr));
  require(match != nullptr && context != nullptr, "out of memory");
  constexpr std::uint32_t kMaxSteps = 100'000;  // backtracking can be exponential
  pcre2_set_match_limit(context.get(), kMaxSteps);
  const int status =
      pcre2_match(code.get(), units(name), name.size(), 0, 0, match.get(), context.get());
  if (status < 0 && status != PCRE2_ERROR_NOMATCH) fail_pattern(what, expression, status);
  return status >= 0;
}

}  // namespace llmc
