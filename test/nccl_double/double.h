// The functions of the test double. A program includes this header in one file.
//
// The double checks what NCCL leaves undefined: that the ranks of a communicator make the same
// calls in the same order, that groups are balanced, that operands in place are where NCCL expects
// them, and that a communicator is used neither before its calls are complete nor after its end. It
// injects ncclInProgress and errors (Faults in state.h).
//
// The host's streams run work at once, so a call is complete when its work is done. ncclSend is the
// exception, because NCCL's own only enters the stream: the host continues, and later calls of the
// communicator or in the stream wait until the receiver calls. The first message of one rank to
// another waits for the receiver's call, because NCCL then connects them.
#pragma once

#include "test/nccl_double/exchange.h"

namespace nccl_double {

// The content of an id.
struct Id {
  int process = -1, number = -1;  // that made it
};

struct Join {
  int ranks = 0, rank = 0, process = 0;
};

// Rank 0 learns the processes of all ranks and sends the list to them. A list of -1: the ranks do
// not fit.
class Initialisation {
 public:
  explicit Initialisation(ncclComm* comm)
      : comm_(comm), joins_(static_cast<std::size_t>(comm->ranks)) {
    joins_[0] = {comm->ranks, comm->rank, Double::instance().process};
  }

  bool advance() {
    const std::size_t bytes = comm_->processes.size() * sizeof(int);
    if (stage_ == 0) {
      stage_ = 1;
      for (int i = 1; comm_->rank == 0 && i < comm_->ranks; ++i) {
        requests_.receive(comm_, &joins_[i], sizeof(Join), -1, kJoin);
      }
      if (comm_->rank > 0) {
        requests_.send(comm_, joins_.data(), sizeof(Join), 0, kJoin);
        requests_.receive(comm_, comm_->processes.data(), bytes, 0, kMembers);
      }
    }
    if (!requests_.complete()) return false;
    if (stage_ == 1) {
      stage_ = 2;
      if (comm_->rank == 0) {
        assign();
        for (const Join& join : joins_) {
          if (join.process == Double::instance().process) continue;
          MPI_Send(comm_->processes.data(), static_cast<int>(bytes), MPI_BYTE, join.process,
                   comm_->tag + kMembers, MPI_COMM_WORLD);
        }
      }
    }
    if (comm_->processes[0] < 0)
      set_error(comm_, ncclInvalidArgument, "ranks that are equal or of different communicators");
    return true;
  }

 private:
  void assign() {
    std::vector<int> processes(joins_.size(), -1);
    for (const Join& join : joins_) {
      if (join.ranks != comm_->ranks || join.rank < 0 || join.rank >= comm_->ranks) continue;
      processes[static_cast<std::size_t>(join.rank)] = join.process;
    }
    for (const int process : processes) {
      if (process < 0) processes[0] = -1;
    }
    comm_->processes = processes;
  }

  ncclComm* comm_;
  std::vector<Join> joins_;
  Requests requests_;
  int stage_ = 0;
};

inline void start_mpi() {
  int is_initialised = 0;
  MPI_Initialized(&is_initialised);
  if (is_initialised == 0) {
    MPI_Init(nullptr, nullptr);
    std::atexit([] { MPI_Finalize(); });
  }
  MPI_Comm_rank(MPI_COMM_WORLD, &Double::instance().process);
}

// Two ranges of bytes without a common one.
inline bool are_apart(const void* a, std::size_t a_bytes, const void* b, std::size_t b_bytes) {
  const char *const x = static_cast<const char*>(a), *const y = static_cast<const char*>(b);
  return x + a_bytes <= y || y + b_bytes <= x;
}

struct Operands {
  const void* in = nullptr;
  void* out = nullptr;
  std::size_t count = 0;  // elements that a rank sends to one other
  std::size_t in_pieces = 1, out_pieces = 1;
};

// `offset` of the one operand in the other, in pieces, if the call is in place.
inline bool are_operands_allowed(const Operands& o, std::size_t piece, int in_place_piece) {
  if (o.in == nullptr || o.out == nullptr) return false;
  const std::size_t shift = piece * static_cast<std::size_t>(in_place_piece);
  const char* const in = static_cast<const char*>(o.in) + (o.in_pieces > 1 ? shift : 0);
  const char* const out = static_cast<const char*>(o.out) + (o.out_pieces > 1 ? shift : 0);
  return in == out || are_apart(o.in, piece * o.in_pieces, o.out, piece * o.out_pieces);
}

inline ncclResult_t collective(const char* call, Function function, const Operands& operands,
                               ncclDataType_t type, int root, ncclComm* comm, cudaStream_t stream) {
  const ncclResult_t status = check_call(comm, call);
  if (status != ncclSuccess) return status;
  const llmc::Element element = element_of(type);
  const std::size_t piece = operands.count * static_cast<std::size_t>(llmc::element_size(element));
  if (stream == nullptr || !are_operands_allowed(operands, piece, comm->rank)) {
    misuse(comm, std::string(call) + " with overlapping operands, or without operands or stream");
    return ncclInvalidArgument;
  }
  const Descriptor mine{.function = function,
                        .element = element,
                        .count = static_cast<std::int64_t>(operands.count),
                        .number = ++comm->collectives,
                        .root = root,
                        .depth = Double::instance().depth};
  auto exchange = std::make_shared<Exchange>(comm, mine, operands.in, operands.out, -1, true);
  return start(comm, stream, [exchange] { return exchange->advance(); });
}

inline ncclResult_t message(const char* call, const void* in, void* out, std::size_t count,
                            ncclDataType_t type, int peer, ncclComm* comm, cudaStream_t stream) {
  const ncclResult_t status = check_call(comm, call);
  if (status != ncclSuccess) return status;
  if (stream == nullptr || (in == nullptr && out == nullptr) || peer < 0 || peer >= comm->ranks ||
      peer == comm->rank) {
    misuse(comm, std::string(call) + " without operand, stream or another rank");
    return ncclInvalidArgument;
  }
  std::int64_t& number = (in != nullptr ? comm->sent : comm->received)[peer];
  const Descriptor mine{Function::message, element_of(type), static_cast<std::int64_t>(count),
                        ++number};
  auto exchange = std::make_shared<Exchange>(comm, mine, in, out, peer, in != nullptr);
  const auto step = [exchange] { return exchange->advance(); };
  const bool connects = number == 1;
  Double& d = Double::instance();
  if (in == nullptr || connects || d.depth > 0) return start(comm, stream, step);
  exchange->start_in_stream();
  d.stream_sends.push_back(std::make_shared<StreamSend>(StreamSend{comm, stream, step}));
  return launch(comm, ++d.calls);
}

}  // namespace nccl_double

inline ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  nccl_double::start_mpi();
  nccl_double::Double& d = nccl_double::Double::instance();
  const nccl_double::Id content{d.process, d.ids++};
  std::memset(id, 0, sizeof *id);
  std::memcpy(id->internal, &content, sizeof content);
  return ncclSuccess;
}

inline ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                           ncclConfig_t* config) {
  nccl_double::start_mpi();
  nccl_double::Double& d = nccl_double::Double::instance();
  nccl_double::Id content;
  std::memcpy(&content, id.internal, sizeof content);
  if (ranks < 1 || rank < 0 || rank >= ranks || content.process < 0) return ncclInvalidArgument;
  if (config == nullptr || config->blocking != 0)
    return nccl_double::misuse(nullptr, "the double has only non-blocking communicators");
  if (rank == 0 && content.process != d.process)
    return nccl_double::misuse(nullptr, "the double requires an id that rank 0 made");
  *comm = d.comms.emplace_back(std::make_unique<ncclComm>()).get();
  ++d.opened;
  ncclComm& opened = **comm;
  opened.rank = rank;
  opened.ranks = ranks;
  opened.processes.assign(static_cast<std::size_t>(ranks), content.process);
  opened.tag = (content.process * 512 + content.number % 512) * nccl_double::kTagsPerComm;
  opened.sent.assign(static_cast<std::size_t>(ranks), 0);
  opened.received = opened.sent;
  auto initialisation = std::make_shared<nccl_double::Initialisation>(&opened);
  opened.steps.push_back([initialisation] { return initialisation->advance(); });
  return nccl_double::launch(&opened, 0);
}

inline ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  using namespace nccl_double;
  const ncclResult_t status = check_call(comm, "ncclCommFinalize");
  if (status != ncclSuccess) return status;
  if (Double::instance().depth > 0) return misuse(comm, "ncclCommFinalize in a group");
  comm->is_final = true;
  const Descriptor mine{.number = ++comm->collectives};
  auto exchange = std::make_shared<Exchange>(comm, mine, nullptr, nullptr, -1, true);
  comm->steps.push_back(
      after_stream_sends(comm, nullptr, [exchange] { return exchange->advance(); }));
  return launch(comm, -1);
}

inline ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  using namespace nccl_double;
  if (comm == nullptr || !comm->live) return misuse(comm, "ncclCommDestroy of no communicator");
  if (!comm->is_final || comm->state != ncclSuccess)
    return misuse(comm, "ncclCommDestroy before ncclCommFinalize is complete");
  comm->live = false;
  ++Double::instance().destroyed;
  return ncclSuccess;
}

inline ncclResult_t ncclCommAbort(ncclComm_t comm) {
  using namespace nccl_double;
  if (comm == nullptr || !comm->live) return misuse(comm, "ncclCommAbort of no communicator");
  comm->live = false;
  comm->steps.clear();
  ++Double::instance().aborted;
  return ncclSuccess;
}

inline ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  using namespace nccl_double;
  if (comm == nullptr || !comm->live)
    return misuse(comm, "ncclCommGetAsyncError of no communicator");
  if (comm->state == ncclSuccess && comm->has_late_error) {
    set_error(comm, ncclRemoteError, "injected after the call");
  }
  advance(comm);
  if (comm->state == ncclInProgress) ++Double::instance().in_progress;
  *state = comm->state;
  return ncclSuccess;
}

inline const char* ncclGetErrorString(ncclResult_t result) {
  constexpr const char* kTexts[] = {
      "no error",       "CUDA error",  "system error",           "internal error",
      "wrong argument", "wrong usage", "another process failed", "in progress"};
  return kTexts[result];
}

inline const char* ncclGetLastError(ncclComm_t comm) {
  return comm == nullptr ? "" : comm->error.c_str();
}

inline ncclResult_t ncclGroupStart() {
  ++nccl_double::Double::instance().depth;
  return ncclSuccess;
}

// The calls of a group start together, at its outermost end.
inline ncclResult_t ncclGroupEnd() {
  using namespace nccl_double;
  Double& d = Double::instance();
  if (d.depth == 0) return misuse(nullptr, "ncclGroupEnd without ncclGroupStart");
  if (--d.depth > 0) return ncclSuccess;
  ncclResult_t result = ncclSuccess;
  for (ncclComm* comm : std::exchange(d.group, {})) {
    comm->steps = std::exchange(comm->group, {});
    const ncclResult_t status = launch(comm, ++d.calls);
    if (result == ncclSuccess || result == ncclInProgress) result = status;
  }
  return result;
}

inline ncclResult_t ncclAllReduce(const void* in, void* out, std::size_t count, ncclDataType_t type,
                                  ncclRedOp_t, ncclComm_t comm, cudaStream_t stream) {
  return nccl_double::collective("ncclAllReduce", nccl_double::Function::all_reduce,
                                 {in, out, count}, type, 0, comm, stream);
}

inline ncclResult_t ncclReduceScatter(const void* in, void* out, std::size_t out_count,
                                      ncclDataType_t type, ncclRedOp_t, ncclComm_t comm,
                                      cudaStream_t stream) {
  const std::size_t pieces = comm == nullptr ? 1 : static_cast<std::size_t>(comm->ranks);
  return nccl_double::collective("ncclReduceScatter", nccl_double::Function::reduce_scatter,
                                 {in, out, out_count, pieces, 1}, type, 0, comm, stream);
}

inline ncclResult_t ncclAllGather(const void* in, void* out, std::size_t in_count,
                                  ncclDataType_t type, ncclComm_t comm, cudaStream_t stream) {
  const std::size_t pieces = comm == nullptr ? 1 : static_cast<std::size_t>(comm->ranks);
  return nccl_double::collective("ncclAllGather", nccl_double::Function::all_gather,
                                 {in, out, in_count, 1, pieces}, type, 0, comm, stream);
}

inline ncclResult_t ncclBroadcast(const void* in, void* out, std::size_t count, ncclDataType_t type,
                                  int root, ncclComm_t comm, cudaStream_t stream) {
  return nccl_double::collective("ncclBroadcast", nccl_double::Function::broadcast,
                                 {in, out, count}, type, root, comm, stream);
}

inline ncclResult_t ncclSend(const void* in, std::size_t count, ncclDataType_t type, int peer,
                             ncclComm_t comm, cudaStream_t stream) {
  return nccl_double::message("ncclSend", in, nullptr, count, type, peer, comm, stream);
}

inline ncclResult_t ncclRecv(void* out, std::size_t count, ncclDataType_t type, int peer,
                             ncclComm_t comm, cudaStream_t stream) {
  return nccl_double::message("ncclRecv", nullptr, out, count, type, peer, comm, stream);
}
