"""PeerCache: one process stores pages that the other reads out of its memory, and is written to."""

import ctypes
import json
import sys
import time

from peercache.store import PeerCacheStore
from peercache.transport import RdmaTransport

from ends import BYTES, ROLE, check, hear, pattern, tell

PAGES = 64
SIZES = [BYTES // PAGES] * PAGES


class Pool:
    """Memory as the store takes it: a tensor is not needed."""

    def __init__(self):
        self.kv_buffer = self
        self.memory = (ctypes.c_char * BYTES)()

    def data_ptr(self):
        return ctypes.addressof(self.memory)

    def numel(self):
        return BYTES

    def element_size(self):
        return 1


pool = Pool()
store = PeerCacheStore(extra={
    "discovery_addr": sys.argv[3],
    "local_hostname": "127.0.0.1",
    "protocol": "rdma",
    "global_segment_size": 2 * BYTES,
    "heartbeat_interval": 0.2,
    "disk_enabled": False,
    "metrics_enabled": False,
})
transport = store.runtime.transport
# It turns to TCP by itself where RDMA fails.
assert isinstance(transport, RdmaTransport), transport
store.register_mem_pool_host(pool)
region = transport.register_mr(pool.data_ptr(), BYTES)
keys = [f"page {number}" for number in range(PAGES)]
pages = [pool.data_ptr() + number * SIZES[0] for number in range(PAGES)]
# The keys' places are spread over the processes that there are.
while len(store.runtime.ring) < 2:
    time.sleep(0.01)

if ROLE == "target":
    pool.memory.raw = pattern(1)
    assert store.batch_set(keys, target_locations=pages, target_sizes=SIZES)
    tell("region", json.dumps([transport.local_endpoint(), region.addr, region.rkey]).encode())
    hear("done")
    check("written", pool.memory.raw, 2)
else:
    endpoint, address, key = json.loads(hear("region"))
    assert all(store.batch_get(keys, target_locations=pages, target_sizes=SIZES))
    check("read", pool.memory.raw, 1)
    pool.memory.raw = pattern(2)
    assert all(transport.batch_write_v([endpoint], [pool.data_ptr()], [address], [key], [BYTES]))
    tell("done", b"")
store.close()
