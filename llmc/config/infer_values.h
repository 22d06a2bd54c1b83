// Values of infer_gpt2's flags that are parts of texts, and drawn seeds.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/utf8.h"
#include "llmc/config/eval_spec.h"
#include "llmc/config/setting.h"
#include "llmc/config/setting_text.h"

namespace llmc {

// Largest finite value of --logit-bias. The logits stay finite in fp32 if penalties scale them too.
inline constexpr double kMaxLogitBias = 1e30;

// Parses "ID=VALUE" of --logit-bias: a token id and what is added to its logit, a number from
// -kMaxLogitBias to kMaxLogitBias, or -inf. Throws if the text is something else.
inline std::pair<std::int32_t, double> parse_logit_bias(const std::string& text) {
  const std::size_t equals = text.find('=');
  const std::string value = equals == text.npos ? "" : text.substr(equals + 1);
  std::int32_t id = 0;
  double bias = -std::numeric_limits<double>::infinity();
  const bool is_valid = parse_number(text.substr(0, equals), id) && id >= 0 &&
                        (value == "-inf" || parse_number(value, bias));
  if (is_valid && (value == "-inf" || std::fabs(bias) <= kMaxLogitBias)) return {id, bias};
  if (is_valid) {
    fail("'" + printable(text) + "' has a value that is too large",
         "give a number from -1e30 to 1e30, or -inf, which bans the token");
  }
  fail("'" + printable(text) + "' is not ID=VALUE",
       "give a token id and a number or -inf, such as 50256=-inf");
}

// All values of --logit-bias. Throws if one is wrong or if an id occurs twice.
inline std::vector<std::pair<std::int32_t, double>> parse_logit_biases(
    const std::vector<std::string>& texts) {
  std::vector<std::pair<std::int32_t, double>> biases;
  for (const std::string& text : texts) {
    const auto bias = parse_logit_bias(text);
    for (const auto& [id, value] : biases) {
      if (id == bias.first) fail("token " + std::to_string(id) + " has two values");
    }
    biases.push_back(bias);
  }
  return biases;
}

// The numbers of a list whose values the table has checked (whole_number_error).
inline std::vector<std::int64_t> whole_numbers(const std::vector<std::string>& texts) {
  std::vector<std::int64_t> numbers;
  for (const std::string& text : texts) {
    numbers.push_back(0);
    require(parse_number(text, numbers.back()), "a list contains a text that is no number");
  }
  return numbers;
}

// A seed from the system's random numbers, from 0 to 2^53 - 1: JSON readers that store numbers as
// doubles keep it.
inline std::int64_t draw_seed() {
  std::random_device random;
  const std::uint64_t bits = (std::uint64_t{random()} << 32) | random();
  return static_cast<std::int64_t>(bits >> 11);
}

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
inline std::string utf8_error(const std::string& text) {
  return is_utf8(text) ? "" : "'" + printable(text) + "' is not UTF-8, as all generated text is";
}

}  // namespace infer_detail
}  // namespace llmc
