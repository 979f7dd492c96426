#!/usr/bin/python3
"""The kernel's side of the interop tests: verbs by remote control.

agent.py PORT DEVICE

Runs in the guest. Takes one connection after the other on PORT; each line is a JSON object: its "do" names a
method of Agent, and its other members are the arguments. The answer is one line too: {"ok": result} or
{"error": text}. What is tested lies in the program at the other end; here is no test logic.
"""
import ipaddress
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
import traceback

import pyverbs.enums as e
from pyverbs.addr import AH, AHAttr, GID, GlobalRoute
from pyverbs.cq import CQ, CompChannel
from pyverbs.device import Context
from pyverbs.mr import MR, MW, MWBindInfo
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPEx, QPInitAttr, QPInitAttrEx
from pyverbs.srq import SRQ, SrqAttr, SrqInitAttr
from pyverbs.wr import RecvWR, SendWR, SGE

TYPES = {'RC': e.IBV_QPT_RC, 'UC': e.IBV_QPT_UC, 'UD': e.IBV_QPT_UD}
IMM, INVALIDATE = 2, 4 | 8  # wc_flags; rxe marks an invalidation by the kernel's bit (4), not by that of verbs (8)
ATTACH_MCAST, DETACH_MCAST = 30, 31     # enum ib_uverbs_write_cmds
PERIOD = 65521              # as in pattern.rs


def block():
    x, out = 1, bytearray()
    for _ in range(PERIOD):
        x = (x * 1103515245 + 12345) & 0xffffffff
        out.append(x >> 16 & 0xff)
    return bytes(out)


BLOCK = block()


def pattern(seed, length):
    start = seed * 4099 % PERIOD
    return (BLOCK * ((start + length) // PERIOD + 1))[start:start + length]


def mapped(address):
    """An address as a GID."""
    ip = ipaddress.ip_address(address)
    return ip if ip.version == 6 else ipaddress.ip_address('::ffff:' + str(ip))


class Agent:
    def __init__(self, device):
        self.device, self.ctx = device, None

    # ---- life

    def open(self, address):
        """Everything of before goes; then a context, a PD and a CQ with a channel."""
        self.close()
        self.ctx = Context(name=self.device)
        gid = mapped(address)
        self.gid_index = next(i for i in range(16)
                              if ipaddress.ip_address(self.ctx.query_gid(1, i).gid) == gid)
        self.pd = PD(self.ctx)
        self.channel = CompChannel(self.ctx)
        self.cq = CQ(self.ctx, 4096, None, self.channel)

    def close(self):
        if self.ctx:
            # An attached QP cannot be destroyed, and pyverbs does not survive that.
            for handle, group in self.groups:
                self.multicast(DETACH_MCAST, handle, group)
            self.ctx.close()
        self.ctx, self.mrs, self.qps, self.ahs, self.srqs, self.mws = None, {}, {}, {}, {}, {}
        self.groups, self.members = [], []

    def counters(self):
        folder = '/sys/class/infiniband/%s/ports/1/hw_counters/' % self.device
        return {name: int(open(folder + name).read()) for name in os.listdir(folder) if name != 'lifespan'}

    def shell(self, command):
        done = subprocess.run(command, shell=True, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError('%s: %s%s' % (command, done.stdout, done.stderr))
        return done.stdout

    # ---- memory

    def mr(self, length, access):
        mr = MR(self.pd, length, access)
        self.mrs[mr.lkey] = mr
        return {'id': mr.lkey, 'addr': mr.buf, 'rkey': mr.rkey}

    def dereg(self, mr):
        self.mrs.pop(mr).close()

    def fill(self, mr, offset, length, seed):
        if length:
            self.mrs[mr].write(pattern(seed, length), length, offset)

    def fill_byte(self, mr, offset, length, byte):
        self.mrs[mr].write(bytes([byte]) * length, length, offset)

    def check(self, mr, offset, length, seed):
        """The place of the first byte that is not the pattern's; None if all are."""
        return self.differs(mr, offset, pattern(seed, length)) if length else None

    def check_byte(self, mr, offset, length, byte):
        return self.differs(mr, offset, bytes([byte]) * length)

    def differs(self, mr, offset, want):
        got = self.mrs[mr].read(len(want), offset)
        if got == want:
            return None
        return next(i for i in range(len(want)) if got[i] != want[i])

    def read(self, mr, offset, length):
        return self.mrs[mr].read(length, offset).hex()

    def write(self, mr, offset, hex):
        data = bytes.fromhex(hex)
        self.mrs[mr].write(data, len(data), offset)

    # ---- QPs

    def qp(self, type, srq=None, inline=64):
        cap = QPCap(max_send_wr=256, max_recv_wr=256, max_send_sge=4, max_recv_sge=4, max_inline_data=inline)
        rest = dict(qp_type=TYPES[type], scq=self.cq, rcq=self.cq, sq_sig_all=0, cap=cap,
                    srq=self.srqs[srq] if srq is not None else None)
        if type == 'RC':        # ATOMIC WRITE can only be posted the new way
            qp = QPEx(self.ctx, QPInitAttrEx(
                pd=self.pd, comp_mask=e.IBV_QP_INIT_ATTR_PD | e.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
                send_ops_flags=e.IBV_QP_EX_WITH_SEND | e.IBV_QP_EX_WITH_ATOMIC_WRITE, **rest))
        else:
            qp = QP(self.pd, QPInitAttr(**rest))
        self.qps[qp.qp_num] = qp
        return qp.qp_num

    def destroy_qp(self, qp):
        self.qps.pop(qp).close()

    def state(self, qp):
        return self.qps[qp].query(e.IBV_QP_STATE)[0].qp_state

    def to_error(self, qp):
        self.qps[qp].modify(QPAttr(qp_state=e.IBV_QPS_ERR), e.IBV_QP_STATE)

    def ah_attr(self, remote):
        route = GlobalRoute(dgid=GID(mapped(remote).exploded), sgid_index=self.gid_index)
        route.hop_limit = 64
        return AHAttr(gr=route, is_global=1, port_num=1)

    def connect(self, qp, remote, remote_qpn, remote_psn, psn, mtu, access, timeout, retry_cnt, rnr_retry,
                min_rnr_timer, rd_atomic):
        a = QPAttr(qp_state=e.IBV_QPS_INIT, port_num=1)
        a.qp_access_flags = access
        a.path_mtu = {256: 1, 512: 2, 1024: 3, 2048: 4, 4096: 5}[mtu]
        a.dest_qp_num, a.rq_psn, a.sq_psn, a.ah_attr = remote_qpn, remote_psn, psn, self.ah_attr(remote)
        a.max_rd_atomic = a.max_dest_rd_atomic = rd_atomic
        a.min_rnr_timer, a.timeout, a.retry_cnt, a.rnr_retry = min_rnr_timer, timeout, retry_cnt, rnr_retry
        q = self.qps[qp]
        q.to_init(a)
        q.to_rtr(a)
        q.to_rts(a)

    def ready_ud(self, qp, qkey, psn):
        a = QPAttr(qp_state=e.IBV_QPS_INIT, port_num=1)
        a.qkey, a.sq_psn = qkey, psn
        q = self.qps[qp]
        q.to_init(a)
        q.to_rtr(a)
        q.to_rts(a)

    def attach(self, qp, group):
        """Attaches the QP to a multicast group. pyverbs cannot, so this writes the command of the kernel's ABI, to the
        first handle that is a QP: the context must have no other."""
        assert list(self.qps) == [qp]
        address = ipaddress.ip_address(group)
        # The host must take the group's packets, too.
        if address.version == 4:
            member = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            member.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP,
                              address.packed + struct.pack('@4si', bytes(4), socket.if_nametoindex('eth0')))
        else:
            member = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
            member.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP,
                              address.packed + struct.pack('@i', socket.if_nametoindex('eth0')))
        self.members.append(member)
        for handle in range(64):
            try:
                self.multicast(ATTACH_MCAST, handle, group)
            except OSError:
                continue
            self.groups.append((handle, group))
            return
        raise RuntimeError('no handle is a QP that can be attached')

    def multicast(self, command, handle, group):
        # struct ib_uverbs_cmd_hdr, struct ib_uverbs_attach_mcast
        os.write(self.ctx.cmd_fd, struct.pack('=IHH16sIHH', command, 8, 0, mapped(group).packed, handle, 0, 0))

    def ah(self, remote):
        self.ahs[len(self.ahs)] = AH(self.pd, attr=self.ah_attr(remote))
        return len(self.ahs) - 1

    def srq(self, max_wr):
        srq = SRQ(self.pd, SrqInitAttr(SrqAttr(max_wr=max_wr, max_sge=4)))
        self.srqs[len(self.srqs)] = srq
        return len(self.srqs) - 1

    # ---- work

    def sges(self, mr, offset, length):
        return [SGE(self.mrs[mr].buf + offset, length, self.mrs[mr].lkey)]

    def post_recv(self, qp, wr_id, mr, offset, length):
        self.qps[qp].post_recv(RecvWR(wr_id=wr_id, num_sge=1, sg=self.sges(mr, offset, length)))

    def post_srq(self, srq, wr_id, mr, offset, length):
        self.srqs[srq].post_recv(RecvWR(wr_id=wr_id, num_sge=1, sg=self.sges(mr, offset, length)))

    def post_send(self, qp, works):
        for w in works:
            wr = SendWR(wr_id=w['wr_id'], opcode=w['opcode'], num_sge=1, send_flags=w['flags'],
                        sg=self.sges(w['mr'], w['offset'], w['length']))
            op = w['opcode']
            if op == e.IBV_WR_ATOMIC_WRITE:
                self.atomic_write(self.qps[qp], w)
                continue
            if op in (e.IBV_WR_SEND_WITH_IMM, e.IBV_WR_RDMA_WRITE_WITH_IMM):
                wr.imm_data = socket.htonl(w['imm'])
            if op == e.IBV_WR_SEND_WITH_INV:
                wr.imm_data = w['rkey']
            if op in (e.IBV_WR_RDMA_WRITE, e.IBV_WR_RDMA_WRITE_WITH_IMM, e.IBV_WR_RDMA_READ):
                wr.set_wr_rdma(w['rkey'], w['remote_addr'])
            if op in (e.IBV_WR_ATOMIC_CMP_AND_SWP, e.IBV_WR_ATOMIC_FETCH_AND_ADD):
                wr.set_wr_atomic(w['rkey'], w['remote_addr'], w['compare_add'], w['swap'])
            if w.get('ah') is not None:
                wr.set_wr_ud(self.ahs[w['ah']], w['remote_qpn'], w['remote_qkey'])
            self.qps[qp].post_send(wr)

    def atomic_write(self, qp, w):
        qp.wr_start()
        qp.wr_id, qp.wr_flags = w['wr_id'], w['flags']
        qp.wr_atomic_write(w['rkey'], w['remote_addr'], self.mrs[w['mr']].read(8, w['offset']))
        qp.wr_complete()

    def bind_mw(self, qp, mr, offset, length, access):
        """A memory window of type 2; its rkey, once the binding has completed."""
        mw = MW(self.pd, e.IBV_MW_TYPE_2)
        wr = SendWR(wr_id=0, opcode=e.IBV_WR_BIND_MW, num_sge=0, send_flags=e.IBV_SEND_SIGNALED)
        wr.set_bind_wr(mw, MWBindInfo(self.mrs[mr], self.mrs[mr].buf + offset, length, access))
        self.qps[qp].post_send(wr)
        self.mws[wr.rkey] = mw
        done = self.poll(1, 10)
        if len(done) != 1 or done[0]['status']:
            raise RuntimeError('binding a window: %s' % done)
        return wr.rkey

    def poll(self, count, seconds):
        """Up to `count` completions, within the time."""
        end, out = time.monotonic() + seconds, []
        while len(out) < count:
            for wc in self.cq.poll(1)[1]:
                out.append(self.completion(wc))
            if time.monotonic() > end:
                break
        return out

    def completion(self, wc):
        c = {'wr_id': wc.wr_id, 'status': wc.status, 'opcode': wc.opcode, 'byte_len': wc.byte_len,
             'qpn': wc.qp_num, 'src_qp': wc.src_qp}
        if wc.wc_flags & IMM:
            c['imm'] = socket.ntohl(wc.imm_data)
        if wc.wc_flags & INVALIDATE:
            c['invalidated'] = wc.imm_data
        return c

    def arm(self, solicited):
        self.cq.req_notify(solicited)

    def wait_event(self, seconds):
        """Whether an event came within the time."""
        signal.signal(signal.SIGALRM, lambda *_: None)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            self.channel.get_cq_event(self.cq)
            self.cq.ack_events(1)
            return True
        except Exception:       # interrupted by the alarm
            return False
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)


def serve(agent, connection):
    for line in connection.makefile('r'):
        request = json.loads(line)
        method = getattr(agent, request.pop('do'))
        try:
            answer = {'ok': method(**request)}
        except Exception as error:
            answer = {'error': '%s: %s' % (type(error).__name__, error),
                      'trace': traceback.format_exc()}
        connection.sendall(json.dumps(answer).encode() + b'\n')


def main():
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(('0.0.0.0', int(sys.argv[1])))
    listener.listen(1)
    print('listening', flush=True)
    agent = Agent(sys.argv[2])
    while True:
        connection = listener.accept()[0]
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        serve(agent, connection)
        agent.close()


main()
