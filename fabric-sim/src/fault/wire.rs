//! Faults applied to frames that leave ports.

use urxe_wire::{Opcode, Operation};

use crate::engine::{Rng, Span, Time, mix64};
use crate::envelope::{IP_OFFSET, patch_ipv4};
use crate::fabric::{DropReason, Mode};
use crate::fault::hit::Hit;
use crate::fault::{ActiveFault, Chance, FaultKind, Faults, Forgery, Frames, NUMBERS_MAX};
use crate::frame::{Frame, Payload};
use crate::topology::{HostId, Node, PortId};

/// Headers of IP and UDP before a packet.
pub(super) const IP_UDP: usize = 28;

/// Copies of one frame that faults can make.
const COPIES_MAX: usize = 4;

/// What all faults together made of a frame.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Verdict {
    /// The reason, if the frame is lost.
    pub(crate) lost: Option<DropReason>,
    /// The delay of its arrival.
    pub(crate) delay: Span,
    /// The delays of copies that arrive again after it.
    pub(crate) copies: [Option<Span>; COPIES_MAX],
    /// A forged frame that arrives with it, made with these bits.
    pub(crate) forged: Option<(Forgery, u64)>,
}

/// A frame that leaves a port.
pub(crate) struct Leaving<'a> {
    pub(crate) now: Time,
    pub(crate) port: PortId,
    pub(crate) node: Node,
    pub(crate) mode: Mode,
    /// Bytes of a VLAN tag.
    pub(crate) tag_len: usize,
    pub(crate) frame: &'a mut Frame,
    pub(crate) bytes: &'a mut [u8],
}

impl Leaving<'_> {
    /// Where the packet begins in the bytes, if it is one.
    fn packet_at(&self) -> Option<usize> {
        let Payload::Roce { .. } = self.frame.payload else {
            return None;
        };
        Some(match self.mode {
            Mode::Bytes => IP_OFFSET + self.tag_len + IP_UDP,
            Mode::Lite => 0,
        })
    }

    fn operation(&self) -> Option<Operation> {
        let opcode = *self.bytes.get(self.packet_at()?)?;
        Some(Opcode(opcode).info()?.operation)
    }

    /// What is told of a hit.
    fn hit(&self, number: u64) -> Hit {
        let bth = self
            .packet_at()
            .and_then(|at| self.bytes.get(at..at + 12)?.first_chunk());
        Hit {
            at: self.now,
            port: self.port,
            number,
            from: self.frame.src,
            to: self.frame.dst,
            len: self.frame.len,
            bth: bth.copied(),
        }
    }

    fn is_among(&self, frames: Frames) -> bool {
        let is_control = self.frame.payload.is_control();
        let wanted: &[Operation] = match frames {
            Frames::Data => return !is_control,
            Frames::Control => return is_control,
            Frames::All => return true,
            Frames::Acks => &[Operation::Acknowledge],
            Frames::Atomics => &[
                Operation::CompareSwap,
                Operation::FetchAdd,
                Operation::AtomicWrite,
                Operation::AtomicAcknowledge,
            ],
            Frames::Reads => &[Operation::ReadRequest, Operation::ReadResponse],
            Frames::Cnps => &[Operation::Cnp],
        };
        self.operation().is_some_and(|op| wanted.contains(&op))
    }
}

impl Faults {
    /// Decides on a frame that leaves a port, and changes it.
    pub(crate) fn on_wire(&mut self, leaving: &mut Leaving<'_>) -> Verdict {
        let mut verdict = Verdict::default();
        for fault in &mut self.list {
            if fault.covers[leaving.port.index()]
                && fault.fault.kind.is_about_frames()
                && leaving.is_among(fault.fault.frames)
            {
                fault.decide(leaving, &mut verdict);
            }
            if verdict.lost.is_some() {
                break;
            }
        }
        verdict
    }
}

/// What a draw is for: draws for different purposes have nothing to do with each other.
#[derive(Clone, Copy)]
enum Draw {
    Hit,
    State,
    Detail,
}

impl ActiveFault {
    /// A draw that belongs to the frame's number, not to the draws before it.
    fn draw(&self, number: u64, what: Draw) -> u64 {
        mix64(self.seed ^ mix64(number << 2 | what as u64))
    }

    fn is_hit(&self, number: u64) -> bool {
        let draw = || self.draw(number, Draw::Hit);
        match &self.fault.chance {
            Chance::Always => true,
            Chance::Probability(_) => self.odds == u64::MAX || draw() < self.odds,
            Chance::Every(n) => number % n == n - 1,
            Chance::Nth(numbers) => numbers.binary_search(&number).is_ok(),
        }
    }

    fn decide(&mut self, leaving: &mut Leaving<'_>, verdict: &mut Verdict) {
        let number = self.seen;
        self.seen += 1;
        let is_in_window = (self.fault.from..self.fault.to).contains(&leaving.now);
        // The state of a burst goes on outside the window, so that a narrower one has the same bursts.
        let is_hit = match self.fault.kind {
            FaultKind::BurstLoss { enter, leave, loss } => {
                self.is_in_burst(leaving.port, number, (enter, leave, loss))
            }
            _ => self.is_hit(number),
        };
        if is_hit && is_in_window && self.strike(number, leaving, verdict) {
            self.hits += 1;
            self.keep(leaving.hit(number));
            if self.numbers.len() < NUMBERS_MAX {
                self.numbers.push(number);
            }
        }
    }

    fn is_in_burst(
        &mut self,
        port: PortId,
        number: u64,
        (enter, leave, loss): (f64, f64, f64),
    ) -> bool {
        let was_bad = self.bad[port.index()];
        let turns = self.draw(number, Draw::State) < Rng::odds(if was_bad { leave } else { enter });
        let is_bad = was_bad != turns;
        self.bad[port.index()] = is_bad;
        let odds = Rng::odds(loss);
        is_bad && (odds == u64::MAX || self.draw(number, Draw::Hit) < odds)
    }

    /// Does it; false if there was nothing to do with this frame.
    fn strike(&mut self, number: u64, leaving: &mut Leaving<'_>, verdict: &mut Verdict) -> bool {
        let detail = self.draw(number, Draw::Detail);
        match &self.fault.kind {
            FaultKind::Loss | FaultKind::BurstLoss { .. } => {
                verdict.lost = Some(DropReason::Fault);
            }
            FaultKind::Corrupt => verdict.lost = Some(DropReason::BitError),
            FaultKind::CorruptInside => return damage(leaving, verdict, detail),
            FaultKind::Duplicate { later } => {
                let place = verdict.copies.iter_mut().find(|copy| copy.is_none());
                match place {
                    Some(place) => *place = Some(*later),
                    None => return false,
                }
            }
            FaultKind::Reorder { by } => verdict.delay += *by,
            FaultKind::Delay { by, jitter } => {
                let more = (u128::from(jitter.ps()) * u128::from(detail)) >> 64;
                let due = leaving.now + verdict.delay + *by + Span::from_ps(more as u64);
                let last = &mut self.last[leaving.port.index()];
                *last = due.max(*last);
                verdict.delay = last.since(leaving.now);
            }
            FaultKind::Partition { side, one_way } => {
                // At the first cable, where what is sent is known to be the host's own.
                let is_side = |host: &HostId| side.contains(host);
                let (from, to) = (is_side(&leaving.frame.src), is_side(&leaving.frame.dst));
                let is_first = leaving.node == Node::Host(leaving.frame.src);
                if !is_first || from == to || (*one_way && to) || leaving.frame.payload.is_control()
                {
                    return false;
                }
                verdict.lost = Some(DropReason::Fault);
            }
            FaultKind::BleachEcn => return bleach(leaving),
            FaultKind::BlackHole { mtu } => {
                let around = crate::link::ETHERNET_OVERHEAD + leaving.tag_len as u32;
                if leaving.frame.len <= mtu + around {
                    return false;
                }
                verdict.lost = Some(DropReason::Fault);
            }
            FaultKind::Forge(forgery) => {
                if leaving.packet_at().is_none() {
                    return false;
                }
                verdict.forged = Some((*forgery, detail));
            }
            _ => return false,
        }
        true
    }
}

/// Turns a bit over that the ICRC covers. Without bytes, the packet is cut off: what reads it finds that.
fn damage(leaving: &mut Leaving<'_>, verdict: &mut Verdict, detail: u64) -> bool {
    let Some(at) = leaving.packet_at() else {
        // Nothing inside could tell: the frame does not arrive.
        verdict.lost = Some(DropReason::Fault);
        return true;
    };
    let Payload::Roce { len, .. } = &mut leaving.frame.payload else {
        return false;
    };
    // Byte 4 of the BTH is not covered.
    let places = u64::from(*len).saturating_sub(1);
    let place = ((u128::from(detail) * u128::from(places * 8)) >> 64) as usize;
    let byte = place / 8 + usize::from(place / 8 >= 4);
    if let (true, Some(byte)) = (*len > 1, leaving.bytes.get_mut(at + byte)) {
        *byte ^= 1 << (place % 8);
    }
    if leaving.mode == Mode::Lite {
        *len = 0;
    }
    true
}

/// Clears the ECN bits.
fn bleach(leaving: &mut Leaving<'_>) -> bool {
    let frame = &mut *leaving.frame;
    if frame.tos & 3 == 0 || frame.payload.is_control() {
        return false;
    }
    frame.tos &= !3;
    if let (Payload::Roce { .. }, Mode::Bytes) = (frame.payload, leaving.mode) {
        let ip = IP_OFFSET + leaving.tag_len;
        patch_ipv4(&mut leaving.bytes[ip..], frame.tos, frame.ttl);
    }
    true
}
