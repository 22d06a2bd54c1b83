// Collectives through host memory, over any transport: each piece of an operand is copied to the
// host, exchanged, and copied back. It works on every device, and for several ranks on one GPU.
// Sums are added in ascending order of ranks, so their bits do not depend on the transport.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "llmc/comm/communicator.h"
#include "llmc/comm/sum_elements.h"
#include "llmc/comm/transport.h"
#include "llmc/device/memory.h"

namespace llmc {

class StagedCommunicator final : public Communicator {
 public:
  StagedCommunicator(std::string name, std::unique_ptr<Transport> transport)
      : Communicator(std::move(name), transport->rank(), transport->ranks()),
        transport_(std::move(transport)) {}
  bool occupies_host() const override { return true; }

 private:
  // Bytes of one rank's piece that are in host memory at a time, a multiple of every element size.
  static constexpr std::int64_t kChunk = std::int64_t{1} << 18;

  // An operand as equal pieces, one per rank. In an all-reduce the last pieces may be shorter.
  struct Pieces {
    std::int64_t bytes, piece;  // of the operand, of the first piece

    // The bytes [first, first + size) of each piece of the operand, as far as they exist.
    std::int64_t begin(int rank, std::int64_t first) const { return rank * piece + first; }
    std::int64_t size(int rank, std::int64_t first) const {
      const std::int64_t end = std::min(bytes, (rank + 1) * piece);
      return std::clamp<std::int64_t>(end - begin(rank, first), 0, kChunk);
    }
  };

  Pieces pieces_of(const CommCall& call) const {
    const std::int64_t size = element_size(call.element);
    return {call.count * size, ceil_div(call.count, std::int64_t{ranks()}) * size};
  }

  void do_all_reduce(const CommCall& call, void* values, Stream& stream) override {
    const Pieces pieces = pieces_of(call);
    auto* const bytes = static_cast<unsigned char*>(values);
    reduce(call, pieces, bytes + pieces.begin(rank(), 0), bytes, stream);
    gather(call, pieces, bytes, bytes + pieces.begin(rank(), 0), stream);
  }
  void do_reduce_scatter(const CommCall& call, void* out, const void* in, Stream& stream) override {
    reduce(call, pieces_of(call), static_cast<unsigned char*>(out),
           static_cast<const unsigned char*>(in), stream);
  }
  void do_all_gather(const CommCall& call, void* out, const void* in, Stream& stream) override {
    gather(call, pieces_of(call), static_cast<unsigned char*>(out),
           static_cast<const unsigned char*>(in), stream);
  }

  // out: this rank's piece of the sum of `in`.
  void reduce(const CommCall& call, const Pieces& pieces, unsigned char* out,
              const unsigned char* in, Stream& stream) {
    for (std::int64_t first = 0; first < pieces.piece; first += kChunk) {
      for (int to = 0; to < ranks(); ++to) {
        copy_to_host(outgoing(to), in + pieces.begin(to, first), pieces.size(to, first), stream);
      }
      const std::int64_t mine = pieces.size(rank(), first);
      run_on_host(stream, [=, this] {
        exchange(
            call,
            [&](int to) {
              return Part{outgoing(to), pieces.size(to, first)};
            },
            [&](int from) {
              return Part{incoming(from), mine};
            });
        std::vector<const void*> contributions;
        for (int from = 0; from < ranks(); ++from) {
          contributions.push_back(from == rank() ? outgoing(from) : incoming(from));
        }
        sum_elements(call.element, incoming(rank()), contributions,
                     mine / element_size(call.element));
      });
      copy_to_device(out + first, static_cast<const unsigned char*>(incoming(rank())), mine,
                     stream);
    }
  }

  // out: `in` of all ranks.
  void gather(const CommCall& call, const Pieces& pieces, unsigned char* out,
              const unsigned char* in, Stream& stream) {
    for (std::int64_t first = 0; first < pieces.piece; first += kChunk) {
      const std::int64_t mine = pieces.size(rank(), first);
      copy_to_host(incoming(rank()), in + first, mine, stream);
      run_on_host(stream, [=, this] {
        exchange(
            call,
            [&](int) {
              return Part{incoming(rank()), mine};
            },
            [&](int from) {
              return Part{incoming(from), pieces.size(from, first)};
            });
      });
      for (int from = 0; from < ranks(); ++from) {
        copy_to_device(out + pieces.begin(from, first),
                       static_cast<const unsigned char*>(incoming(from)), pieces.size(from, first),
                       stream);
      }
    }
  }

  // The root gets an empty answer from every rank, so ranks with different roots notice it.
  void do_broadcast(const CommCall& call, void* values, Stream& stream) override {
    auto* const bytes = static_cast<unsigned char*>(values);
    const std::int64_t total = call.count * element_size(call.element);
    const int root = static_cast<int>(call.root);
    for (std::int64_t first = 0; first < total; first += kChunk) {
      const std::int64_t size = std::min(kChunk, total - first);
      unsigned char* const staged = incoming(rank());
      if (root == rank()) copy_to_host(staged, bytes + first, size, stream);
      run_on_host(stream, [=, this] {
        const Part data{staged, size}, nothing{};
        if (root == rank()) {
          exchange(
              call, [&](int) { return data; }, [&](int) { return nothing; });
        } else {
          exchange_with(root, call, nothing, data);
        }
      });
      if (root != rank()) copy_to_device(bytes + first, staged, size, stream);
    }
  }

  void do_barrier(const CommCall& call, Stream& stream) override {
    run_on_host(stream, [=, this] {
      const auto nothing = [](int) { return Part{}; };
      exchange(call, nothing, nothing);
    });
  }

  void do_send(const CommCall& call, const void* values, int to, Stream& stream) override {
    for_each_outgoing_part(call, values, to, stream, [this, call](const Outgoing& part) {
      transport_->exchange(call, {&part, 1}, {});
    });
  }
  void do_post(const CommCall& call, const void* values, int to, Stream& stream) override {
    for_each_outgoing_part(call, values, to, stream,
                           [this, call](const Outgoing& part) { transport_->post(call, part); });
  }
  void do_receive(const CommCall& call, void* values, int from, Stream& stream) override {
    auto* const bytes = static_cast<unsigned char*>(values);
    for_each_message_part(call, [&](std::int64_t first, std::int64_t size) {
      unsigned char* const staged = incoming(from);
      run_on_host(stream, [=, this] {
        const Incoming receive = Part{staged, size}.from(from);
        transport_->exchange(call, {}, {&receive, 1});
      });
      copy_to_device(bytes + first, static_cast<const unsigned char*>(staged), size, stream);
    });
  }

  // Calls send(part) on the host with each part of a message, when the stream reaches it.
  template <class Send>
  void for_each_outgoing_part(const CommCall& call, const void* values, int to, Stream& stream,
                              const Send& send) {
    const auto* const bytes = static_cast<const unsigned char*>(values);
    for_each_message_part(call, [&](std::int64_t first, std::int64_t size) {
      unsigned char* const staged = outgoing(to);
      copy_to_host(staged, bytes + first, size, stream);
      run_on_host(stream, [=] { send(Part{staged, size}.to(to)); });
    });
  }

  // A message without elements has one part, which is empty.
  template <class Use>
  static void for_each_message_part(const CommCall& call, Use&& use) {
    const std::int64_t total = call.count * element_size(call.element);
    std::int64_t first = 0;
    do {
      use(first, std::min(kChunk, total - first));
      first += kChunk;
    } while (first < total);
  }

  // A part of an operand in host memory.
  struct Part {
    unsigned char* data = nullptr;
    std::int64_t bytes = 0;

    Outgoing to(int rank) const { return {rank, data, static_cast<std::size_t>(bytes)}; }
    Incoming from(int rank) const { return {rank, data, static_cast<std::size_t>(bytes)}; }
  };

  void exchange_with(int other, const CommCall& call, const Part& out, const Part& in) {
    const Outgoing send = out.to(other);
    const Incoming receive = in.from(other);
    transport_->exchange(call, {&send, 1}, {&receive, 1});
  }

  // The same with every other rank: out(rank) and in(rank) are its parts.
  template <class Out, class In>
  void exchange(const CommCall& call, const Out& out, const In& in) {
    std::vector<Outgoing> sends;
    std::vector<Incoming> receives;
    for (int other = 0; other < ranks(); ++other) {
      if (other == rank()) continue;
      sends.push_back(out(other).to(other));
      receives.push_back(in(other).from(other));
    }
    transport_->exchange(call, sends, receives);
  }

  // Host memory for a chunk to and from each rank.
  unsigned char* outgoing(int rank) { return staging_.data() + rank * kChunk; }
  unsigned char* incoming(int rank) { return staging_.data() + (ranks() + rank) * kChunk; }

  std::unique_ptr<Transport> transport_;
  PinnedBuffer<unsigned char> staging_{2 * ranks() * kChunk};
};

}  // namespace llmc
