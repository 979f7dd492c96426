//! Streams: a QP that sends messages of one size to another host, as many at a time as are wanted. The
//! usual load of experiments.

use urxe_core::WcStatus;
use urxe_core::qp::attr::QpCap;
use urxe_core::work::{Sge, WrOpcode};
use urxe_wire::{Lkey, Rkey};

use crate::engine::{Rate, Span, Time};
use crate::host::connect::{ConnectOptions, QpHandle};
use crate::host::memory::Contents;
use crate::topology::HostId;

/// A stream, by number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StreamId(pub u32);

/// The operation of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum StreamOp {
    /// RDMA WRITE.
    #[default]
    Write,
    /// RDMA READ: the data flows from `to` to `from`.
    Read,
    /// SEND, into receives that `to` posts again when they are filled.
    Send,
    /// Atomic fetch-and-add of 1 to a counter of `to`; messages have 8 bytes.
    FetchAdd,
}

impl StreamOp {
    pub(crate) fn opcode(self) -> WrOpcode {
        match self {
            StreamOp::Write => WrOpcode::RdmaWrite,
            StreamOp::Read => WrOpcode::RdmaRead,
            StreamOp::Send => WrOpcode::Send,
            StreamOp::FetchAdd => WrOpcode::AtomicFetchAndAdd,
        }
    }

    /// Its name in scenarios and reports.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A stream to be.
#[derive(Clone, Copy, Debug)]
pub struct StreamSpec {
    /// The host that posts.
    pub from: HostId,
    /// The passive host.
    pub to: HostId,
    /// What is posted.
    pub op: StreamOp,
    /// Bytes of a message.
    pub message: u32,
    /// Number of messages.
    pub count: u64,
    /// Messages posted at a time.
    pub depth: u32,
    /// Receives posted at a time, for SENDs; 0: as many as messages.
    pub receives: u32,
    /// Time after which a receive that was filled is posted again.
    pub repost: Span,
    /// When it begins.
    pub start: Time,
    /// The connection.
    pub options: ConnectOptions,
}

impl StreamSpec {
    /// One WRITE of so many bytes, at the start.
    pub fn write(from: HostId, to: HostId, bytes: u32) -> StreamSpec {
        StreamSpec {
            from,
            to,
            op: StreamOp::Write,
            message: bytes,
            count: 1,
            depth: 1,
            receives: 0,
            repost: Span::ZERO,
            start: Time::ZERO,
            options: ConnectOptions::default(),
        }
    }

    pub(crate) fn receives(&self) -> u32 {
        match self.receives {
            0 => self.depth.max(1),
            n => n,
        }
    }

    /// Bytes of a message.
    pub(crate) fn len(&self) -> u32 {
        match self.op {
            StreamOp::FetchAdd => 8,
            _ => self.message,
        }
    }

    /// The region of one end: messages are a pattern; atomics work on numbers, with a place for the result of
    /// each that is posted.
    pub(crate) fn region(&self, stream: u32) -> (u64, Contents) {
        match self.op {
            StreamOp::FetchAdd => {
                let len = 8 * u64::from(self.depth.max(1));
                (len, Contents::Bytes(vec![0; len as usize]))
            }
            _ => (u64::from(self.message.max(1)), Contents::Pattern(stream)),
        }
    }

    pub(crate) fn cap(&self) -> QpCap {
        QpCap {
            max_send_wr: self.depth.max(1),
            max_recv_wr: self.receives(),
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        }
    }
}

/// A stream, and how far it has come.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// The stream as it was requested.
    pub spec: StreamSpec,
    /// The QP that posts.
    pub qp: QpHandle,
    /// The QP at the other end.
    pub peer: QpHandle,
    /// Messages posted.
    pub posted: u64,
    /// Messages completed.
    pub completed: u64,
    /// When the last one completed.
    pub last: Time,
    /// How it failed, if it did.
    pub failure: Option<WcStatus>,
    pub(crate) local: (u64, Lkey),
    pub(crate) remote: (u64, Rkey),
    /// The region of `to`, for its receives.
    pub(crate) remote_lkey: Lkey,
}

impl Stream {
    /// True if every message was completed.
    pub fn is_complete(&self) -> bool {
        self.completed == self.spec.count
    }

    /// Time from its start to its last completion, if it is complete.
    pub fn completion(&self) -> Option<Span> {
        self.is_complete().then(|| self.last.since(self.spec.start))
    }

    /// Completed bytes a second, from its start to its last completion.
    pub fn goodput(&self) -> Option<Rate> {
        Rate::of(
            self.completed * u64::from(self.spec.len()),
            self.last.since(self.spec.start),
        )
    }

    pub(crate) fn sge(&self) -> Sge {
        let slot = match self.spec.op {
            StreamOp::FetchAdd => 8 * (self.posted % u64::from(self.spec.depth.max(1))),
            _ => 0,
        };
        Sge {
            addr: self.local.0 + slot,
            length: self.spec.len(),
            lkey: self.local.1,
        }
    }

    pub(crate) fn recv_sge(&self) -> Sge {
        Sge {
            addr: self.remote.0,
            length: self.spec.len(),
            lkey: self.remote_lkey,
        }
    }
}
