// The values of a step's log line that are about ranks: communication, times of the parts of a
// step, the tokens, and the use of resources.
#pragma once

#include <string>
#include <vector>

#include "llmc/comm/step_numbers.h"
#include "llmc/device/resource_usage.h"
#include "llmc/io/run_log.h"

namespace llmc {

// "100.0 99.5": a number of each rank, as the log has it. Lines of the log have no lists.
std::string text_of_ranks(const std::vector<double>& numbers);

// The memory of each rank in MiB.
std::string mebibytes_of_ranks(std::vector<double> bytes);

// Sets the numbers about this rank's resources. -1: unknown.
void set_usage(StepNumbers& numbers, const ResourceUsage& usage);

// ranks; comm_bytes that a rank sent, the largest number, and of them comm_bytes_tp in its tensor
// group, comm_bytes_pp to ranks of its pipeline and comm_bytes_dp in its other groups (the rest are
// decisions and times); if state is offloaded, offload_bytes_from_host and _to_host,
// offload_bytes_from_disk and _to_disk that a rank moved, the largest number; the means over ranks
// of the parts of the step, which add up to step_ms: fwd_ms, bwd_ms, recompute_ms (activations that
// were not stored), offload_ms (the compute stream waited for offloaded state), comm_ms (the
// compute stream waited for communication), bubble_ms (it waited for the passes of pipeline ranks),
// optimizer_ms, data_ms, other_ms; the parts comm_ms_tp, comm_ms_pp and comm_ms_dp of comm_ms;
// token_hash (token_hash.h). Then, rounded to a tenth: cpu_percent (100: one core), host_mem_mb and
// gpu_mem_mb (MiB), each as sum and maximum over ranks, and memory also per rank; and of rank 0's
// GPU gpu_util (percent), gpu_power_w, gpu_temp_c. `by_rank` (--log-ranks) adds the texts
// compute_ms_ranks, wait_ms_ranks and data_ms_ranks (slow_ranks.h), cpu_percent_ranks and
// gpu_util_ranks, and the memory of a single rank as such a text.
LogRecord rank_log(const RankNumbers& numbers, const ResourceUsage& own, bool by_rank = false);

}  // namespace llmc
