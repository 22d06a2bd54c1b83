// Documents of JSON lines, as training reads them.
#pragma once

#include "llmc/io/jsonl_file.h"
#include "test/fuzz/fuzz.h"

namespace llmc_fuzz {

inline void json_lines(std::string_view input) {
  constexpr const char* kName = "data.jsonl";
  refused(kName, [&] {
    std::size_t before = 0;
    llmc::for_each_document(input, kName, "text", [&](const std::string&, std::size_t read) {
      expect(read > before && read <= input.size(), "documents follow each other");
      before = read;
    });
  });
}

}  // namespace llmc_fuzz
