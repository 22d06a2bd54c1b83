#include "llmc/comm/tcp_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

namespace llmc {

namespace tcp {

namespace {

// A machine may have only one of them.
constexpr const char* kLoopback[] = {"127.0.0.1", "::1"};

// Room for an address of any family.
struct AnyAddress {
  sockaddr_storage storage{};
  sockaddr* general() { return reinterpret_cast<sockaddr*>(&storage); }
};

AnyAddress address_of(const Socket& socket) {
  AnyAddress address;
  socklen_t size = sizeof address.storage;
  getsockname(socket.descriptor(), address.general(), &size);
  return address;
}

// Empty for a family that is neither IPv4 nor IPv6.
std::string number_of(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof text);
  } else if (address->sa_family == AF_INET6) {
    const in6_addr& bytes = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
    if (IN6_IS_ADDR_V4MAPPED(&bytes)) {
      inet_ntop(AF_INET, &bytes.s6_addr[12], text, sizeof text);
    } else {
      inet_ntop(AF_INET6, &bytes, text, sizeof text);
    }
  }
  return text;
}

}  // namespace

std::string local_address(const Socket& socket) {
  return number_of(address_of(socket).general());
}

int local_port(const Socket& socket) {
  AnyAddress address = address_of(socket);
  return ntohs(address.storage.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6*>(address.general())->sin6_port
                   : reinterpret_cast<const sockaddr_in*>(address.general())->sin_port);
}

bool is_loopback(const std::string& address) {
  return address == "::1" || address.starts_with("127.");
}

Socket listen_for_ranks(bool is_one_machine, int port, std::string* error) {
  if (!is_one_machine) return listen_on("", port, error);
  Socket listener;
  for (const char* name : kLoopback) {
    if (!listener.is_open()) listener = listen_on(name, port, error);
  }
  return listener;
}

std::vector<std::string> interface_addresses() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(first, &freeifaddrs);
  std::vector<std::string> addresses;
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    const bool is_usable = entry->ifa_addr != nullptr && (entry->ifa_flags & IFF_UP) != 0 &&
                           (entry->ifa_flags & IFF_LOOPBACK) == 0;
    const std::string address = is_usable ? number_of(entry->ifa_addr) : "";
    const bool is_link_local = address.starts_with("fe80:") || address.starts_with("169.254.");
    if (!address.empty() && !is_link_local) addresses.push_back(address);
  }
  return addresses;
}

std::vector<std::string> addresses_after(const std::vector<std::string>& likely) {
  std::vector<std::string> addresses;
  for (const auto& list : {likely, interface_addresses()}) {
    for (const std::string& address : list) {
      const bool is_new = std::ranges::find(addresses, address) == addresses.end();
      if (is_new && !address.empty()) addresses.push_back(address);
    }
  }
  return addresses;
}

std::vector<std::string> addresses_to_try(std::vector<std::string> addresses, bool is_here) {
  if (is_here) addresses.insert(addresses.begin(), std::begin(kLoopback), std::end(kLoopback));
  return addresses;
}

}  // namespace tcp

}  // namespace llmc
