#include "llmc/comm/tcp_connector.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "llmc/base/checksum.h"
#include "llmc/base/error.h"
#include "llmc/base/number_text.h"
#include "llmc/base/random_bits.h"
#include "llmc/base/text_list.h"
#include "llmc/comm/compare_ranks.h"
#include "llmc/comm/tcp_address.h"

namespace llmc {

namespace tcp {

namespace {

constexpr std::chrono::milliseconds kPoll{20};
constexpr std::chrono::seconds kGreetingTime{10};  // for a connection to greet
constexpr std::size_t kMaxArrivals = 256;          // that have not greeted yet

void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

void require_descriptors(const std::string& error) {
  if (error != std::strerror(EMFILE) && error != std::strerror(ENFILE)) return;
  fail("ranks cannot be connected by TCP: " + error,
       "allow more open files (ulimit -n); a rank needs about 5 for each other rank");
}

// Reads as far as bytes have arrived, without bytes after the greeting. False if the other end
// closed the connection.
bool read_greeting(const Socket& socket, Greeting& greeting, std::size_t& size) {
  auto* const bytes = reinterpret_cast<unsigned char*>(&greeting);
  const ssize_t count =
      ::recv(socket.descriptor(), bytes + size, sizeof greeting - size, MSG_DONTWAIT);
  if (count > 0) size += static_cast<std::size_t>(count);
  return count > 0 || (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR));
}

// The few bytes always fit into an empty buffer.
void send_greeting(const Socket& socket, const Greeting& greeting) {
  static_cast<void>(
      ::send(socket.descriptor(), &greeting, sizeof greeting, MSG_NOSIGNAL | MSG_DONTWAIT));
}

// The place of a rank, which is known before it listens.
struct Host {
  std::string machine, address;
};

std::vector<Host> gather_hosts(Bootstrap& ranks) {
  std::vector<Host> hosts;
  for (const std::string& packed :
       ranks.all_gather(pack_texts({machine_text(), ranks.address()}))) {
    const std::vector<std::string> parts = unpack_texts(packed);
    require(parts.size() == 2, "a rank has sent something else than its address");
    hosts.push_back({parts[0], parts[1]});
  }
  return hosts;
}

}  // namespace

Connector::Connector(Bootstrap& ranks, std::chrono::milliseconds deadline)
    : rank_(ranks.places().rank), deadline_(deadline) {
  raise_descriptor_limit();
  const std::vector<Host> hosts = gather_hosts(ranks);
  const std::string machine = hosts[static_cast<std::size_t>(rank_)].machine;
  const bool is_one_machine =
      std::ranges::all_of(hosts, [&](const Host& host) { return host.machine == machine; });
  listen(is_one_machine);
  std::vector<std::string> likely = {hosts[static_cast<std::size_t>(rank_)].address};
  for (const Host& host : hosts) {
    if (host.machine == machine) likely.push_back(host.address);
  }
  const std::vector<std::string> addresses =
      is_one_machine ? std::vector{local_address(listener_)} : addresses_after(likely);
  std::ranges::generate(key_, random_bits);
  const std::string key(reinterpret_cast<const char*>(key_.data()), sizeof key_);
  const std::vector<std::string> all =
      ranks.all_gather(pack_texts({key, machine, std::to_string(port()), pack_texts(addresses)}));
  for (const std::string& packed : all) {
    const std::vector<std::string> parts = unpack_texts(packed);
    require(parts.size() == 4 && parts[0].size() == sizeof key_,
            "a rank has sent something else than its port");
    if (places_.empty()) std::memcpy(key_.data(), parts[0].data(), sizeof key_);
    places_.push_back({parts[1], std::stoi(parts[2]), unpack_texts(parts[3])});
    if (!places_.back().addresses.empty()) continue;
    fail_together("rank " + std::to_string(places_.size() - 1) +
                      " has no address that other machines can reach",
                  "connect its machine to a network; or start all ranks on one machine");
  }
}

int Connector::port() const {
  return local_port(listener_);
}

void Connector::listen(bool is_one_machine) {
  std::string error;
  listener_ = listen_for_ranks(is_one_machine, 0, &error);
  if (!listener_.is_open()) fail("this rank cannot listen on a TCP port: " + error);
  fcntl(listener_.descriptor(), F_SETFL, O_NONBLOCK);
}

std::vector<Socket> Connector::connect(const std::string& name, const std::vector<int>& members,
                                       Bootstrap& ranks) {
  const std::uint64_t group = next_group(name, members);
  std::vector<Socket> sockets(members.size());
  std::vector<Dial> dials;
  std::vector<std::size_t> higher;  // members that connect to this rank
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (members[i] < rank_) dials.push_back({.member = i});
    if (members[i] > rank_) higher.push_back(i);
  }
  const auto end = std::chrono::steady_clock::now() + deadline_;
  std::string error;
  for (;;) {
    accept();
    greet_arrivals();
    std::erase_if(higher, [&](std::size_t member) {
      auto node = greeted_.extract({members[member], group});
      if (!node.empty()) sockets[member] = std::move(node.mapped());
      return !node.empty();
    });
    std::erase_if(dials, [&](Dial& dial) {
      if (!answers(dial, greeting_to(members[dial.member], group), error)) return false;
      sockets[dial.member] = std::move(dial.socket);
      return true;
    });
    if (dials.empty() && higher.empty()) return sockets;
    ranks.check();
    if (std::chrono::steady_clock::now() >= end) break;
    wait(dials);
  }
  std::vector<int> missing;
  for (const Dial& dial : dials) missing.push_back(members[dial.member]);
  for (const std::size_t member : higher) missing.push_back(members[member]);
  std::ranges::sort(missing);
  fail("group '" + name + "': " + rank_list(missing) + " did not connect to rank " +
       std::to_string(rank_) + " within " + seconds_text(deadline_) +
       (error.empty() ? "" : ": " + error));
}

void Connector::accept() {
  for (;;) {
    Socket socket(::accept4(listener_.descriptor(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket.is_open()) return require_descriptors(std::strerror(errno));
    if (arrivals_.size() == kMaxArrivals) arrivals_.erase(arrivals_.begin());
    arrivals_.push_back(
        {std::move(socket), {}, 0, std::chrono::steady_clock::now() + kGreetingTime});
  }
}

void Connector::greet_arrivals() {
  const auto now = std::chrono::steady_clock::now();
  std::erase_if(arrivals_, [&](Arrival& arrival) {
    if (!read_greeting(arrival.socket, arrival.greeting, arrival.size)) return true;
    if (arrival.size < sizeof(Greeting)) return now >= arrival.end;
    const Greeting& greeting = arrival.greeting;
    const int from = greeting.from;
    const bool is_rank = from > rank_ && from < static_cast<int>(places_.size());
    Greeting expected = greeting_to(from, greeting.group);
    std::swap(expected.from, expected.to);
    if (!is_rank || greeting != expected || greeted_.contains({from, greeting.group})) return true;
    send_greeting(arrival.socket, greeting_to(from, greeting.group));
    greeted_.emplace(std::pair(from, greeting.group), std::move(arrival.socket));
    return true;
  });
}

bool Connector::answers(Dial& dial, const Greeting& own, std::string& error) {
  const Place& place = places_[static_cast<std::size_t>(own.to)];
  if (!dial.socket.is_open()) {
    const bool is_here = place.machine == places_[static_cast<std::size_t>(rank_)].machine;
    const std::vector<std::string> addresses = addresses_to_try(place.addresses, is_here);
    const std::string address = addresses[dial.attempt++ % addresses.size()];
    dial.socket = connect_to(address, place.port, &error);
    dial.size = 0;
    if (!dial.socket.is_open()) {
      require_descriptors(error);
      return false;
    }
    send_greeting(dial.socket, own);
  }
  Greeting expected = own;
  std::swap(expected.from, expected.to);
  const bool is_open = read_greeting(dial.socket, dial.answer, dial.size);
  const bool is_complete = dial.size == sizeof(Greeting);
  if (is_complete && dial.answer == expected) return true;
  if (!is_open || is_complete) {
    error = "the connection was refused by the program at the other end";
    dial.socket.close();
  }
  return false;
}

void Connector::wait(const std::vector<Dial>& dials) const {
  std::vector<pollfd> entries = {{listener_.descriptor(), POLLIN, 0}};
  for (const Arrival& arrival : arrivals_) {
    entries.push_back({arrival.socket.descriptor(), POLLIN, 0});
  }
  for (const Dial& dial : dials) entries.push_back({dial.socket.descriptor(), POLLIN, 0});
  ::poll(entries.data(), entries.size(), static_cast<int>(kPoll.count()));
}

std::uint64_t Connector::next_group(const std::string& name, const std::vector<int>& members) {
  std::vector<std::string> texts = {name};
  for (const int member : members) texts.push_back(std::to_string(member));
  const std::string text = pack_texts(texts);
  return checksum_of(text + std::to_string(num_groups_[text]++));
}

Greeting Connector::greeting_to(int other, std::uint64_t group) const {
  return {.key = key_, .group = group, .from = rank_, .to = other};
}

}  // namespace tcp

}  // namespace llmc
