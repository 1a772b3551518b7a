"""One publisher on one node, many subscribers on another: what a delivery across nodes costs each process.

The same load for servers of two protocols: bare sockets that count messages and parse none. It prints one JSON object.
"""

import argparse
import json
import os
import selectors
import socket
import struct
import sys
import time

# A message is counted by the name of this member of its data.
MARK = b'"bench":'
# The processor time in /proc counts in these.
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
DRAIN_S_MAX = 10
# Publications that have not yet reached all subscribers, in a run without a rate.
WINDOW = 1000


class WebSocket:
    """A WebSocket whose frames are sent masked with zeros, and whose received bytes are only searched."""

    def __init__(self, address, path):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(
            f"GET {path} HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        self.tail = b""
        self.text = self.read_until(b"\r\n\r\n").split(b"\r\n\r\n", 1)[1]

    def send(self, text):
        data = text.encode()
        length = len(data)
        head = bytes([0x81, 0x80 | length]) if length < 126 else b"\x81" + struct.pack(">BH", 0x80 | 126, length)
        self.socket.sendall(head + b"\0\0\0\0" + data)

    def read_until(self, part):
        """Reads until these bytes have come, and returns all that has come."""
        text = getattr(self, "text", b"")
        while part not in text:
            more = self.socket.recv(65536)
            if not more:
                sys.exit(f"the server closed the connection instead of sending {part!r}: {text[:300]!r}")
            text += more
        self.text = b""
        return text

    def count(self):
        """Reads once, and returns the number of messages."""
        more = self.socket.recv(1 << 20)
        if not more:
            sys.exit("the server closed a connection")
        found = (self.tail + more).count(MARK)
        self.tail = more[-(len(MARK) - 1) :]
        return found


class Encke:
    """Bayeux over WebSocket."""

    path = "/cometd"

    def open(self, connection):
        connection.send('[{"channel":"/meta/handshake","id":"h","version":"1.0","supportedConnectionTypes":["websocket"]}]')
        text = connection.read_until(b'"successful":true')
        self.session = text.split(b'"clientId":"', 1)[1].split(b'"', 1)[0].decode()

    def subscribe(self, connection):
        self.open(connection)
        connection.send(
            f'[{{"channel":"/meta/subscribe","id":"s","clientId":"{self.session}","subscription":"/bench"}},'
            f'{{"channel":"/meta/connect","id":"c","clientId":"{self.session}","connectionType":"websocket","advice":{{"timeout":0}}}}]'
        )
        connection.read_until(b'"id":"c"')
        connection.send(f'[{{"channel":"/meta/connect","clientId":"{self.session}","connectionType":"websocket"}}]')

    def begin_publishing(self, connection):
        self.open(connection)

    def publication(self, number, data):
        return f'[{{"channel":"/bench","clientId":"{self.session}","data":{data},"ext":{{"reply":false}}}}]'


class Centrifugo:
    """Centrifugo's JSON protocol over WebSocket."""

    path = "/connection/websocket"

    def subscribe(self, connection):
        connection.send('{"id":1,"connect":{}}\n{"id":2,"subscribe":{"channel":"bench"}}')
        connection.read_until(b'"id":2,"subscribe"')

    def begin_publishing(self, connection):
        connection.send('{"id":1,"connect":{}}')
        connection.read_until(b'"id":1,"connect"')

    def publication(self, number, data):
        # Without an id there is no reply.
        return f'{{"id":{number + 2},"publish":{{"channel":"bench","data":{data}}}}}'


def cpu_s(pid):
    """The processor time of a process, in seconds."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--server", choices=["encke", "centrifugo"], required=True)
    options.add_argument("--subscribe-at", metavar="HOST:PORT", required=True)
    options.add_argument("--publish-at", metavar="HOST:PORT", required=True)
    options.add_argument("--clients", type=int, default=100)
    options.add_argument("--rate", type=float, default=200, help="publications a second; 0 is as many as arrive, with up to WINDOW on their way")
    options.add_argument("--seconds", type=float, default=10)
    options.add_argument("--pids", default="", help="processes whose time is measured, with commas")
    options = options.parse_args()
    pids = [int(pid) for pid in options.pids.split(",") if pid]
    protocol = {"encke": Encke, "centrifugo": Centrifugo}[options.server]()
    selector = selectors.DefaultSelector()
    for _ in range(options.clients):
        connection = WebSocket(options.subscribe_at, protocol.path)
        protocol.subscribe(connection)
        connection.socket.setblocking(False)
        selector.register(connection.socket, selectors.EVENT_READ, connection)
    publisher = WebSocket(options.publish_at, protocol.path)
    protocol.begin_publishing(publisher)
    publisher.socket.setblocking(False)

    def turn(wait_s):
        return sum(key.data.count() for key, _ in selector.select(wait_s))

    # The way between the nodes is known when a message of each has come.
    warm = 0
    while warm < options.clients:
        publisher.send(protocol.publication(0, '{"bench":0}'))
        warm += turn(0.2)
    quiet_since = time.monotonic()
    while time.monotonic() - quiet_since < 1:
        if turn(0.1):
            quiet_since = time.monotonic()
    before, began = [cpu_s(pid) for pid in pids], time.monotonic()
    sent = delivered = 0
    while (elapsed_s := time.monotonic() - began) < options.seconds:
        due = int(elapsed_s * options.rate) + 1 if options.rate else delivered // options.clients + WINDOW
        while sent < due:
            sent += 1
            publisher.send(protocol.publication(sent, f'{{"bench":{sent},"text":"{"x" * 30}"}}'))
        try:
            publisher.socket.recv(1 << 16)
        except BlockingIOError:
            pass
        delivered += turn(0.001)
    ended = time.monotonic()
    expected = sent * options.clients
    while delivered < expected and time.monotonic() - ended < DRAIN_S_MAX:
        delivered += turn(0.1)
    used = [round(cpu_s(pid) - start, 2) for pid, start in zip(pids, before)]
    result = {"expected": expected, "delivered": delivered, "seconds": round(time.monotonic() - began, 2), "cpu_s": used}
    print(json.dumps(result))
    sys.exit(0 if delivered == expected else 1)


main()
