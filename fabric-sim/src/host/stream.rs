//! Streams: a QP that sends messages of one size to another host, as many at a time as are wanted. The
//! usual load of experiments.

use urxe_core::WcStatus;
use urxe_core::qp::attr::QpCap;
use urxe_core::work::{Sge, WrOpcode};
use urxe_wire::{Lkey, Rkey};

use crate::engine::{Rate, Span, Time};
use crate::host::transport::{ConnectOptions, QpHandle};
use crate::topology::HostId;

/// A stream, by number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StreamId(pub u32);

/// The operation of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum StreamOp {
    /// RDMA WRITE.
    #[default]
    Write,
    /// RDMA READ: the data flows from `to` to `from`.
    Read,
}

impl StreamOp {
    pub(crate) fn opcode(self) -> WrOpcode {
        match self {
            StreamOp::Write => WrOpcode::RdmaWrite,
            StreamOp::Read => WrOpcode::RdmaRead,
        }
    }
}

/// A stream to be.
#[derive(Clone, Copy, Debug)]
pub struct StreamSpec {
    /// Who posts.
    pub from: HostId,
    /// Who does nothing.
    pub to: HostId,
    /// What is posted.
    pub op: StreamOp,
    /// Bytes of a message.
    pub message: u32,
    /// Number of messages.
    pub count: u64,
    /// Messages posted at a time.
    pub depth: u32,
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
            start: Time::ZERO,
            options: ConnectOptions::default(),
        }
    }

    pub(crate) fn cap(&self) -> QpCap {
        QpCap {
            max_send_wr: self.depth.max(1),
            max_recv_wr: 1,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        }
    }
}

/// A stream, and how far it has come.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// As it was asked for.
    pub spec: StreamSpec,
    /// The QP that posts.
    pub qp: QpHandle,
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
            self.completed * u64::from(self.spec.message),
            self.last.since(self.spec.start),
        )
    }

    pub(crate) fn sge(&self) -> Sge {
        Sge {
            addr: self.local.0,
            length: self.spec.message,
            lkey: self.local.1,
        }
    }
}
