#include "llmc/config/infer_values.h"

#include <cmath>
#include <cstddef>
#include <limits>

#include "llmc/base/file.h"
#include "llmc/base/random_bits.h"
#include "llmc/base/utf8.h"

namespace llmc {

namespace {

// Largest finite value of --logit-bias. The logits stay finite in fp32 if penalties scale them too.
constexpr double kMaxLogitBias = 1e30;

}  // namespace

std::pair<std::int32_t, double> parse_logit_bias(const std::string& text) {
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

std::vector<std::pair<std::int32_t, double>> parse_logit_biases(
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

std::vector<std::int64_t> whole_numbers(const std::vector<std::string>& texts) {
  std::vector<std::int64_t> numbers;
  for (const std::string& text : texts) {
    numbers.push_back(0);
    require(parse_number(text, numbers.back()), "a list contains a text that is no number");
  }
  return numbers;
}

std::int64_t draw_seed() {
  return static_cast<std::int64_t>(random_bits() >> 11);
}

namespace infer_detail {

std::string utf8_error(const std::string& text) {
  return is_utf8(text) ? "" : "'" + printable(text) + "' is not UTF-8, as all generated text is";
}

}  // namespace infer_detail

}  // namespace llmc
