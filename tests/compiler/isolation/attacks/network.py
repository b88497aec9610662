"""Attacks through the network and sockets."""

import socket
from typing import Any

from tests.compiler.isolation.attacks.scene import Scene, attack


@attack
def connect_by_tcp(scene: Scene) -> Any:
    return socket.create_connection(("127.0.0.1", scene.tcp), timeout=5)


@attack
def send_by_udp(scene: Scene) -> Any:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        return sender.sendto(b"x", ("127.0.0.1", scene.udp))


@attack
def listen_by_tcp(scene: Scene) -> Any:
    return socket.create_server(("0.0.0.0", 0))


@attack
def open_a_raw_socket(scene: Scene) -> Any:
    return socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)


@attack
def connect_to_a_socket_file(scene: Scene) -> Any:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(scene.outside / "stream"))
        return True


@attack
def send_from_a_pair_to_a_socket_file(scene: Scene) -> Any:
    one, _other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    return one.sendto(b"x", str(scene.outside / "datagrams"))


@attack
def connect_to_an_abstract_socket(scene: Scene) -> Any:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect("\0" + scene.abstract)
        return True
