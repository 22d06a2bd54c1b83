#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/io/data/batches.h"
#include "llmc/io/data/token_source.h"
#include "llmc/io/tokenizer/tokenizer_interface.h"
#include "llmc/train/watch/rank_log.h"
#include "llmc/train/watch/run_record.h"

namespace llmc {

LogRecord run_record(const RunPosition& position, const RunData& data,
                     const std::optional<RecordedRun>& resumed,
                     const std::vector<std::int64_t>& planned_memory) {
  LogRecord record = {{"step", position.step}, {"run", resumed ? "resumed" : "started"}};
  if (resumed) record.emplace_back("checkpoint", resumed->checkpoint.string());
  record.emplace_back("tokenizer_xxh64", position.vocabulary);
  if (data.validation) {
    const auto ratio = data.validation->bytes_per_token(*data.tokenizer);
    if (ratio) record.emplace_back("bytes_per_token", *ratio);
  }
  record.emplace_back("planned_mem_mb_ranks",
                      mebibytes_of_ranks({planned_memory.begin(), planned_memory.end()}));
  for (const auto& [flag, value] : position.flags) record.emplace_back(flag, value);
  return record;
}

}  // namespace llmc
