//! QPs that an algorithm of [`crate::congestion`] steers: what left and when, and what acknowledgements say.

use std::collections::{BTreeMap, VecDeque};

use urxe_core::table::QpIndex;
use urxe_wire::{Operation, Packet, Position, Psn, Syndrome, SyndromeKind};

use crate::congestion::{Ack, Algorithm, Allowance, Pacer};
use crate::engine::Time;
use crate::fabric::Hop;
use crate::topology::HostId;

/// The steered QPs of a host.
#[derive(Debug, Default)]
pub(crate) struct Steered {
    qps: BTreeMap<u32, Qp>,
    /// QPs by the other end: its host and number.
    by_peer: BTreeMap<(HostId, u32), u32>,
    /// What this host gives its senders, if they need credit.
    pub(crate) pacer: Pacer,
}

/// What a packet that has come changes.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// What a QP may do from now on.
    pub(crate) steer: Option<(QpIndex, Allowance)>,
    /// When the pacer wants to be called.
    pub(crate) pace: Option<Time>,
}

#[derive(Debug)]
struct Qp {
    index: QpIndex,
    algorithm: Box<dyn Algorithm>,
    /// Requests that are not acknowledged, by when they left last.
    under_way: VecDeque<(Psn, Time)>,
    last: Option<Psn>,
    is_at_end: bool,
    sent: u64,
    acked: u64,
    /// What switches wrote into the newest request that came.
    written: Vec<Hop>,
    /// One of the requests since the last answer was marked.
    marked: bool,
}

/// What an acknowledgement brings back to the sender of the data.
#[derive(Debug)]
pub(crate) struct Echo<'a> {
    pub(crate) hops: &'a [Hop],
    /// Told in its BECN bit.
    pub(crate) marked: bool,
}

impl Steered {
    /// An algorithm steers a connected QP from now on. Returns what the QP may do at first.
    pub(crate) fn add(
        &mut self,
        qpn: u32,
        index: QpIndex,
        peer: (HostId, u32),
        algorithm: Box<dyn Algorithm>,
    ) -> Allowance {
        let start = algorithm.start();
        self.by_peer.insert(peer, qpn);
        let qp = Qp {
            index,
            algorithm,
            under_way: VecDeque::new(),
            last: None,
            is_at_end: true,
            sent: 0,
            acked: 0,
            written: Vec::new(),
            marked: false,
        };
        self.qps.insert(qpn, qp);
        start
    }

    /// A packet leaves. Returns what it brings back if it is an acknowledgement.
    pub(crate) fn on_sent(&mut self, to: HostId, packet: &[u8], now: Time) -> Option<Echo<'_>> {
        let packet = Packet::parse(packet).ok()?;
        let bth = packet.bth();
        let qpn = self.by_peer.get(&(to, bth.dest_qp.get()))?;
        let qp = self.qps.get_mut(qpn)?;
        let info = packet.info();
        match info.operation {
            Operation::Acknowledge => {
                return Some(Echo {
                    marked: core::mem::take(&mut qp.marked),
                    hops: &qp.written,
                });
            }
            Operation::Send | Operation::Write => {
                let is_at_end = matches!(info.position, Position::Last | Position::Only);
                qp.on_request(bth.psn, is_at_end, now);
            }
            _ => {}
        }
        None
    }

    /// A packet has come.
    pub(crate) fn on_received(
        &mut self,
        packet: &[u8],
        marked: bool,
        hops: &[Hop],
        now: Time,
    ) -> Option<News> {
        let packet = Packet::parse(packet).ok()?;
        let bth = packet.bth();
        let qp = self.qps.get_mut(&bth.dest_qp.get())?;
        match packet.info().operation {
            Operation::Send | Operation::Write => {
                qp.written.clear();
                qp.written.extend_from_slice(hops);
                qp.marked |= marked;
                let pace = self.pacer.on_data(bth.dest_qp.get(), &packet, now);
                Some(News { steer: None, pace })
            }
            Operation::Acknowledge => {
                // A negative one is about the packet that is missing, and says as much of those before it.
                let is_nak = packet.aeth().is_some_and(|aeth| !is_ack(aeth.syndrome));
                let psn = if is_nak { bth.psn.prev() } else { bth.psn };
                let allowance = qp.on_ack(psn, bth.becn, hops, now)?;
                Some(News {
                    steer: Some((qp.index, allowance)),
                    pace: None,
                })
            }
            _ => None,
        }
    }
}

impl Steered {
    /// Credit has come for a QP.
    pub(crate) fn on_grant(&mut self, qpn: u32, packets: u64) -> Option<(QpIndex, Allowance)> {
        let qp = self.qps.get_mut(&qpn)?;
        Some((qp.index, qp.algorithm.on_grant(packets)?))
    }
}

impl Qp {
    fn on_request(&mut self, psn: Psn, is_at_end: bool, now: Time) {
        if self.last.is_none_or(|last| psn.is_after(last)) {
            self.last = Some(psn);
            self.is_at_end = is_at_end;
            self.sent += 1;
            self.under_way.push_back((psn, now));
            return;
        }
        // Once more: what follows it may come again, too, or not.
        let place = self.under_way.partition_point(|(p, _)| p.is_before(psn));
        if let Some((_, at)) = self.under_way.get_mut(place).filter(|(p, _)| *p == psn) {
            *at = now;
        }
    }

    fn on_ack(&mut self, psn: Psn, marked: bool, hops: &[Hop], now: Time) -> Option<Allowance> {
        let (mut packets, mut left) = (0, None);
        while let Some(&(first, at)) = self.under_way.front()
            && !first.is_after(psn)
        {
            self.under_way.pop_front();
            (packets, left) = (packets + 1, Some(at));
        }
        let left = left?;
        self.acked += u64::from(packets);
        Some(self.algorithm.on_ack(&Ack {
            now,
            rtt: now.since(left),
            packets,
            acked: self.acked,
            sent: self.sent,
            hops,
            marked,
            is_at_end: self.is_at_end,
        }))
    }
}

fn is_ack(syndrome: Syndrome) -> bool {
    matches!(syndrome.decode(), SyndromeKind::Ack(_))
}
