"""NIXL: one agent reads from and writes to the memory of another, over UCX."""

import numpy
from nixl_cu12._api import nixl_agent, nixl_agent_config

from ends import BYTES, ROLE, check, hear, pattern, tell

agent = nixl_agent(ROLE, nixl_agent_config(backends=["UCX"]))
memory = numpy.zeros(BYTES, dtype=numpy.uint8)
if ROLE == "target":
    memory[:] = numpy.frombuffer(pattern(1), dtype=numpy.uint8)
address = memory.ctypes.data
agent.register_memory([(address, BYTES, 0, "")], "DRAM")

if ROLE == "target":
    tell("agent", agent.get_agent_metadata())
    tell("address", str(address).encode())
    hear("done")
    check("written", memory, 2)
else:
    agent.add_remote_agent(hear("agent"))
    local = agent.get_xfer_descs([(address, BYTES, 0)], "DRAM")
    remote = agent.get_xfer_descs([(int(hear("address")), BYTES, 0)], "DRAM")

    def transfer(operation):
        request = agent.initialize_xfer(operation, local, remote, "target")
        state = agent.transfer(request)
        while state == "PROC":
            state = agent.check_xfer_state(request)
        assert state == "DONE", state
        agent.release_xfer_handle(request)

    transfer("READ")
    check("read", memory, 1)
    memory[:] = numpy.frombuffer(pattern(2), dtype=numpy.uint8)
    transfer("WRITE")
    tell("done", b"")
