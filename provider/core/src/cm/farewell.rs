//! What others at the address of a process that was killed say to its peers: the end of each of its connections, which the process
//! cannot say any more.

use urxe_wire::Qpn;
use urxe_wire::cm::{CmMessage, Dreq};

use super::conn::{Conn, State};
use super::message::Mad;
use super::terms::MadPath;

/// All that it takes to end a connection in the name of another owner of its address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Farewell {
    /// The addresses of both sides, as the owner of the connection sees them.
    pub path: MadPath,
    /// The connection's id at its owner.
    pub local_id: u32,
    /// Its id at the peer.
    pub remote_id: u32,
    /// The peer's QP.
    pub remote_qpn: Qpn,
    /// Of the messages about it.
    pub transaction_id: u64,
}

impl Farewell {
    /// None of a connection that the peer does not know of, or that has ended.
    pub(super) fn of(conn: &Conn) -> Option<Farewell> {
        let lasts = match conn.state {
            // An address that has not answered may be a stranger's.
            State::RepSent => conn.proven,
            State::RepReceived | State::Established | State::DreqSent => true,
            _ => false,
        };
        lasts.then_some(Farewell {
            path: conn.path,
            local_id: conn.id.0,
            remote_id: conn.remote_id,
            remote_qpn: conn.remote_qpn,
            transaction_id: conn.transaction_id,
        })
    }

    /// The DREQ that the owner would send.
    pub(super) fn mad(&self) -> Mad {
        let message = Dreq {
            local_comm_id: self.local_id,
            remote_comm_id: self.remote_id,
            remote_qpn: self.remote_qpn,
            ..Dreq::default()
        };
        CmMessage::Dreq(message).emit_mad(self.transaction_id)
    }
}

/// Connections that began or ended since they were last asked for.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// They are asked for.
    pub(super) is_kept: bool,
    pub(super) places: Vec<u32>,
}
