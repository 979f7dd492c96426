//! A host that runs the real transport: the same `Shard` that the engine of `urxe` drives over
//! sockets, with virtual time, memory of its own, and a program or streams on top.

use core::ops::Range;
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use urxe_core::congestion::{CongestionControl, CongestionError, Rate as CoreRate};
use urxe_core::cq::{CqId, CqOverrun, CqSink, Cqe};
use urxe_core::mr::{Access, MrInit, MrKeys, MrTable, PdId, RegisterError};
use urxe_core::qp::attr::{AddressVector, QpAttr, QpCap};
use urxe_core::qp::ready::bring_to_rts;
use urxe_core::qp::state::{ModifyError, QpState, QpType};
use urxe_core::table::QpIndex;
use urxe_core::transmit::TxBatch;
use urxe_core::work::{PostError, RecvWr, SendWr};
use urxe_core::{
    AckMode, CreateQpError, Env, QpInit, Recovery, RxPath, Shard, ShardConfig, SourcePorts, Stats,
};
use urxe_wire::{IcrcPolicy, Psn, Qpn};

use crate::check::{Model, Received, Seen, Shares};
use crate::congestion::{Algorithm, Allowance, RcccParams, Road};
use crate::engine::{Entity, Rng, Time};
use crate::envelope::address_of;
use crate::fabric::Mode;
use crate::host::connect::{ConnectOptions, QpHandle};
use crate::host::memory::{Contents, HostMemory};
use crate::host::steer::Steered;
use crate::topology::HostId;

/// The one protection domain of a host.
pub(crate) const PD: PdId = PdId(1);

/// How the transport of a host is set up.
#[derive(Clone, Copy, Debug)]
pub struct TransportConfig {
    /// Bytes of payload that a QP may have under way.
    pub window_bytes: u32,
    /// Packets that a QP may have under way.
    pub window_packets: u32,
    /// Packets to which losses narrow that at most.
    pub window_packets_min: u32,
    /// Bytes that one READ request asks for.
    pub read_chunk_bytes: u32,
    /// What is done about packets that are lost. By default as adapters do: go-back-N.
    pub recovery: Recovery,
    /// First PSN of every connection; `None`: drawn.
    pub first_psn: Option<Psn>,
}

impl Default for TransportConfig {
    fn default() -> Self {
        let core = ShardConfig::default();
        TransportConfig {
            window_bytes: core.window_bytes,
            window_packets: core.window_packets,
            window_packets_min: core.window_packets_min,
            read_chunk_bytes: core.read_chunk_bytes,
            recovery: Recovery::GoBackN,
            first_psn: None,
        }
    }
}

/// Completion queues by number.
#[derive(Debug, Default)]
pub(crate) struct Completions {
    queues: Vec<VecDeque<Cqe>>,
    /// Something was pushed since this was last looked at.
    pub(crate) is_fresh: bool,
    pub(crate) model: Model,
}

/// Completions that a queue holds at most; a program that does not poll loses its QPs.
const CQ_LEN: usize = 1 << 16;

impl Completions {
    fn pop(&mut self, cq: CqId) -> Option<Cqe> {
        self.queues.get_mut(cq.0 as usize)?.pop_front()
    }
}

impl CqSink for Completions {
    fn push(&mut self, cq: CqId, cqe: Cqe) -> Result<(), CqOverrun> {
        let queue = self.queues.get_mut(cq.0 as usize).ok_or(CqOverrun)?;
        if queue.len() >= CQ_LEN {
            return Err(CqOverrun);
        }
        queue.push_back(cqe);
        self.is_fresh = true;
        self.model.on_cqe(&cqe);
        Ok(())
    }
}

/// The transport of one host.
#[derive(Debug)]
pub struct Transport {
    pub(crate) host: HostId,
    addr: IpAddr,
    shard: Shard,
    mrs: MrTable,
    memory: HostMemory,
    pub(crate) cqs: Completions,
    /// The timer that is set.
    pub(crate) timer_at: Option<Time>,
    /// When the program wants to be called.
    pub(crate) wake_at: Option<Time>,
    /// What packets of each peer and port have in common.
    paths: BTreeMap<(IpAddr, u16), RxPath>,
    /// Where the completions of streams go.
    stream_cq: Option<CqId>,
    next_psn: Rng,
    first_psn: Option<Psn>,
    pub(crate) shares: Shares,
    pub(crate) steered: Option<Box<Steered>>,
}

impl Transport {
    pub(crate) fn new(host: HostId, seed: u64, mode: Mode, config: &TransportConfig) -> Transport {
        let mut secrets = Rng::stream(seed, Entity::Host(host.0), "numbers and keys");
        let shard = Shard::new(ShardConfig {
            secret: secrets.bits(),
            window_bytes: config.window_bytes,
            window_packets: config.window_packets,
            window_packets_min: config.window_packets_min,
            read_chunk_bytes: config.read_chunk_bytes,
            icrc: match mode {
                Mode::Bytes => IcrcPolicy::Exact,
                Mode::Lite => IcrcPolicy::Skip,
            },
            source_ports: SourcePorts::PerQp,
            // A wake-up costs nothing here: packets leave one by one.
            pace_burst_bytes: 0,
            recovery: config.recovery,
            ..ShardConfig::default()
        });
        let mut cqs = Completions::default();
        cqs.model.keeps = config.recovery != Recovery::GoBackN;
        Transport {
            host,
            addr: address_of(host),
            shard,
            mrs: MrTable::new(secrets.bits()),
            memory: HostMemory::new(mode == Mode::Lite),
            cqs,
            timer_at: None,
            wake_at: None,
            paths: BTreeMap::new(),
            stream_cq: None,
            next_psn: Rng::stream(seed, Entity::Host(host.0), "first PSNs"),
            first_psn: config.first_psn,
            shares: Shares::default(),
            steered: None,
        }
    }

    /// Compares what its QPs were allowed to send since the last look with each other.
    pub(crate) fn compare_shares(&mut self) -> Option<(u32, String)> {
        let (shard, qps) = (&self.shard, self.cqs.model.indices());
        self.shares
            .look(qps.filter_map(|(index, qpn)| Some((qpn, shard.sending(index)?))))
    }

    /// Takes a packet in.
    #[inline]
    pub(crate) fn receive(
        &mut self,
        now: Time,
        from: IpAddr,
        source_port: u16,
        tos: u8,
        packet: &[u8],
    ) {
        let local = self.addr;
        let path = self
            .paths
            .entry((from, source_port))
            .or_insert_with(|| RxPath::new(from, source_port, local, 0));
        path.tos = tos;
        self.cqs.model.now = now;
        let keeps = self.cqs.model.keeps;
        let before = seen(&self.shard, keeps);
        self.memory.forget_writes();
        let mut env = Env {
            now: now.to_core(),
            mrs: &mut self.mrs,
            memory: &self.memory,
            cqs: &mut self.cqs,
            late: None,
        };
        self.shard.handle_packet(path, 0, packet, &mut env);
        let (after, writes) = (seen(&self.shard, keeps), self.memory.writes());
        if keeps || after != before || !writes.is_empty() {
            self.cqs.model.on_packet(&Received {
                packet,
                before,
                after,
                writes: &writes,
            });
        }
    }

    /// A QP may do so much from now on.
    pub(crate) fn steer(&mut self, qp: QpIndex, allowance: Allowance) {
        let rate = allowance.rate.map(|rate| CoreRate::from_bps(rate.as_bps()));
        self.shard.steer(qp, allowance.window, rate);
    }

    pub(crate) fn on_timer(&mut self, now: Time) {
        self.with_env(now, |shard, env| shard.handle_timeout(env));
    }

    /// Fills the batch; true if there is more.
    #[inline]
    pub(crate) fn poll_transmit(&mut self, now: Time, batch: &mut TxBatch) -> bool {
        self.with_env(now, |shard, env| {
            shard.poll_transmit(env, batch, AckMode::Now)
        })
    }

    /// When the transport, or the program, next wants to be called.
    pub(crate) fn next_timeout(&self) -> Option<Time> {
        let shard = self.shard.next_timeout().map(Time::from_core);
        shard.into_iter().chain(self.wake_at).min()
    }

    #[inline]
    fn with_env<R>(
        &mut self,
        now: Time,
        f: impl FnOnce(&mut Shard, &mut Env<'_, HostMemory, Completions>) -> R,
    ) -> R {
        self.cqs.model.now = now;
        let mut env = Env {
            now: now.to_core(),
            mrs: &mut self.mrs,
            memory: &self.memory,
            cqs: &mut self.cqs,
            late: None,
        };
        f(&mut self.shard, &mut env)
    }

    /// The next completion of a stream's message.
    pub(crate) fn next_stream_completion(&mut self) -> Option<Cqe> {
        self.cqs.pop(self.stream_cq?)
    }

    /// The transport's counters.
    pub fn stats(&self) -> &Stats {
        self.shard.stats()
    }

    /// The host's memory.
    pub fn memory(&self) -> &HostMemory {
        &self.memory
    }

    /// State of a QP.
    pub fn qp_state(&self, index: QpIndex) -> Option<QpState> {
        Some(self.shard.query_qp(index)?.0.qp_state)
    }
}

#[inline]
fn seen(shard: &Shard, keeps: bool) -> Seen {
    let stats = shard.stats();
    Seen {
        messages: stats.rcvd_messages,
        duplicates: stats.duplicate_request,
        ahead: stats.out_of_seq_request,
        dropped: if keeps { stats.dropped.iter().sum() } else { 0 },
    }
}

/// A reliable connected QP with one queue for all completions.
fn init(cq: CqId, cap: QpCap) -> QpInit {
    QpInit {
        pd: PD,
        qp_type: QpType::Rc,
        send_cq: cq,
        recv_cq: cq,
        cap,
        sq_sig_all: false,
        srq: None,
        xrcd: None,
        block_self_mcast_lb: false,
    }
}

/// The verbs of one host, at one moment.
#[derive(Debug)]
pub struct Verbs<'a> {
    pub(crate) now: Time,
    pub(crate) transport: &'a mut Transport,
}

impl Verbs<'_> {
    /// What time it is.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Which host this is.
    pub fn host(&self) -> HostId {
        self.transport.host
    }

    /// The transport behind it.
    pub fn transport(&self) -> &Transport {
        self.transport
    }

    /// Registers a region of so many bytes, with all rights. Returns its address, which is also the one
    /// that peers use, and its keys.
    ///
    /// # Errors
    /// [`RegisterError`] if no key is left or the length is impossible.
    #[doc(alias = "ibv_reg_mr")]
    pub fn register(
        &mut self,
        len: u64,
        contents: Contents,
    ) -> Result<(u64, MrKeys), RegisterError> {
        let addr = self.transport.memory.add(contents);
        let keys = self.transport.mrs.register(MrInit {
            pd: PD,
            access: Access::LOCAL_WRITE
                | Access::REMOTE_WRITE
                | Access::REMOTE_READ
                | Access::REMOTE_ATOMIC,
            host_addr: addr,
            iova: addr,
            len,
            remote_invalidate: false,
        })?;
        Ok((addr, keys))
    }

    /// Makes a completion queue.
    #[doc(alias = "ibv_create_cq")]
    pub fn create_cq(&mut self) -> CqId {
        let queues = &mut self.transport.cqs.queues;
        queues.push(VecDeque::new());
        CqId(queues.len() as u32 - 1)
    }

    /// The queue of all streams of this host.
    pub(crate) fn stream_cq(&mut self) -> CqId {
        let cq = self.transport.stream_cq;
        let cq = cq.unwrap_or_else(|| self.create_cq());
        self.transport.stream_cq = Some(cq);
        cq
    }

    /// Makes a reliable connected QP with one queue for all completions.
    ///
    /// # Errors
    /// [`CreateQpError`] if a capability is beyond what there is.
    #[doc(alias = "ibv_create_qp")]
    pub fn create_qp(&mut self, cq: CqId, cap: QpCap) -> Result<QpHandle, CreateQpError> {
        let (index, qpn) = self.transport.shard.create_qp(&init(cq, cap))?;
        Ok(self.created(index, qpn))
    }

    /// Makes one with a number that was set aside.
    pub(crate) fn create_qp_as(
        &mut self,
        cq: CqId,
        cap: QpCap,
        qpn: Qpn,
    ) -> Result<QpHandle, CreateQpError> {
        let index = self.transport.shard.create_qp_as(&init(cq, cap), qpn)?;
        Ok(self.created(index, qpn))
    }

    /// Sets QPNs aside that peers give to QPs of this host.
    pub(crate) fn set_qpns_aside(&mut self) -> Range<u32> {
        self.transport.shard.set_qpns_aside()
    }

    fn created(&mut self, index: QpIndex, qpn: Qpn) -> QpHandle {
        self.transport.cqs.model.on_create(index, qpn.get());
        QpHandle {
            host: self.transport.host,
            index,
            qpn,
        }
    }

    /// A first PSN for a connection: from the host's own stream, unless the configuration has one.
    pub fn draw_psn(&mut self) -> Psn {
        let drawn = Psn::new(self.transport.next_psn.bits() as u32 & 0xff_ffff);
        self.transport.first_psn.unwrap_or(drawn)
    }

    /// Takes a QP from RESET to RTS, towards a peer.
    ///
    /// # Errors
    /// [`ModifyError`] if an attribute is impossible.
    #[doc(alias = "ibv_modify_qp")]
    pub fn connect(
        &mut self,
        qp: QpIndex,
        peer: QpHandle,
        psns: (Psn, Psn),
        options: &ConnectOptions,
    ) -> Result<(), ModifyError> {
        let attr = QpAttr {
            qp_access_flags: Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC,
            path_mtu: options.mtu,
            dest_qp_num: peer.qpn,
            rq_psn: psns.1,
            sq_psn: psns.0,
            max_dest_rd_atomic: options.rd_atomic,
            max_rd_atomic: options.rd_atomic,
            min_rnr_timer: 1,
            timeout: options.timeout,
            retry_cnt: options.retry_cnt,
            rnr_retry: options.rnr_retry,
            ah_attr: Some(AddressVector {
                local: self.transport.addr,
                remote: address_of(peer.host),
                traffic_class: options.tos,
                hop_limit: 64,
            }),
            ..QpAttr::default()
        };
        let (now, transport) = (self.now, &mut *self.transport);
        bring_to_rts(QpType::Rc, QpState::Reset, &attr, |attr, mask| {
            let modified = transport.with_env(now, |s, env| s.modify_qp(qp, attr, mask, env));
            modified.map(|_| ())
        })?;
        // Both ends are set up alike. It changes nothing unless that is [`Recovery::Selective`].
        transport.shard.set_selective_peer(qp);
        let model = &mut transport.cqs.model;
        let (qpn, peer) = (model.qpn_of(qp), (peer.host, peer.qpn.get()));
        model.on_connect(qpn, peer, psns, options.mtu.bytes(), options.timeout);
        Ok(())
    }

    /// Sets how a QP reacts to congestion, from its next packet on.
    ///
    /// # Errors
    /// [`CongestionError`] if a parameter makes no sense.
    pub fn set_congestion_control(
        &mut self,
        qp: QpIndex,
        control: CongestionControl,
    ) -> Result<(), CongestionError> {
        let now = self.now.to_core();
        let shard = &mut self.transport.shard;
        shard.set_congestion_control(qp, control, now)
    }

    /// An algorithm steers a connected QP from now on.
    pub(crate) fn steer_by(&mut self, qp: QpHandle, peer: QpHandle, by: Box<dyn Algorithm>) {
        let steered = self.transport.steered.get_or_insert_default();
        let peer = (peer.host, peer.qpn.get());
        let start = steered.add(qp.qpn.get(), qp.index, peer, by);
        self.transport.steer(qp.index, start);
    }

    /// A connected QP gives its peer credit, beginning with the packet of this PSN.
    pub(crate) fn pace(
        &mut self,
        qp: QpHandle,
        peer: QpHandle,
        first: Psn,
        way: (RcccParams, Road, u32),
    ) {
        let pacer = &mut self.transport.steered.get_or_insert_default().pacer;
        pacer.add(qp.qpn.get(), (peer.host, peer.qpn.get()), first, way);
    }

    /// Appends to a send queue.
    ///
    /// # Errors
    /// [`PostError`]; nothing was appended.
    #[doc(alias = "ibv_post_send")]
    pub fn post_send(&mut self, qp: QpIndex, wr: &SendWr<'_>) -> Result<(), PostError> {
        // Told before, as a QP in error completes it at once.
        let (now, transport) = (self.now, &mut *self.transport);
        let model = &mut transport.cqs.model;
        let qpn = model.qpn_of(qp);
        model.now = now;
        model.on_post_send(qpn, wr);
        let posted = transport.with_env(now, |shard, env| shard.post_send(qp, wr, env));
        if posted.is_err() {
            transport.cqs.model.take_post_back(qpn);
        }
        posted
    }

    /// Appends to a receive queue.
    ///
    /// # Errors
    /// [`PostError`]; nothing was appended.
    #[doc(alias = "ibv_post_recv")]
    pub fn post_recv(&mut self, qp: QpIndex, wr: &RecvWr<'_>) -> Result<(), PostError> {
        let (now, transport) = (self.now, &mut *self.transport);
        let posted = transport.with_env(now, |shard, env| shard.post_recv(qp, wr, env));
        if posted.is_ok() {
            let model = &mut transport.cqs.model;
            model.on_post_recv(model.qpn_of(qp), wr.wr_id);
        }
        posted
    }

    /// The next completion of a queue.
    #[doc(alias = "ibv_poll_cq")]
    pub fn poll_cq(&mut self, cq: CqId) -> Option<Cqe> {
        self.transport.cqs.pop(cq)
    }

    /// Asks to be called at that time, also when nothing has completed.
    pub fn wake_at(&mut self, at: Time) {
        self.transport.wake_at = Some(at);
    }
}

/// A program on a host: called when completions have come, when the time that it asked for has, and
/// once at the start.
pub trait Program: core::fmt::Debug {
    /// Does what there is to do, and returns.
    fn poll(&mut self, verbs: &mut Verbs<'_>);

    /// Its host crashed and has started again: all QPs, regions and queues are gone, and `verbs` is of a
    /// fresh transport. What the program itself holds is left, as if it had been on a disk.
    fn restarted(&mut self, verbs: &mut Verbs<'_>) {
        let _ = verbs;
    }

    /// To get the program back when the run is over.
    fn into_any(self: Box<Self>) -> Box<dyn core::any::Any>;
}
