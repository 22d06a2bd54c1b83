// Values of infer_gpt2's flags that are parts of texts, and drawn seeds.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/config/setting.h"
#include "llmc/config/setting_text.h"

namespace llmc {

// Parses "ID=VALUE" of --logit-bias: a token id and what is added to its logit, a number from
// -kMaxLogitBias to kMaxLogitBias, or -inf. Throws if the text is something else.
std::pair<std::int32_t, double> parse_logit_bias(const std::string& text);

// All values of --logit-bias. Throws if one is wrong or if an id occurs twice.
std::vector<std::pair<std::int32_t, double>> parse_logit_biases(
    const std::vector<std::string>& texts);

// The numbers of a list whose values the table has checked (whole_number_error).
std::vector<std::int64_t> whole_numbers(const std::vector<std::string>& texts);

// A seed from the system's random numbers, from 0 to 2^53 - 1: JSON readers that store numbers as
// doubles keep it.
std::int64_t draw_seed();

namespace infer_detail {

// The error of Parse(typed), or an empty text.
template <auto Parse, class Typed = std::string>
std::string parse_error(const Typed& typed) {
  try {
    Parse(typed);
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

// Returns an error for a value of a list of whole numbers, or an empty text.
template <int Min>
std::string whole_number_error(const std::string& text) {
  return setting_detail::number_error<std::int64_t>(text, at_least(Min));
}

// Returns an error for a text that is not UTF-8, or an empty text.
std::string utf8_error(const std::string& text);

}  // namespace infer_detail

}  // namespace llmc
