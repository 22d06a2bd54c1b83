// Connects the ranks that a launcher started. The only place that knows which libraries of
// communication the build has.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "llmc/comm/comm_choice.h"
#include "llmc/comm/launcher.h"
#include "llmc/comm/tcp_bootstrap.h"
#include "llmc/comm/tcp_world.h"
#include "llmc/comm/world.h"
#include "llmc/device/properties.h"
#ifdef LLMC_MPI
#include "llmc/comm/mpi_world.h"
#endif
#ifdef LLMC_NCCL
#include "llmc/comm/nccl_world.h"
#endif

namespace llmc {

#ifdef LLMC_MPI
inline constexpr bool kHasMpi = true;
inline std::unique_ptr<Bootstrap> start_mpi() {
  return std::make_unique<MpiBootstrap>();
}
inline std::unique_ptr<World> make_mpi_world(std::unique_ptr<Bootstrap> mpi) {
  return std::make_unique<MpiWorld>(std::move(mpi));
}
#else
inline constexpr bool kHasMpi = false;
inline std::unique_ptr<Bootstrap> start_mpi() {
  fail("this build has no MPI");
}
inline std::unique_ptr<World> make_mpi_world(std::unique_ptr<Bootstrap>) {
  fail("this build has no MPI");
}
#endif

#ifdef LLMC_NCCL
inline constexpr bool kHasNccl = true;
inline std::unique_ptr<World> make_nccl_world(std::unique_ptr<Bootstrap> bootstrap,
                                              const WaitLimits& limits) {
  return std::make_unique<NcclWorld>(std::move(bootstrap), limits);
}
#else
inline constexpr bool kHasNccl = false;
inline std::unique_ptr<World> make_nccl_world(std::unique_ptr<Bootstrap>, const WaitLimits&) {
  fail("this build has no NCCL");
}
#endif

inline bool has_tcp_address() {
  return is_variable_set("MASTER_ADDR") && is_variable_set("MASTER_PORT");
}

// Whether TCP can connect the ranks of this launcher: torchrun and scripts that set RANK and
// WORLD_SIZE, and an srun for which MASTER_ADDR and MASTER_PORT are set; without MPI, any launcher
// with these two.
inline bool is_tcp_launcher(const ProcessInfo& process) {
  if (process.ranks_variable == "WORLD_SIZE") return true;
  return has_tcp_address() && (!kHasMpi || process.ranks_variable == "SLURM_STEP_NUM_TASKS");
}

// The libraries of communication that this build has. Ranks whose builds have others would choose
// other kinds of worlds.
inline std::string comm_libraries_text() {
  if (kHasMpi && kHasNccl) return "MPI and NCCL";
  return kHasMpi ? "MPI" : kHasNccl ? "NCCL" : "none";
}

// Starts MPI and checks that it connects all ranks.
inline std::unique_ptr<Bootstrap> connect_by_mpi(const ProcessInfo& process) {
  if (!kHasMpi) {
    fail(launched_rank_text(process) +
             ": this build has no MPI, which connects the ranks of this "
             "launcher",
         "set MASTER_ADDR and MASTER_PORT, by which TCP connects ranks; or install MPI with "
         "scripts/setup.sh and build again");
  }
  std::unique_ptr<Bootstrap> mpi = start_mpi();
  const int ranks = mpi->places().ranks;
  if (ranks == process.ranks) return mpi;
  fail(launched_rank_text(process) + ": MPI connects only " + std::to_string(ranks) + " of them",
       is_tcp_launcher(process)
           ? "use " + quantity("communication") + " tcp, and set MASTER_ADDR and MASTER_PORT for " +
                 "all ranks; or start them with scripts/run.sh or mpirun"
           : "start the program with the mpirun of the MPI library that it was built with");
}

// Makes one of the machine's GPUs the current one and returns the text that identifies it; empty if
// there is none.
inline std::string select_gpu(int local_rank) {
  const int gpus = gpu_count();
  if (gpus == 0) return "";
  use_gpu(local_rank % gpus);
  return machine_text() + " " + device_bus_id();
}

// Connects the ranks that a launcher started, before they have compared anything: so it depends
// only on the launcher. Ranks of a launcher for TCP are connected by TCP even if they use MPI
// afterwards, unless only MPI knows where they are.
inline std::unique_ptr<Bootstrap> connect_ranks(const ProcessInfo& process) {
  if (is_tcp_launcher(process) && (kHasNccl || !kHasMpi || has_tcp_address())) {
    return std::make_unique<TcpBootstrap>(tcp_settings_from_environment(process));
  }
  return connect_by_mpi(process);
}

// Throws, on all ranks, if this build has no NCCL and it is chosen.
inline void require_library(CommChoice choice) {
  if (choice != CommChoice::nccl || kHasNccl) return;
  fail_together(quantity("communication") + " nccl: this build has no NCCL",
                "build for CUDA with NCCL (package libnccl-dev); or use " +
                    quantity("communication") + " auto");
}

// The world of connected ranks. If this throws, the caller still has the bootstrap, to report its
// failure. It makes the GPU of this rank the current one; no stream or buffer may exist before. All
// ranks pass the same choice, and get the same kind of world.
inline std::unique_ptr<World> open_world(std::unique_ptr<Bootstrap>& bootstrap,
                                         const ProcessInfo& process, CommChoice choice,
                                         const WaitLimits& limits = {}) {
  require_library(choice);
  const bool is_tcp = dynamic_cast<const TcpBootstrap*>(bootstrap.get()) != nullptr;
  if (is_tcp && choice == CommChoice::mpi) bootstrap = connect_by_mpi(process);
  const std::string gpu = select_gpu(bootstrap->places().local_rank);
  if (kHasNccl && (choice == CommChoice::automatic || choice == CommChoice::nccl)) {
    const std::string missing = missing_gpu_text(bootstrap->all_gather(gpu));
    if (missing.empty()) return make_nccl_world(std::move(bootstrap), limits);
    if (choice == CommChoice::nccl) {
      fail_together(
          quantity("communication") + " nccl: " + missing + "; NCCL needs one GPU per rank",
          "start as many ranks per machine as it has GPUs; or use " + quantity("communication") +
              " auto");
    }
  }
  const bool uses_tcp = choice == CommChoice::tcp || (is_tcp && choice == CommChoice::automatic);
  if (uses_tcp) return std::make_unique<TcpWorld>(bootstrap, limits);
  return make_mpi_world(std::move(bootstrap));
}

// The world of this process: one rank without a launcher, otherwise all that the launcher started,
// as above.
inline std::unique_ptr<World> open_world(const ProcessInfo& process,
                                         CommChoice choice = CommChoice::automatic) {
  require_library(choice);
  if (process.ranks <= 1) return std::make_unique<SingleRankWorld>();
  std::unique_ptr<Bootstrap> bootstrap = connect_ranks(process);
  return open_world(bootstrap, process, choice);
}

}  // namespace llmc
