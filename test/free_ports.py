"""Ports for programs that tests start."""
import random
import socket


def is_free(port):
    try:
        socket.create_server(("", port)).close()
    except OSError:
        return False
    return True


def free_ports(count):
    """Consecutive ports. They lie below those that the system gives to connections, which could take them before the
    programs do."""
    while True:
        ports = range(first := random.SystemRandom().randrange(10_000, 30_000), first + count)
        if all(is_free(port) for port in ports):
            return list(ports)


def master_port():
    """MASTER_PORT. With torchrun's variables, ranks take the port after it."""
    return free_ports(2)[0]
