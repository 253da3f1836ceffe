#!/usr/bin/env python3
"""Links this network namespace with others, through packets that arrive later and slower.

Usage: packet-link.py PID ...   as root; `packet-link.py --check` only opens a device.

Link N leads to the namespace of the Nth process. This side has the address 10.77.N.1, that side
10.77.N.2. A line of JSON on stdin changes a link:
  {"link": 0, "delay": 0.05, "rate": 5000}   seconds and bytes per second of each direction; rate 0: no limit
  {"link": 0, "stalled": true}               packets wait, and none is lost, until "stalled": false
  {"link": 0, "reset": true}                 resets every TCP connection at both ends
The kernels at both ends speak TCP with each other: windows, Nagle's algorithm and delayed
acknowledgements see the round trip of the link.
"""
import ctypes, fcntl, json, os, select, socket, struct, subprocess, sys, time

TUNSETIFF, IFF_TUN, IFF_NO_PI, CLONE_NEWNET = 0x400454CA, 1, 0x1000, 0x40000000
FIN, SYN, RST, ACK = 1, 2, 4, 16
MOST_HELD = 64 << 20
LEAST_QUEUE = 16_384
libc = ctypes.CDLL(None, use_errno=True)


def open_tun(name):
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TUN | IFF_NO_PI))
    return tun


def enter(namespace):
    if libc.setns(namespace, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def make_end(name, address):
    tun = open_tun(name)
    for words in (f"addr add {address}/24 dev {name}", f"link set {name} txqueuelen 10000 up"):
        subprocess.run(["ip", *words.split()], check=True)
    return tun


def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def reset_packet(source, target, ports, sequence, acknowledged):
    tcp = lambda check: ports + struct.pack("!IIBBHHH", sequence, acknowledged, 5 << 4, RST | ACK, 0, check, 0)
    pseudo = source + target + struct.pack("!BBH", 0, socket.IPPROTO_TCP, 20)
    head = lambda check: struct.pack("!BBHHHBBH", 0x45, 0, 40, 0, 0, 64, socket.IPPROTO_TCP, check) + source + target
    return head(checksum(head(0))) + tcp(checksum(pseudo + tcp(0)))


class Direction:
    """Packets from one end to the other, in order."""

    def __init__(self, target):
        self.target = target
        self.queue, self.held, self.free_at, self.delay, self.rate = [], 0, 0.0, 0.0, 0
        self.flows = {}

    def take(self, packet, now):
        wait = max(0.0, self.free_at - now)
        if self.held > MOST_HELD or (self.rate and wait * self.rate > max(LEAST_QUEUE, self.rate)):
            return  # The queue of the slow link is full.
        self.free_at = now + wait + (len(packet) / self.rate if self.rate else 0)
        self.held += len(packet)
        self.queue.append((self.free_at + self.delay, packet))

    def deliver(self, now):
        done = 0
        for due, packet in self.queue:
            if due > now:
                break
            done += 1
            self.held -= len(packet)
            self.note(packet)
            try:
                os.write(self.target, packet)
            except OSError:
                pass  # A packet is lost, as on any link.
        del self.queue[:done]

    def note(self, packet):
        """Remembers which byte comes next, so that a reset is believed."""
        if packet[0] >> 4 != 4 or packet[9] != socket.IPPROTO_TCP:
            return
        at = (packet[0] & 15) * 4
        sequence, acknowledged = struct.unpack_from("!II", packet, at + 4)
        flags = packet[at + 13]
        length = len(packet) - at - (packet[at + 12] >> 4) * 4 + bool(flags & SYN) + bool(flags & FIN)
        key = (packet[12:16], packet[16:20], packet[at : at + 4])
        if flags & RST:
            self.flows.pop(key, None)
            return
        after = (sequence + length) & 0xFFFFFFFF
        before = self.flows.get(key)
        # A packet that is sent again is not what comes next.
        if before is None or ((after - before[0]) & 0xFFFFFFFF) < 0x80000000:
            self.flows[key] = (after, acknowledged)

    def reset(self):
        self.queue.clear()
        self.held = 0
        for (source, target, ports), (sequence, acknowledged) in self.flows.items():
            os.write(self.target, reset_packet(source, target, ports, sequence, acknowledged))
        self.flows.clear()


def main(pids):
    links, ways = [], {}
    for number, pid in enumerate(pids):
        here = os.open("/proc/self/ns/net", os.O_RDONLY)
        near = make_end(f"near{number}", f"10.77.{number}.1")
        there = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
        enter(there)
        far = make_end("far", f"10.77.{number}.2")
        enter(here)
        ways[near], ways[far] = Direction(far), Direction(near)
        links.append({"ways": (ways[near], ways[far]), "stalled": False})
    print("ready", flush=True)
    told = b""
    while True:
        awake = [way for link in links if not link["stalled"] for way in link["ways"]]
        due = min((way.queue[0][0] for way in awake if way.queue), default=None)
        wait = None if due is None else max(0.0, due - time.monotonic())
        readable, _, _ = select.select([sys.stdin, *ways], [], [], wait)
        now = time.monotonic()
        for file in readable:
            if file is sys.stdin:
                piece = os.read(0, 65_536)
                if not piece:
                    return
                *lines, told = (told + piece).split(b"\n")
                for line in lines:
                    change(links, json.loads(line))
                continue
            for _ in range(64):
                try:
                    ways[file].take(os.read(file, 65_536), now)
                except BlockingIOError:
                    break
        now = time.monotonic()
        for link in links:
            if not link["stalled"]:
                for way in link["ways"]:
                    way.deliver(now)


def change(links, told):
    link = links[told["link"]]
    link["stalled"] = told.get("stalled", link["stalled"])
    for way in link["ways"]:
        way.delay, way.rate = told.get("delay", way.delay), told.get("rate", way.rate)
        if told.get("reset"):
            way.reset()


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        open_tun("check")
    else:
        main(sys.argv[1:])
