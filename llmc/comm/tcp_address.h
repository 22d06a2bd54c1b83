// Numeric addresses of this machine, such as 10.0.0.7 or 2001:db8::7.
#pragma once

#include <string>
#include <vector>

#include "llmc/comm/tcp_connection.h"

namespace llmc {

namespace tcp {

// The address of this end of a socket. An IPv4 address on an IPv6 socket is returned as IPv4.
std::string local_address(const Socket& socket);

// The port of this end of a socket.
int local_port(const Socket& socket);

// Whether only programs on the same machine reach this numeric address.
bool is_loopback(const std::string& address);

// A socket that other ranks can connect to; port 0: the system chooses one. If all ranks are on
// this machine, it listens only on the loopback interface. None: `error` has the reason.
Socket listen_for_ranks(bool is_one_machine, int port, std::string* error);

// The addresses of all network interfaces that are up, except loopback and link-local ones.
std::vector<std::string> interface_addresses();

// By which other machines may reach this one: `likely` first, without empty ones, then those of
// its interfaces, each once.
std::vector<std::string> addresses_after(const std::vector<std::string>& likely);

// The addresses at which to look for a rank that has these. On this machine, loopback comes first.
std::vector<std::string> addresses_to_try(std::vector<std::string> addresses, bool is_here);

}  // namespace tcp

}  // namespace llmc
