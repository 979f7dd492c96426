//! In-band telemetry (INT): what ports of switches write into packets that leave by them, and receivers send back. It is kept
//! beside the packets, so that it takes no room in them.

use crate::engine::{Rate, Time};
use crate::frame::BodyId;
use crate::topology::PortId;

/// What one port wrote.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hop {
    /// The port.
    pub port: PortId,
    /// Bytes that wait in it, behind the packet.
    pub queue: u64,
    /// Bytes that it has sent so far, with preambles and gaps.
    pub sent: u64,
    /// When the packet began to leave.
    pub at: Time,
    /// Of its link.
    pub rate: Rate,
}

/// Hops that a packet has room for.
const HOPS_MAX: usize = 8;

/// What a packet has with it, by the place of its bytes; nothing while no algorithm reads it.
#[derive(Debug, Default)]
pub(crate) struct Telemetry {
    is_read: bool,
    notes: Vec<Vec<Note>>,
}

/// What was written into one packet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Note {
    pub(crate) hops: Vec<Hop>,
    /// It is what the other end received: switches write nothing more.
    pub(crate) is_echo: bool,
}

impl Telemetry {
    /// From now on packets have it.
    pub(crate) fn begin(&mut self) {
        self.is_read = true;
    }

    #[inline]
    pub(crate) fn is_read(&self) -> bool {
        self.is_read
    }

    /// A new packet: nothing is written in it, or what it brings back.
    pub(crate) fn clear(&mut self, body: BodyId, echo: Option<&[Hop]>) {
        let note = self.place(body);
        note.hops.clear();
        note.is_echo = echo.is_some();
        note.hops.extend_from_slice(echo.unwrap_or_default());
    }

    pub(crate) fn write(&mut self, body: BodyId, hop: Hop) {
        let note = self.place(body);
        if !note.is_echo && note.hops.len() < HOPS_MAX {
            note.hops.push(hop);
        }
    }

    pub(crate) fn of(&mut self, body: BodyId) -> &Note {
        self.place(body)
    }

    fn place(&mut self, body: BodyId) -> &mut Note {
        let (size, place) = (body.size(), body.place());
        if self.notes.len() <= size {
            self.notes.resize_with(size + 1, Vec::new);
        }
        let notes = &mut self.notes[size];
        if notes.len() <= place {
            notes.resize_with(place + 1, Note::default);
        }
        &mut notes[place]
    }
}
