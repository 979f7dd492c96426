//! Checks of strict mode when packets arrive and objects are destroyed.

use urxe_core::error::DropReason;
use urxe_core::mr::MrTable;
use urxe_core::qp::state::QpState;
use urxe_core::{Shard, Stats};
use urxe_wire::{Lkey, Operation, Packet, Qpn};

use super::Strict;
use super::entry::Queue;
use super::place::Place;
use super::ranges::Range;
use super::report::StrictReport;
use super::rule::StrictRule;
use crate::queues::{CqCore, CqTable};

/// Times in a row that a peer asks to wait before that is worth a word: with the usual
/// timer some 20 ms.
const RNR_IN_A_ROW: u32 = 32;

/// The number that means "for ever".
const RNR_RETRY_ENDLESS: u8 = 7;

impl Strict {
    pub(crate) fn before_packet(&mut self, bytes: &[u8]) {
        let Ok(packet) = Packet::parse(bytes) else {
            return;
        };
        // READ, FLUSH, atomics: by the answer the peer knows that the WRITEs before are
        // placed. A SEND tells by its completion.
        let (info, qpn) = (packet.info(), packet.bth().dest_qp);
        if !info.is_response() && !matches!(info.operation, Operation::Write | Operation::Send) {
            self.writes.place_of(qpn);
        }
    }

    /// After the core had it; `before` is what was counted until then.
    pub(crate) fn after_packet(
        &mut self,
        bytes: &[u8],
        before: &Stats,
        shard: &Shard,
        mrs: &MrTable,
    ) {
        let now = shard.stats();
        let is_dropped = |reason| now.dropped_for(reason) > before.dropped_for(reason);
        let [no_receive, too_long, qkey] = [
            DropReason::NoReceive,
            DropReason::ReceiveTooShort,
            DropReason::Qkey,
        ]
        .map(is_dropped);
        let is_usual = !(no_receive || too_long || qkey)
            && now.send_rnr_err == before.send_rnr_err
            && now.rcvd_rnr_err == before.rcvd_rnr_err
            && now.responder_err == before.responder_err;
        if is_usual {
            return;
        }
        let Ok(packet) = Packet::parse(bytes) else {
            return;
        };
        let qpn = packet.bth().dest_qp;
        if now.send_rnr_err > before.send_rnr_err {
            self.on_missing_receive(qpn, "the peer was told to try again later");
        }
        if no_receive {
            self.on_missing_receive(qpn, "the message is lost");
        }
        if too_long {
            let text = "does not fit the receive that was its turn, and is lost";
            self.on_dropped(StrictRule::DatagramTooLong, qpn, text);
        }
        if qkey {
            let text = "has another Q_Key than the QP, and is lost";
            self.on_dropped(StrictRule::WrongQkey, qpn, text);
        }
        if now.rcvd_rnr_err > before.rcvd_rnr_err {
            self.on_rnr_nak(qpn, shard);
        }
        if now.responder_err > before.responder_err {
            self.on_refused(&packet, mrs);
        }
    }

    fn on_missing_receive(&mut self, qpn: Qpn, outcome: &str) {
        if let Some(notes) = self.qps.get_mut(&qpn) {
            notes.refused += 1;
        }
        let text = format!(
            "a message arrived at QP {:#x} and no receive was posted for it; {outcome}.",
            qpn.get()
        );
        let report = StrictReport::new(StrictRule::MissingReceive, text).on(qpn);
        self.reports.add(report);
    }

    fn on_dropped(&mut self, rule: StrictRule, qpn: Qpn, what: &str) {
        let text = format!("a message for QP {:#x} {what}.", qpn.get());
        self.reports.add(StrictReport::new(rule, text).on(qpn));
    }

    fn on_rnr_nak(&mut self, qpn: Qpn, shard: &Shard) {
        let Some(notes) = self.qps.get_mut(&qpn) else {
            return;
        };
        notes.rnr_in_a_row += 1;
        let is_endless = shard
            .query_qp(notes.index)
            .is_some_and(|(attr, _)| attr.rnr_retry == RNR_RETRY_ENDLESS);
        if notes.rnr_in_a_row != RNR_IN_A_ROW || !is_endless {
            return;
        }
        let queue = Queue::Send(qpn);
        let oldest = self.ledger.entries(queue).find(|e| e.done.is_none());
        if let Some(entry) = oldest {
            let text = format!(
                "the peer of QP {:#x} has answered \"no receive posted\" {RNR_IN_A_ROW} times in a row, \
                 and with rnr_retry 7 a {} (wr_id {}) is tried again for ever.",
                qpn.get(),
                entry.name,
                entry.wr_id
            );
            let report = entry.report(StrictRule::EndlessRnrRetry, qpn, text);
            self.reports.add(report);
        }
    }

    /// A peer's request was refused with a NAK.
    fn on_refused(&mut self, packet: &Packet<'_>, mrs: &MrTable) {
        let in_reth = packet.reth().map(|reth| reth.rkey);
        let in_atomic = packet.atomic_eth().map(|eth| eth.rkey);
        let Some(rkey) = in_reth.or(in_atomic).or(packet.ieth().map(|eth| eth.rkey)) else {
            return;
        };
        let Some(region) = mrs.region_of_lkey(rkey.0) else {
            return;
        };
        let qpn = packet.bth().dest_qp;
        let text = format!(
            "the peer of QP {:#x} used the rkey {:#x}, which is the lkey of this program's region of {} \
             bytes at {:#x}: this program told it the wrong key, and the request was refused.",
            qpn.get(),
            rkey.0,
            region.len,
            region.iova
        );
        let report = StrictReport::new(StrictRule::LkeyAsRkey, text).on(qpn);
        self.reports.add(report);
    }

    pub(crate) fn on_deregister(&mut self, lkey: Lkey, shard: &Shard) {
        let qps = &self.qps;
        let reports = self.ledger.deregister(lkey, |queue, from_end| {
            // The newest requests are those that the core still has.
            match queue {
                Queue::Send(qpn) => {
                    let notes = qps.get(&qpn);
                    let in_core = notes.map_or(0, |notes| shard.sq_len(notes.index));
                    from_end <= in_core as usize
                }
                // What completed is known by its completion.
                Queue::Recv(_) | Queue::Shared(_) => true,
            }
        });
        for report in reports {
            self.reports.add(report);
        }
    }

    /// The state of a QP was changed: RESET forgets all requests.
    pub(crate) fn on_modified(&mut self, qpn: Qpn, state: QpState) {
        if state == QpState::Reset {
            self.forget(qpn);
        }
    }

    pub(crate) fn on_qp_destroyed(&mut self, qpn: Qpn, shard: &Shard, cqs: &mut CqTable) {
        let in_core = self.qps.get(&qpn).map(|notes| shard.sq_len(notes.index));
        let in_core = in_core.unwrap_or(0) as usize;
        let queue = Queue::Send(qpn);
        let skip = self.ledger.len(queue).saturating_sub(in_core);
        if let Some(entry) = self.ledger.entries(queue).nth(skip) {
            let text = format!(
                "QP {:#x} was destroyed while {in_core} of its requests were under way, the oldest a {} \
                 (wr_id {}).",
                qpn.get(),
                entry.name,
                entry.wr_id
            );
            let report = entry.report(StrictRule::QpInUse, qpn, text);
            self.reports.add(report);
        }
        self.completions.release_all(cqs, &mut self.random);
        self.forget(qpn);
        self.qps.remove(&qpn);
    }

    /// So many completions of a QP that was destroyed went with it.
    pub(crate) fn on_completions_lost(&mut self, qpn: Qpn, count: usize) {
        if count > 0 {
            let text = format!(
                "QP {:#x} was destroyed, and with it {count} completions that the program never polled.",
                qpn.get()
            );
            let report = StrictReport::new(StrictRule::CompletionsNotPolled, text);
            self.reports.add(report.on(qpn));
        }
    }

    pub(crate) fn on_cq_destroyed(&mut self, cq: &CqCore) {
        self.expected.remove(&cq.id);
        let left = cq.unpolled();
        if left > 0 {
            let text = format!(
                "a completion queue of {} entries was destroyed with {left} completions in it that the \
                 program never polled.",
                cq.capacity()
            );
            let report = StrictReport::new(StrictRule::CompletionsNotPolled, text);
            self.reports.add(report);
        }
    }

    /// The program read or wrote registered memory by a call of the library.
    pub(crate) fn on_program_access(&mut self, start: u64, len: usize, is_write: bool, at: Place) {
        let end = start + len as u64;
        let range = Range { start, end };
        if is_write {
            // It is reported when it is seen that the bytes are others.
            self.ledger.note_write(range, at);
            return;
        }
        let Some((queue, entry)) = self.ledger.owner_of(range) else {
            return;
        };
        let text = format!(
            "the program reads the buffer of a {} (wr_id {}, posted at {}) before it polled the \
             completion.",
            entry.name, entry.wr_id, entry.at
        );
        let report = entry.report(StrictRule::ReceiveBufferRead, queue.qpn(), text);
        self.reports.add(report.by(at));
    }

    fn forget(&mut self, qpn: Qpn) {
        if let Some(id) = self.qps.get(&qpn).and_then(|notes| notes.srq) {
            self.ledger.forget_done(Queue::Shared(id), qpn);
        }
        for queue in [Queue::Send(qpn), Queue::Recv(qpn)] {
            let cq = self.cq_of(queue);
            let gone = self.ledger.forget(queue);
            let signaled = gone.iter().filter(|entry| entry.is_signaled).count();
            if let Some(expected) = cq.and_then(|cq| self.expected.get_mut(&cq)) {
                *expected = expected.saturating_sub(signaled);
            }
        }
    }
}
