// The result of a generation, as infer_gpt2 --json prints it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "llmc/base/json.h"
#include "llmc/infer/finish_reason.h"

namespace llmc {

struct GenerationReport {
  std::int64_t prompt_tokens = 0;
  std::vector<std::int32_t> ids;  // generated tokens, without the <|endoftext|> that ended them
  std::string text;               // text of the ids, valid UTF-8
  Finish finish = Finish::length;
  std::uint64_t seed = 0;
};

// The report as one line of JSON.
inline std::string report_json(const GenerationReport& report) {
  const OrderedJson json = {{"prompt_tokens", report.prompt_tokens},
                            {"tokens", report.ids.size()},
                            {"text", report.text},
                            {"finish_reason", finish_name(report.finish)},
                            {"seed", report.seed},
                            {"ids", report.ids}};
  return json.dump();
}

}  // namespace llmc
