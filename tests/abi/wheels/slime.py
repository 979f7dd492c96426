"""DLSlime: one process reads from and writes to the memory of another, and sends it a message."""

import ctypes
import json

from dlslime import RDMAEndpoint, available_nic

from ends import BYTES, ROLE, check, hear, pattern, tell

memory = (ctypes.c_char * BYTES)()
address = ctypes.addressof(memory)
if ROLE == "target":
    memory.raw = pattern(1)
endpoint = RDMAEndpoint(available_nic()[0], num_qp=2)
local = endpoint.register_memory_region("memory", address, 0, BYTES)
about = [endpoint.endpoint_info(), endpoint.mr_info()["memory"]]
tell(ROLE, json.dumps(about).encode())
peer = "initiator" if ROLE == "target" else "target"
connection, region = json.loads(hear(peer))
remote = endpoint.register_remote_memory_region("memory", region)
endpoint.connect(connection)
# Its own messages go to the other side's queues, and so not before both are connected.
tell(ROLE + " is connected", b"")
hear(peer + " is connected")

if ROLE == "target":
    hear("written")
    check("written", memory.raw, 2)
    memory.raw = bytes(BYTES)
    message = endpoint.recv((address, 0, BYTES))
    tell("receives", b"")
    message.wait()
    check("sent", memory.raw, 3)
    tell("received", b"")
else:
    endpoint.read([(local, remote, 0, 0, BYTES)]).wait()
    check("read", memory.raw, 1)
    memory.raw = pattern(2)
    endpoint.write([(local, remote, 0, 0, BYTES)]).wait()
    tell("written", b"")
    hear("receives")
    memory.raw = pattern(3)
    endpoint.send((address, 0, BYTES)).wait()
    hear("received")
