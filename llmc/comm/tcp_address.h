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

// The addresses of all network interfaces that are up, except loopback and link-local ones.
std::vector<std::string> interface_addresses();

}  // namespace tcp

}  // namespace llmc
