// One communication of the test double: ranks compare descriptors of their calls before they move
// data. Sums are added in ascending order of ranks.
#pragma once

#include <cstring>

#include "llmc/comm/sum_elements.h"
#include "test/nccl_double/state.h"

namespace nccl_double {

enum class Function : std::int32_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  message,
  finalize
};

inline llmc::Element element_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt64:
      return llmc::Element::int64;
    case ncclFloat16:
      return llmc::Element::fp16;
    case ncclFloat32:
      return llmc::Element::fp32;
    case ncclBfloat16:
      return llmc::Element::bf16;
    default:
      return llmc::Element::byte;
  }
}

// The ranks of a call must have equal descriptors.
struct Descriptor {
  Function function = Function::finalize;
  llmc::Element element = llmc::Element::byte;
  std::int64_t count = 0, number = 0;
  std::int64_t root = 0;
  std::int64_t depth = 0;  // of the open groups, for a collective

  bool operator==(const Descriptor&) const = default;
  std::string text() const {
    constexpr const char* kNames[] = {"all-reduce", "reduce-scatter", "all-gather",
                                      "broadcast",  "message",        "finalize"};
    return std::string(kNames[static_cast<int>(function)]) + " " + std::to_string(number) + " of " +
           std::to_string(count) + " " + llmc::element_name(element) + ", root " +
           std::to_string(root) + ", in " + std::to_string(depth) + " groups";
  }
};

class Exchange {
 public:
  // `peer` of a message; -1 for a collective. `sends` is false for the receiver of a message.
  Exchange(ncclComm* comm, const Descriptor& mine, const void* in, void* out, int peer, bool sends)
      : comm_(comm),
        mine_(mine),
        in_(static_cast<const char*>(in)),
        out_(static_cast<char*>(out)),
        peer_(peer),
        sends_(sends),
        theirs_(static_cast<std::size_t>(comm->ranks)),
        data_(static_cast<std::size_t>(comm->ranks)) {}

  // Starts a message that its sender's stream holds. It is copied, because the host's streams do
  // not wait for it, and sent before the receiver calls: the sender may not poll at that time.
  void start_in_stream() {
    message_.assign(in_, in_ + bytes());
    in_ = message_.data();
    exchange_descriptors();
    move_data();
    stage_ = 2;
    is_in_stream_ = true;
  }

  // Whether the call is complete; does not wait.
  bool advance() {
    if (stage_ == 0) {
      exchange_descriptors();
      stage_ = 1;
    }
    if (stage_ == 1) {
      if (!requests_.complete()) return false;
      if (!compare()) return true;
      move_data();
      stage_ = 2;
    }
    if (is_in_stream_ && (!requests_.complete() || !compare())) return false;
    if (!data_requests_.complete()) return false;
    add();
    return true;
  }

 private:
  template <class Use>
  void for_each_other(const Use& use) const {
    for (int rank = 0; rank < comm_->ranks; ++rank) {
      if (rank != comm_->rank && (peer_ < 0 || rank == peer_)) use(rank);
    }
  }

  void exchange_descriptors() {
    const Kind from_me = peer_ < 0 ? kDescriptor : sends_ ? kFromSender : kFromReceiver;
    const Kind to_me = peer_ < 0 ? kDescriptor : sends_ ? kFromReceiver : kFromSender;
    for_each_other([&](int rank) {
      requests_.receive(comm_, &theirs_[rank], sizeof(Descriptor), rank,
                        tag_of(to_me, mine_.number));
      requests_.send(comm_, &mine_, sizeof mine_, rank, tag_of(from_me, mine_.number));
    });
  }

  bool compare() {
    bool equal = true;
    for_each_other([&](int rank) {
      if (!equal || theirs_[rank] == mine_) return;
      equal = false;
      set_error(comm_, ncclInvalidUsage,
                "rank " + std::to_string(comm_->rank) + " calls " + mine_.text() + "; rank " +
                    std::to_string(rank) + " calls " + theirs_[rank].text());
    });
    return equal;
  }

  std::size_t bytes() const {
    return static_cast<std::size_t>(mine_.count * llmc::element_size(mine_.element));
  }

  void send(const char* data, int rank) {
    data_requests_.send(comm_, data, bytes(), rank,
                        tag_of(peer_ < 0 ? kData : kMessage, mine_.number));
  }
  void receive(char* data, int rank) {
    data_requests_.receive(comm_, data, bytes(), rank,
                           tag_of(peer_ < 0 ? kData : kMessage, mine_.number));
  }

  void move_data() {
    const int root = static_cast<int>(mine_.root);
    const bool is_root = comm_->rank == root;
    for_each_other([&](int rank) {
      switch (mine_.function) {
        case Function::all_reduce:
        case Function::reduce_scatter:
          data_[rank].resize(bytes());
          receive(data_[rank].data(), rank);
          send(mine_.function == Function::all_reduce ? in_ : in_ + rank * bytes(), rank);
          break;
        case Function::all_gather:
          receive(out_ + rank * bytes(), rank);
          send(in_, rank);
          break;
        case Function::broadcast:
          if (is_root) send(in_, rank);
          if (rank == root) receive(out_, rank);
          break;
        case Function::message:
          sends_ ? send(in_, rank) : receive(out_, rank);
          break;
        case Function::finalize:
          break;
      }
    });
    if (mine_.function == Function::all_gather)
      std::memmove(out_ + comm_->rank * bytes(), in_, bytes());
    if (mine_.function == Function::broadcast && is_root) std::memmove(out_, in_, bytes());
  }

  void add() {
    const bool scatters = mine_.function == Function::reduce_scatter;
    if (mine_.function != Function::all_reduce && !scatters) return;
    std::vector<const void*> arrays;
    for (int rank = 0; rank < comm_->ranks; ++rank) {
      const char* const own = scatters ? in_ + rank * bytes() : in_;
      arrays.push_back(rank == comm_->rank ? own : data_[rank].data());
    }
    llmc::sum_elements(mine_.element, out_, arrays, mine_.count);
  }

  ncclComm* comm_;
  Descriptor mine_;
  const char* in_;
  char* out_;
  int peer_;
  bool sends_;
  int stage_ = 0;
  bool is_in_stream_ = false;
  std::vector<char> message_;
  std::vector<Descriptor> theirs_;
  std::vector<std::vector<char>> data_;
  Requests requests_, data_requests_;
};

}  // namespace nccl_double
