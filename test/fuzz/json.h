// Fuzz target for the JSON parser of all readers. A value that is read and written again stays the
// same.
#pragma once

#include "llmc/base/json.h"
#include "test/fuzz/fuzz.h"

namespace llmc_fuzz {

inline void json(std::string_view input) {
  constexpr const char* kName = "some.json";
  is_rejected(kName, [&] {
    const llmc::Json value = llmc::parse_json(input, kName);
    const std::string text = value.dump();
    expect(llmc::parse_json(text, kName).dump() == text,
           "reading JSON and writing it again changes nothing");
    const auto ordered = llmc::parse_json(input, kName, llmc::KeyOrder::as_written);
    expect(llmc::parse_json(ordered.dump(), kName) == value, "the order of keys changes nothing");
    is_rejected(kName, [&] { llmc::json_sizes(value, kName); });
    is_rejected(kName, [&] { llmc::json_text(value, kName); });
    is_rejected(kName, [&] {
      const llmc::Scalar scalar = llmc::json_scalar(ordered, kName);
      expect(llmc::scalar_json(scalar).dump() == ordered.dump(), "a scalar keeps its value");
    });
  });
}

}  // namespace llmc_fuzz
