"""Mooncake's transfer engine: one process reads from and writes to the memory of another."""

import ctypes
import sys

from mooncake.engine import TransferEngine

from ends import BYTES, ROLE, check, hear, pattern, tell

HOST = sys.argv[3]
engine = TransferEngine()
assert engine.initialize(HOST, "P2PHANDSHAKE", "rdma", "") == 0
memory = (ctypes.c_char * BYTES)()
address = ctypes.addressof(memory)
assert engine.register_memory(address, BYTES) == 0

if ROLE == "target":
    memory.raw = pattern(1)
    tell("peer", f"{HOST}:{engine.get_rpc_port()} {address}".encode())
    hear("done")
    check("written", memory.raw, 2)
else:
    peer, remote = hear("peer").decode().split()
    assert engine.transfer_sync_read(peer, address, int(remote), BYTES) == 0
    check("read", memory.raw, 1)
    memory.raw = pattern(2)
    assert engine.transfer_sync_write(peer, address, int(remote), BYTES) == 0
    tell("done", b"")
