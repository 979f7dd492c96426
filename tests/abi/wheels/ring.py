"""MPI: messages round a ring, a sum over all processes, and a sum in a window of memory."""

import numpy
from mpi4py import MPI

world = MPI.COMM_WORLD
rank, count = world.Get_rank(), world.Get_size()
for size in (1, 4096, 65536, 4 << 20):
    sent, got = numpy.full(size, rank, numpy.uint8), numpy.empty(size, numpy.uint8)
    for _ in range(5):
        world.Sendrecv(sent, (rank + 1) % count, 0, got, (rank - 1) % count, 0)
    assert (got == (rank - 1) % count).all(), size

numbers, total = numpy.arange(1000.0), numpy.empty(1000)
world.Allreduce(numbers * (rank + 1), total)
assert (total == numbers * count * (count + 1) / 2).all()

window = MPI.Win.Allocate(8, 8, comm=world)
window.Fence()
window.Accumulate(numpy.array([rank + 1.0]), 0, (0, 1, MPI.DOUBLE))
window.Fence()
if rank == 0:
    held = numpy.frombuffer(window.tomemory(), dtype=numpy.double)
    assert held[0] == count * (count + 1) / 2, held
    print("all sums are right")
window.Free()
