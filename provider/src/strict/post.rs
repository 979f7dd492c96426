//! Checks of strict mode when a request is posted. The engine's lock is held, so that nothing
//! of it is sent, and nothing placed, before its buffers are taken.

use urxe_core::memory::Memory;
use urxe_core::mr::{Access, AccessFault, MrTable};
use urxe_core::work::{PostError, RecvWr, SendFlags, SendWr, Sge, WrData, WrOpcode};
use urxe_wire::Qpn;

use super::entry::{Piece, Queue, name_of};
use super::place::Place;
use super::report::StrictReport;
use super::rule::StrictRule;
use super::{QpNotes, Strict};
use crate::mem::UserMemory;
use crate::network::{Act, Network};

/// A request that strict mode looks at while it is posted.
pub(crate) trait Watched {
    /// Before the core has it: a completion may follow at once.
    fn begin(&self, strict: &mut Strict, queue: Queue, mrs: &MrTable, at: Place);
    /// The core has it. `room` is that of its completion queue.
    fn finish(&self, strict: &mut Strict, queue: Queue, mrs: &MrTable, room: usize);
    /// What a network is told before the core has it.
    fn tell(&self, network: &dyn Network, queue: Queue, mrs: &MrTable);
    /// The core refused it.
    fn cancel(&self, strict: &mut Strict, queue: Queue, error: PostError, at: Place);
}

impl Watched for SendWr<'_> {
    fn begin(&self, strict: &mut Strict, queue: Queue, mrs: &MrTable, at: Place) {
        let Some((qpn, notes)) = queue
            .qpn()
            .and_then(|qpn| Some((qpn, strict.qps.get(&qpn)?)))
        else {
            return;
        };
        let is_signaled = notes.sq_sig_all || self.flags.contains(SendFlags::SIGNALED);
        let name = name_of(self.opcode);
        strict
            .ledger
            .begin(queue, self.wr_id, name, is_signaled, at);
        if uses_rkey(self.opcode)
            && let Some(region) = mrs.region_of_lkey(self.rkey.0)
        {
            let text = format!(
                "a {name} (wr_id {}) carries the rkey {:#x}, which is the lkey of this program's own \
                 region of {} bytes at {:#x}.",
                self.wr_id, self.rkey.0, region.len, region.iova
            );
            let report = StrictReport::new(StrictRule::LkeyAsRkey, text);
            strict.reports.add(report.of(self.wr_id, at).on(qpn));
        }
    }

    fn finish(&self, strict: &mut Strict, queue: Queue, mrs: &MrTable, room: usize) {
        let is_read = self.opcode.returns_data();
        if let WrData::Sges(sges) = self.data {
            let need = if is_read {
                Access::LOCAL_WRITE
            } else {
                Access::NONE
            };
            strict.find_pieces(queue, sges, mrs, need);
        }
        if is_read {
            strict.ledger.take_target(queue);
        } else if strict
            .ledger
            .take_source(queue, self.flags.contains(SendFlags::FENCE))
        {
            strict.report_newest(queue, StrictRule::SendFromReceiveBuffer, |name| {
                format!(
                    "a {name} (wr_id {}) takes its bytes from a buffer that is posted for a receive, \
                     or for the result of a READ or an atomic.",
                    self.wr_id
                )
            });
        }
        strict.check_send_queue(queue);
        strict.expect_completion(queue, room);
    }

    fn tell(&self, network: &dyn Network, queue: Queue, mrs: &MrTable) {
        let Some(qpn) = queue.qpn().map(Qpn::get) else {
            return;
        };
        let gathered;
        let bytes = match self.data {
            WrData::Inline(bytes) => bytes,
            WrData::Sges(_) if self.opcode.returns_data() => &[],
            WrData::Sges(sges) => {
                gathered = gather(sges, mrs).unwrap_or_default();
                &gathered[..]
            }
        };
        network.note(&Act::Send {
            qpn,
            wr: self,
            bytes,
        });
    }

    fn cancel(&self, strict: &mut Strict, queue: Queue, error: PostError, at: Place) {
        strict.ledger.cancel(queue);
        if !matches!(error, PostError::QueueFull(_))
            || strict.ledger.entries(queue).any(|entry| entry.is_signaled)
        {
            return;
        }
        let text = format!(
            "the send queue is full, and none of the {} requests in it makes a completion.",
            strict.ledger.len(queue)
        );
        let report = StrictReport::new(StrictRule::NeverSignaled, text);
        let report = report.of(self.wr_id, at);
        strict.reports.add(match queue.qpn() {
            Some(qpn) => report.on(qpn),
            None => report,
        });
    }
}

impl Watched for RecvWr<'_> {
    fn begin(&self, strict: &mut Strict, queue: Queue, _: &MrTable, at: Place) {
        if strict.pd_of(queue).is_some() {
            strict.ledger.begin(queue, self.wr_id, "receive", true, at);
        }
    }

    fn finish(&self, strict: &mut Strict, queue: Queue, mrs: &MrTable, room: usize) {
        strict.find_pieces(queue, self.sges, mrs, Access::LOCAL_WRITE);
        strict.ledger.take_target(queue);
        strict.expect_completion(queue, room);
        for (qpn, refused) in strict.refused_for_want_of(queue) {
            strict.report_newest(queue, StrictRule::ReceivePostedLate, |_| {
                format!(
                    "this receive (wr_id {}) was posted after a message that needs one had arrived at \
                     QP {:#x} and been refused {refused} times.",
                    self.wr_id,
                    qpn.get()
                )
            });
        }
    }

    fn tell(&self, network: &dyn Network, queue: Queue, _: &MrTable) {
        let (qpn, wr_id) = (queue.qpn().map(Qpn::get), self.wr_id);
        network.note(&Act::Recv { qpn, wr_id });
    }

    fn cancel(&self, strict: &mut Strict, queue: Queue, _: PostError, _: Place) {
        strict.ledger.cancel(queue);
    }
}

/// The bytes of a list; `None` if some are not to be read.
fn gather(sges: &[Sge], mrs: &MrTable) -> Option<Vec<u8>> {
    /// Read at once: a program may give any length, and no memory is taken for what is not there.
    const PIECE: usize = 1 << 16;
    let mut all = Vec::new();
    for sge in sges.iter().filter(|sge| sge.length > 0) {
        let pd = mrs.region_of_lkey(sge.lkey.0)?.pd;
        let len = sge.length as usize;
        let span = mrs.check_local(sge.lkey, pd, sge.addr, len, Access::NONE);
        let span = span.ok()?;
        for at in (0..len).step_by(PIECE) {
            let (from, piece) = (all.len(), PIECE.min(len - at));
            all.resize(from + piece, 0);
            let piece = span.part(at, piece);
            UserMemory.copy_out(piece, &mut all[from..]).ok()?;
        }
    }
    Some(all)
}

impl Strict {
    /// QPs that had no receive, and how often that was noticed.
    fn refused_for_want_of(&mut self, queue: Queue) -> Vec<(Qpn, u64)> {
        let is_meant = |qpn, notes: &QpNotes| match queue {
            Queue::Send(_) => false,
            Queue::Recv(own) => qpn == own,
            Queue::Shared(id) => notes.srq == Some(id),
        };
        let qps = self.qps.iter_mut();
        let meant = qps.filter(|(qpn, notes)| notes.refused > 0 && is_meant(**qpn, notes));
        meant
            .map(|(&qpn, notes)| (qpn, std::mem::take(&mut notes.refused)))
            .collect()
    }

    fn find_pieces(&mut self, queue: Queue, sges: &[Sge], mrs: &MrTable, need: Access) {
        let Some(pd) = self.pd_of(queue) else {
            return;
        };
        let (mut pieces, mut offset) = (Vec::new(), 0);
        for sge in sges.iter().filter(|sge| sge.length > 0) {
            let len = sge.length as usize;
            match mrs.check_local(sge.lkey, pd, sge.addr, len, need) {
                Ok(span) => pieces.push(Piece {
                    lkey: sge.lkey,
                    span,
                    offset,
                }),
                Err(fault) => {
                    // The request fails by itself, and its completion says why.
                    if fault == AccessFault::Pd {
                        self.report_newest(queue, StrictRule::PdMismatch, |name| {
                            format!(
                                "a {name} uses the region with lkey {:#x}, which is in another \
                                 protection domain than its queue.",
                                sge.lkey.0
                            )
                        });
                    }
                    return;
                }
            }
            offset += len;
        }
        if let Some(entry) = self.ledger.newest(queue) {
            entry.pieces = pieces;
        }
    }

    /// Hardware counts a request until the program polls.
    fn check_send_queue(&mut self, queue: Queue) {
        let notes = queue.qpn().and_then(|qpn| self.qps.get(&qpn));
        let places = notes.map(|notes| notes.max_send_wr);
        let (len, places) = (self.ledger.len(queue), places.unwrap_or(u32::MAX) as usize);
        if len <= places {
            return;
        }
        let is_signaled = self.ledger.entries(queue).any(|entry| entry.is_signaled);
        let rule = if is_signaled {
            StrictRule::SendQueueNotPolled
        } else {
            StrictRule::NeverSignaled
        };
        self.report_newest(queue, rule, |name| {
            let which = if is_signaled {
                "whose completions were not polled"
            } else {
                "of which none makes a completion"
            };
            format!(
                "this {name} is number {len} in a send queue of {places} places, behind requests \
                 {which}."
            )
        });
    }

    /// The newest request may bring a completion.
    fn expect_completion(&mut self, queue: Queue, room: usize) {
        let signaled = self.ledger.entries(queue).next_back();
        if signaled.is_none_or(|entry| !entry.is_signaled) {
            return;
        }
        let Some(cq) = self.cq_of(queue) else {
            return;
        };
        let expected = self.expected.entry(cq).or_default();
        *expected += 1;
        let count = *expected;
        if count > room {
            self.report_newest(queue, StrictRule::CqTooSmall, |name| {
                format!(
                    "with this {name}, {count} completions may come that the program has not polled, \
                     and the completion queue takes {room}."
                )
            });
        }
    }

    fn report_newest(
        &mut self,
        queue: Queue,
        rule: StrictRule,
        text: impl FnOnce(&'static str) -> String,
    ) {
        if let Some(entry) = self.ledger.entries(queue).next_back() {
            let report = entry.report(rule, queue.qpn(), text(entry.name));
            self.reports.add(report);
        }
    }
}

fn uses_rkey(opcode: WrOpcode) -> bool {
    !matches!(opcode, WrOpcode::Send | WrOpcode::SendWithImm)
}
