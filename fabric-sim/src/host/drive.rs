//! The transports of hosts, driven over the fabric.

use urxe_core::cq::WcOpcode;
use urxe_core::transmit::{RunLimits, TxBatch, TxDest};
use urxe_core::work::{RecvWr, SendWr, WrData};
use urxe_core::{Stats, WcStatus};

use crate::congestion::Steering;
use crate::engine::{Span, Time, mix64};
use crate::envelope::{
    Envelope, IP_OFFSET, IP_UDP_LEN, decode, encode, flow_hash, host_of, is_group,
};
use crate::fabric::{LITE_BODY, Mode, frame_len};
use crate::frame::{BodyId, Frame, Payload};
use crate::host::connect::{ConnectOptions, QpHandle, pin_planes};
use crate::host::job::{Jobs, OF_JOBS};
use crate::host::sim::Sim;
use crate::host::steer::News;
use crate::host::stream::{Stream, StreamId, StreamOp, StreamSpec};
use crate::host::timer::TimerFor;
use crate::host::transport::{Program, Transport, TransportConfig, Verbs};
use crate::topology::HostId;

/// Bytes that a transport hands over at a time: one packet of 4 KiB, or a few smaller ones. An adapter
/// that takes more at a time would send them however the network changed meanwhile.
const BATCH: usize = 4096 + 64;

/// Why a stream cannot be made.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StreamError {
    /// The QP cannot be created.
    #[error(transparent)]
    Create(#[from] urxe_core::CreateQpError),
    /// The QP cannot be connected.
    #[error(transparent)]
    Connect(#[from] urxe_core::qp::state::ModifyError),
    /// Congestion control cannot be set.
    #[error(transparent)]
    Congestion(#[from] urxe_core::congestion::CongestionError),
    /// The memory cannot be registered.
    #[error(transparent)]
    Register(#[from] urxe_core::mr::RegisterError),
}

/// The hosts that run a transport, and what they share.
#[derive(Debug)]
pub(crate) struct Drivers {
    pub(crate) transports: Vec<Option<Box<Transport>>>,
    pub(crate) programs: Vec<Option<Box<dyn Program>>>,
    pub(crate) streams: Vec<Stream>,
    pub(crate) jobs: Jobs,
    batch: TxBatch,
    scratch: Box<[u8]>,
    pub(crate) config: TransportConfig,
    /// Frames that no transport could read.
    pub(crate) unreadable: u64,
    /// How often each host has started again.
    pub(crate) restarts: Vec<u32>,
}

impl Drivers {
    pub(crate) fn new(hosts: usize) -> Drivers {
        Drivers {
            transports: (0..hosts).map(|_| None).collect(),
            programs: (0..hosts).map(|_| None).collect(),
            streams: Vec::new(),
            jobs: Jobs::default(),
            batch: TxBatch::new(BATCH, RunLimits::SINGLE),
            scratch: vec![0; BATCH].into(),
            config: TransportConfig::default(),
            unreadable: 0,
            restarts: vec![0; hosts],
        }
    }
}

impl Sim {
    /// Changes how transports are set up, for hosts that have none yet.
    pub fn set_transport_config(&mut self, config: TransportConfig) {
        self.drivers.config = config;
    }

    /// The transport of a host, if it has one.
    pub fn transport(&self, host: HostId) -> Option<&Transport> {
        self.drivers.transports[host.index()].as_deref()
    }

    /// All counters of all transports, to be added up.
    pub fn transport_stats(&self) -> impl Iterator<Item = (HostId, &Stats)> {
        self.drivers
            .transports
            .iter()
            .flatten()
            .map(|t| (t.host, t.stats()))
    }

    /// Does something with the verbs of a host, which gets a transport if it has none. What was posted
    /// is sent when the simulation goes on.
    pub fn with_verbs<R>(&mut self, host: HostId, f: impl FnOnce(&mut Verbs<'_>) -> R) -> R {
        let result = f(&mut self.verbs_of(host));
        let now = self.fabric.now();
        self.set_timer(host, now, TimerFor::Transport);
        result
    }

    /// The verbs of a host, which gets a transport if it has none. It is not served for that.
    pub(super) fn verbs_of(&mut self, host: HostId) -> Verbs<'_> {
        let now = self.fabric.now();
        let (seed, mode) = (self.fabric.config().seed, self.fabric.config().mode);
        let config = self.drivers.config;
        // A host that starts again draws other numbers and keys.
        let seed = seed ^ u64::from(self.drivers.restarts[host.index()]) << 32;
        let transport = self.drivers.transports[host.index()]
            .get_or_insert_with(|| Box::new(Transport::new(host, seed, mode, &config)));
        Verbs { now, transport }
    }

    /// Connects two QPs with each other.
    ///
    /// # Errors
    /// [`StreamError::Connect`] if an attribute is impossible.
    pub fn connect(
        &mut self,
        a: QpHandle,
        b: QpHandle,
        options: &ConnectOptions,
    ) -> Result<(), StreamError> {
        let from_a = self.with_verbs(a.host, |v| v.draw_psn());
        let from_b = self.with_verbs(b.host, |v| v.draw_psn());
        self.with_verbs(a.host, |v| v.connect(a.index, b, (from_a, from_b), options))?;
        self.with_verbs(b.host, |v| v.connect(b.index, a, (from_b, from_a), options))?;
        pin_planes(&mut self.fabric, (a, b), options, true);
        pin_planes(&mut self.fabric, (b, a), options, false);
        for end in [a, b] {
            self.with_verbs(end.host, |v| {
                v.set_congestion_control(end.index, options.congestion)
            })?;
        }
        if let Some(steering) = options.steering {
            for (end, peer, first) in [(a, b, from_b), (b, a, from_a)] {
                let road = self.road(end.host, peer.host, options);
                let algorithm = steering.begin(road);
                self.with_verbs(end.host, |v| v.steer_by(end, peer, algorithm));
                if let Steering::Rccc(params) = steering {
                    let way = (params, road, options.mtu.bytes());
                    self.with_verbs(end.host, |v| v.pace(end, peer, first, way));
                }
            }
            if steering.reads_telemetry() {
                self.fabric.telemetry.begin();
            }
        }
        Ok(())
    }

    /// Runs a program on a host, from now on.
    pub fn set_program(&mut self, host: HostId, program: Box<dyn Program>) {
        self.with_verbs(host, |verbs| verbs.transport.cqs.is_fresh = true);
        self.drivers.programs[host.index()] = Some(program);
    }

    /// The host has crashed: its transport is gone, and what streams had under way.
    pub(crate) fn drop_transport(&mut self, host: HostId) {
        self.drivers.transports[host.index()] = None;
        self.drivers.restarts[host.index()] += 1;
        for stream in &mut self.drivers.streams {
            if stream.spec.from == host && !stream.is_complete() {
                stream.failure.get_or_insert(WcStatus::WrFlushErr);
            }
        }
        self.drop_jobs_of(host);
    }

    /// The host starts again: its program is told, with a transport that has nothing.
    pub(crate) fn restart_transport(&mut self, host: HostId) {
        if let Some(mut program) = self.drivers.programs[host.index()].take() {
            self.with_verbs(host, |verbs| program.restarted(verbs));
            self.drivers.programs[host.index()] = Some(program);
        }
    }

    /// Takes the program of a host back.
    pub fn take_program(&mut self, host: HostId) -> Option<Box<dyn Program>> {
        self.drivers.programs[host.index()].take()
    }

    /// Adds a stream, with a connection and memory of its own. It begins at its time.
    ///
    /// # Errors
    /// [`StreamError`] says which step was impossible.
    pub fn add_stream(&mut self, spec: StreamSpec) -> Result<StreamId, StreamError> {
        let id = StreamId(self.drivers.streams.len() as u32);
        let mut end = |host, cap| {
            self.with_verbs(host, |verbs| {
                let cq = verbs.stream_cq();
                let (len, contents) = spec.region(id.0);
                let (addr, keys) = verbs.register(len, contents)?;
                Ok::<_, StreamError>((verbs.create_qp(cq, cap)?, addr, keys))
            })
        };
        let (qp, addr, keys) = end(spec.from, spec.cap())?;
        let (peer, remote, remote_keys) = end(spec.to, spec.cap())?;
        self.connect(qp, peer, &spec.options)?;
        self.drivers.streams.push(Stream {
            spec,
            qp,
            peer,
            posted: 0,
            completed: 0,
            last: Time::ZERO,
            failure: None,
            local: (addr, keys.lkey),
            remote: (remote, remote_keys.rkey),
            remote_lkey: remote_keys.lkey,
        });
        if spec.op == StreamOp::Send {
            for _ in 0..spec.receives() {
                self.post_receive(id.0);
            }
        }
        self.set_timer(spec.from, spec.start, TimerFor::Stream(id.0));
        Ok(id)
    }

    /// A stream.
    pub fn stream(&self, id: StreamId) -> &Stream {
        &self.drivers.streams[id.0 as usize]
    }

    /// Bytes of a stream that have arrived; those that came twice count once.
    pub fn stream_bytes(&self, id: StreamId) -> u64 {
        let stream = self.stream(id);
        let (host, addr) = match stream.spec.op {
            StreamOp::Write | StreamOp::Send => (stream.spec.to, stream.remote.0),
            // Each adds in one place.
            StreamOp::FetchAdd => return 8 * stream.completed,
            StreamOp::Read => (stream.spec.from, stream.local.0),
        };
        self.transport(host).map_or(0, |t| t.memory().landed(addr))
    }

    /// All streams.
    pub fn streams(&self) -> &[Stream] {
        &self.drivers.streams
    }

    /// Frames that arrived at a transport and were no RoCE packets, or were damaged in their headers.
    pub fn unreadable_frames(&self) -> u64 {
        self.drivers.unreadable
    }

    /// The timer of a host's transport.
    pub(crate) fn on_transport_timer(&mut self, host: HostId) {
        let now = self.fabric.now();
        if let Some(transport) = &mut self.drivers.transports[host.index()] {
            if transport.timer_at.is_some_and(|at| at <= now) {
                transport.timer_at = None;
            }
            transport.on_timer(now);
            if transport.wake_at.is_some_and(|at| at <= now) {
                transport.wake_at = None;
                transport.cqs.is_fresh = true;
            }
        }
    }

    /// A packet has come to a host.
    #[inline]
    pub(crate) fn on_packet(&mut self, host: HostId, frame: &Frame) {
        let Payload::Roce { body, len } = frame.payload else {
            return;
        };
        self.admit_for(host, frame);
        let now = self.fabric.now();
        let Drivers {
            transports,
            scratch,
            unreadable,
            ..
        } = &mut self.drivers;
        let Some(transport) = &mut transports[host.index()] else {
            *unreadable += 1;
            return;
        };
        let place = body;
        let body = self.fabric.bodies.get(body);
        let (from, source_port, tos, packet) = match self.fabric.config().mode {
            Mode::Bytes => match decode(&body[..frame.len as usize - 4]) {
                Some((envelope, packet)) if envelope.dst == host => {
                    (envelope.src, envelope.source_port, envelope.tos, packet)
                }
                _ => {
                    *unreadable += 1;
                    return;
                }
            },
            Mode::Lite => {
                let kept = LITE_BODY.min(len as usize);
                scratch[..kept].copy_from_slice(&body[..kept]);
                // The port says nothing that matters: there is no ICRC to check.
                (frame.src, 0, frame.tos, &scratch[..len as usize])
            }
        };
        let mut grants_at = None;
        if let Some(steered) = &mut transport.steered {
            let hops = &self.fabric.telemetry.of(place).hops;
            let marked = tos & 3 == Frame::CE;
            let news = steered.on_received(packet, marked, hops, now);
            let News { steer, pace } = news.unwrap_or_default();
            if let Some((qp, allowance)) = steer {
                transport.steer(qp, allowance);
            }
            grants_at = pace;
        }
        transport.receive(now, super::address_of(from), source_port, tos, packet);
        let has_news = transport.cqs.model.has_news;
        if let Some(at) = grants_at {
            self.set_timer(host, at, TimerFor::Grant);
        }
        if has_news {
            self.check_news(host);
        }
        self.serve(host);
    }

    /// Lets a host do all that it can do now: programs react, packets leave.
    #[inline]
    pub(crate) fn serve(&mut self, host: HostId) {
        loop {
            let Some(transport) = &mut self.drivers.transports[host.index()] else {
                return;
            };
            if core::mem::take(&mut transport.cqs.is_fresh) {
                self.run_programs(host);
                continue;
            }
            self.pump(host);
            self.check_news(host);
            let transport = &self.drivers.transports[host.index()];
            if !transport.as_ref().is_some_and(|t| t.cqs.is_fresh) {
                return;
            }
        }
    }

    fn run_programs(&mut self, host: HostId) {
        let now = self.fabric.now();
        while let Some(transport) = &mut self.drivers.transports[host.index()] {
            let Some(cqe) = transport.next_stream_completion() else {
                break;
            };
            if cqe.wr_id >= OF_JOBS {
                self.on_job_completion(host, &cqe);
                continue;
            }
            if cqe.opcode == WcOpcode::Recv {
                if cqe.status == WcStatus::Success {
                    self.renew_receive(cqe.wr_id as u32);
                }
                continue;
            }
            let stream = &mut self.drivers.streams[cqe.wr_id as usize];
            if cqe.status == WcStatus::Success {
                stream.completed += 1;
                stream.last = now;
                self.post_messages(cqe.wr_id as u32);
            } else {
                stream.failure.get_or_insert(cqe.status);
            }
        }
        if let Some(mut program) = self.drivers.programs[host.index()].take() {
            if let Some(transport) = &mut self.drivers.transports[host.index()] {
                program.poll(&mut Verbs { now, transport });
            }
            self.drivers.programs[host.index()] = Some(program);
        }
    }

    /// Posts as many messages of a stream as may be outstanding.
    pub(crate) fn post_messages(&mut self, id: u32) {
        let now = self.fabric.now();
        let Drivers {
            transports,
            streams,
            ..
        } = &mut self.drivers;
        let Some(stream) = streams.get_mut(id as usize) else {
            return;
        };
        let Some(transport) = &mut transports[stream.spec.from.index()] else {
            return;
        };
        let mut verbs = Verbs { now, transport };
        while stream.posted < stream.spec.count
            && stream.posted - stream.completed < u64::from(stream.spec.depth.max(1))
            && stream.failure.is_none()
        {
            let sges = [stream.sge()];
            let opcode = stream.spec.op.opcode();
            let mut wr = SendWr::new(u64::from(id), opcode, WrData::Sges(&sges));
            (wr.remote_addr, wr.rkey) = stream.remote;
            wr.compare_add = 1;
            if verbs.post_send(stream.qp.index, &wr).is_err() {
                break;
            }
            stream.posted += 1;
        }
    }

    /// A receive was filled: posts it again, now or later.
    fn renew_receive(&mut self, id: u32) {
        let stream = &self.drivers.streams[id as usize];
        let (host, wait) = (stream.peer.host, stream.spec.repost);
        if wait == Span::ZERO {
            return self.post_receive(id);
        }
        let due = self.fabric.now() + wait;
        self.set_timer(host, due, TimerFor::Receive(id));
    }

    /// Posts a receive for the messages of a stream.
    pub(crate) fn post_receive(&mut self, id: u32) {
        let now = self.fabric.now();
        let stream = &self.drivers.streams[id as usize];
        let (wr_id, sges) = (u64::from(id), [stream.recv_sge()]);
        let wr = RecvWr { wr_id, sges: &sges };
        let (host, index, qpn) = (stream.peer.host, stream.peer.index, stream.peer.qpn);
        if let Some(transport) = &mut self.drivers.transports[host.index()]
            && transport.cqs.model.qpn_of(index) == qpn.get()
        {
            // A QP that has failed takes none: its stream has ended.
            let _ = Verbs { now, transport }.post_recv(index, &wr);
        }
    }

    /// Moves packets from a transport to its adapter, as long as that has room, and sets its timer.
    #[inline]
    fn pump(&mut self, host: HostId) {
        let now = self.fabric.now();
        loop {
            let Some(transport) = &mut self.drivers.transports[host.index()] else {
                return;
            };
            let planes = self.fabric.ports_of(host).len();
            let more = self.fabric.waiting_in_all(host) < (BATCH * planes) as u64
                && transport.poll_transmit(now, &mut self.drivers.batch);
            if self.drivers.batch.is_empty() {
                break;
            }
            self.launch(host);
            self.drivers.batch.clear();
            if !more {
                break;
            }
        }
        let Some(transport) = &mut self.drivers.transports[host.index()] else {
            return;
        };
        if let Some(at) = transport.next_timeout()
            && transport.timer_at.is_none_or(|set| at < set)
        {
            let at = at.max(now);
            transport.timer_at = Some(at);
            self.set_timer(host, at, TimerFor::Transport);
        }
    }

    /// Hands the packets of the batch to the adapter of a host.
    fn launch(&mut self, host: HostId) {
        let now = self.fabric.now();
        let Drivers {
            transports,
            batch,
            unreadable,
            ..
        } = &mut self.drivers;
        let mut steered = transports[host.index()]
            .as_mut()
            .and_then(|transport| transport.steered.as_mut());
        for run in batch.runs() {
            for packet in run.packets(&batch.bytes()[run.range.clone()]) {
                match self.fabric.enclose(host, &run.dest, packet) {
                    Some(frame) => {
                        if let Some(steered) = &mut steered
                            && let Payload::Roce { body, .. } = frame.payload
                        {
                            let echo = steered.on_sent(frame.dst, packet, now);
                            if echo.as_ref().is_some_and(|echo| echo.marked) {
                                self.fabric.set_becn(body);
                            }
                            self.fabric
                                .telemetry
                                .clear(body, echo.map(|echo| echo.hops));
                        }
                        self.fabric.send(host, frame);
                    }
                    None => *unreadable += 1,
                }
            }
        }
    }
}

impl crate::Fabric {
    /// An acknowledgement says that data was marked.
    fn set_becn(&mut self, body: BodyId) {
        let headers = match self.config.mode {
            Mode::Bytes => IP_OFFSET + (self.qos.tag_len() + IP_UDP_LEN) as usize,
            Mode::Lite => 0,
        };
        self.bodies.get_mut(body)[headers + BECN_BYTE] |= BECN;
    }

    /// Makes a frame of a packet; `None` if it goes to no host.
    #[inline]
    pub(crate) fn enclose(&mut self, host: HostId, dest: &TxDest, packet: &[u8]) -> Option<Frame> {
        let std::net::IpAddr::V4(remote) = dest.remote else {
            return None;
        };
        let dst =
            host_of(remote).filter(|dst| is_group(*dst) || dst.index() < self.adapters.len())?;
        let qos = &self.qos;
        let priority = qos.priority_of(dest.tos);
        let len = frame_len(IP_UDP_LEN + packet.len() as u32, qos);
        let envelope = Envelope {
            src: host,
            dst,
            source_port: dest.source_port,
            tos: dest.tos,
            ttl: 64,
            pcp: (qos.tag_len() > 0).then_some(priority),
        };
        let body = match self.config.mode {
            Mode::Bytes => {
                let body = self.bodies.take(len as usize);
                encode(self.bodies.get_mut(body), &envelope, packet);
                body
            }
            Mode::Lite => {
                let body = self.bodies.take(LITE_BODY);
                let kept = LITE_BODY.min(packet.len());
                self.bodies.get_mut(body)[..kept].copy_from_slice(&packet[..kept]);
                body
            }
        };
        Some(Frame {
            next: None,
            len,
            src: host,
            dst,
            flow_hash: flow_hash(host, dst, dest.source_port),
            ingress: self.port_of(host),
            priority,
            tos: dest.tos,
            ttl: 64,
            rail: 0,
            is_behind: false,
            born: self.now(),
            digest: digest(packet),
            payload: Payload::Roce {
                body,
                len: packet.len() as u32,
            },
        })
    }
}

/// Where FECN and BECN are in a BTH, and which bit is BECN. The ICRC does not cover them.
const BECN_BYTE: usize = 4;
const BECN: u8 = 0x40;

/// Stands for a packet in the trace: its BTH, which no two packets of a connection share for long. The
/// ICRC is not in it, as `lite` mode has none that means anything.
#[inline]
fn digest(packet: &[u8]) -> u64 {
    match packet.first_chunk::<12>() {
        Some(&[a, b, c, d, e, f, g, h, i, j, k, l]) => {
            let first = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
            mix64(first) ^ u64::from(u32::from_le_bytes([i, j, k, l]))
        }
        None => 0,
    }
}
