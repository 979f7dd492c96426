//! RCCC, the receiver's congestion control of Ultra Ethernet (UEC specification 1.0): a receiver gives credit to its senders in turn,
//! at the rate of its own link, and a sender sends what it has credit for. As in EQDS (Olteanu et al., NSDI 2022), where this credit comes from.
//!
//! A flow begins with credit for a window. How much a message has is known from its first packet (RETH of a WRITE),
//! which may therefore leave without credit when nothing else is under way. Ultra Ethernet's switches cut what they have no room for, so that
//! such windows of many senders leave no queue; here nothing is lost, and a receiver gives no more while a window's worth is on its way to it.

use std::collections::{BTreeMap, VecDeque};

use urxe_wire::{Operation, Packet, Position, Psn};

use crate::congestion::{Ack, Algorithm, Allowance, Road};
use crate::engine::{Span, Time};
use crate::topology::HostId;

/// Parameters, by default those of the public simulation of Ultra Ethernet's transport (`ultraethernet/uet-htsim`).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RcccParams {
    /// The credit that a sender has at most, and begins with, in what fills the empty path.
    pub widest: f64,
    /// Packets that one grant gives.
    pub per_grant: u32,
    /// Part of the receiver's link that is given away.
    pub part: f64,
}

impl Default for RcccParams {
    fn default() -> Self {
        RcccParams {
            widest: 1.5,
            per_grant: 4,
            part: 0.99,
        }
    }
}

impl RcccParams {
    fn window(&self, road: &Road) -> u64 {
        (self.widest * road.bdp()).max(1.0) as u64
    }
}

/// The sender's end: it spends credit.
#[derive(Debug)]
pub(crate) struct Spender {
    /// Packets since the connection began: given, and acknowledged.
    granted: u64,
    acked: u64,
    /// All that left is acknowledged, up to the end of a message.
    is_at_end: bool,
}

impl Spender {
    pub(crate) fn new(params: RcccParams, road: Road) -> Spender {
        Spender {
            granted: params.window(&road),
            acked: 0,
            is_at_end: true,
        }
    }

    fn allowance(&self) -> Allowance {
        let credit = u32::try_from(self.granted.saturating_sub(self.acked)).unwrap_or(u32::MAX);
        Allowance {
            window: credit.max(u32::from(self.is_at_end)),
            rate: None,
        }
    }
}

impl Algorithm for Spender {
    fn start(&self) -> Allowance {
        self.allowance()
    }

    fn on_ack(&mut self, ack: &Ack<'_>) -> Allowance {
        self.acked = ack.acked;
        self.is_at_end = ack.is_at_end && ack.acked == ack.sent;
        self.allowance()
    }

    fn on_grant(&mut self, packets: u64) -> Option<Allowance> {
        (packets > self.granted).then(|| {
            self.granted = packets;
            self.allowance()
        })
    }
}

/// What a receiver knows of one sender. Packets are counted from the first of the connection.
#[derive(Debug)]
struct Account {
    peer: (HostId, u32),
    first: Psn,
    window: u64,
    mtu: u32,
    /// Behind the newest packet that came, and behind the last that is known to come.
    received: u64,
    wanted: u64,
    granted: u64,
    in_active: bool,
    in_idle: bool,
    /// Grants that were told again since the last packet came, and the first look, which is too early for that.
    looks: u32,
}

impl Account {
    /// Up to where it may have credit.
    fn limit(&self) -> u64 {
        self.received + self.window
    }

    /// What it may get of what it wants, and in advance if none is wanted.
    fn lacks(&self) -> (u64, u64) {
        let room = |end: u64| end.saturating_sub(self.granted);
        (room(self.limit().min(self.wanted)), room(self.limit()))
    }

    /// Packets that have credit and are to come.
    fn on_its_way(&self) -> u64 {
        self.wanted.min(self.granted).saturating_sub(self.received)
    }

    fn note(&mut self, packet: &Packet<'_>) {
        let next = self.first.add(self.received as u32 & 0xff_ffff);
        let place = self.received as i64 + i64::from(packet.bth().psn.diff(next));
        let Ok(place) = u64::try_from(place) else {
            return;
        };
        let (info, len) = (packet.info(), packet.reth().map(|reth| reth.dma_len));
        let more = match (info.operation, info.position) {
            // How much is still to come is not known.
            (Operation::Send, Position::First | Position::Middle) => self.window,
            _ => u64::from(len.unwrap_or(0).div_ceil(self.mtu).max(1)),
        };
        self.received = self.received.max(place + 1);
        self.wanted = self.wanted.max(place + more);
        self.looks = 0;
    }

    fn grant(&self) -> Grant {
        Grant {
            to: self.peer.0,
            qpn: self.peer.1,
            packets: self.granted,
        }
    }
}

/// A receiver's pacer.
#[derive(Debug, Default)]
pub(crate) struct Pacer {
    accounts: BTreeMap<u32, Account>,
    /// QPs with senders that want credit, and with those that may get some in advance.
    active: VecDeque<u32>,
    idle: VecDeque<u32>,
    on_its_way: u64,
    /// The widest window.
    window: u64,
    /// When to look again, and whether that is only for grants that may be lost.
    next: Option<Time>,
    is_patient: bool,
    not_before: Time,
    per_grant: u64,
    /// Of one packet.
    interval: Span,
}

/// Credit for a sender: its host, its QP, and the packets since the connection began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Grant {
    pub(crate) to: HostId,
    pub(crate) qpn: u32,
    pub(crate) packets: u64,
}

/// Time after which a grant is told again to a sender of which nothing comes, and how often.
const PATIENCE: Span = Span::from_us(100);
const LOOKS_MAX: u32 = 64;

impl Pacer {
    /// The QP `qpn` receives from `peer`; `first` is the first packet. The road is that to the peer.
    pub(crate) fn add(
        &mut self,
        qpn: u32,
        peer: (HostId, u32),
        first: Psn,
        (params, road, mtu): (RcccParams, Road, u32),
    ) {
        let window = params.window(&road);
        let full = road.rate.time_of(u64::from(road.packet)).ps() as f64;
        self.interval = Span::from_ps((full / params.part.max(0.01)) as u64);
        self.per_grant = u64::from(params.per_grant.max(1));
        self.window = self.window.max(window);
        let account = Account {
            peer,
            first,
            window,
            mtu,
            received: 0,
            wanted: 0,
            granted: window,
            in_active: false,
            in_idle: false,
            looks: 0,
        };
        self.accounts.insert(qpn, account);
    }

    /// A packet with data has come for a QP. Returns when to look, if that is news.
    pub(crate) fn on_data(&mut self, qpn: u32, packet: &Packet<'_>, now: Time) -> Option<Time> {
        let account = self.accounts.get_mut(&qpn)?;
        self.on_its_way -= account.on_its_way();
        account.note(packet);
        self.on_its_way += account.on_its_way();
        self.enqueue(qpn);
        let at = if self.may_give() && (self.next.is_none() || self.is_patient) {
            self.is_patient = false;
            now.max(self.not_before)
        } else if self.next.is_none() && self.on_its_way > 0 {
            self.is_patient = true;
            now + PATIENCE
        } else {
            return None;
        };
        self.next = Some(at);
        self.next
    }

    /// A timer is due. Returns the grant that leaves now, and when to look again.
    pub(crate) fn on_timer(&mut self, now: Time) -> (Option<Grant>, Option<Time>) {
        if self.next != Some(now) {
            return (None, None);
        }
        let given = self.may_give().then(|| self.give()).flatten();
        self.is_patient = given.is_none();
        let grant = match given {
            Some((grant, packets)) => {
                self.not_before = now + self.interval * packets;
                self.next = Some(self.not_before);
                Some(grant)
            }
            None => {
                let (grant, waits) = self.tell_again();
                self.next = waits.then_some(now + PATIENCE);
                grant
            }
        };
        (grant, self.next)
    }

    fn may_give(&self) -> bool {
        self.on_its_way < self.window && !(self.active.is_empty() && self.idle.is_empty())
    }

    fn enqueue(&mut self, qpn: u32) {
        let Some(account) = self.accounts.get_mut(&qpn) else {
            return;
        };
        let (wanted, in_advance) = account.lacks();
        if wanted > 0 && !account.in_active {
            account.in_active = true;
            self.active.push_back(qpn);
        } else if wanted == 0 && in_advance > 0 && !account.in_idle {
            account.in_idle = true;
            self.idle.push_back(qpn);
        }
    }

    /// The next in turn gets some. Returns how many packets, too.
    fn give(&mut self) -> Option<(Grant, u64)> {
        loop {
            let is_wanted = !self.active.is_empty();
            let qpn = self.active.pop_front().or_else(|| self.idle.pop_front())?;
            let account = self.accounts.get_mut(&qpn)?;
            let (wanted, in_advance) = account.lacks();
            let room = match is_wanted {
                true => {
                    account.in_active = false;
                    wanted
                }
                false => {
                    account.in_idle = false;
                    in_advance
                }
            };
            if room == 0 {
                continue;
            }
            let packets = room.min(self.per_grant);
            self.on_its_way -= account.on_its_way();
            account.granted += packets;
            self.on_its_way += account.on_its_way();
            let grant = account.grant();
            self.enqueue(qpn);
            return Some((grant, packets));
        }
    }

    /// A grant may be lost: of those of which nothing comes the one that was told least often is told again. False if all has come that is wanted.
    fn tell_again(&mut self) -> (Option<Grant>, bool) {
        let waiting = self
            .accounts
            .values_mut()
            .filter(|account| account.received < account.wanted && account.looks < LOOKS_MAX);
        let Some(account) = waiting.min_by_key(|account| account.looks) else {
            return (None, false);
        };
        account.looks += 1;
        let grant = (account.looks > 1).then(|| account.grant());
        (grant, true)
    }
}

#[cfg(test)]
mod tests {
    use urxe_wire::{Bth, Opcode, PacketWriter, Qpn, Reth, Rkey, packet_len};

    use super::*;
    use crate::engine::Rate;

    /// 100 Gb/s and 12 us, in packets of 1500 bytes: 100 of them.
    const ROAD: Road = Road {
        base_rtt: Span::from_us(12),
        rate: Rate::gbps(100),
        switches: 1,
        packet: 1500,
    };
    const MTU: u32 = 1024;

    /// A packet of a WRITE: its first if it has so many packets to say.
    fn data(psn: u32, packets: Option<u32>) -> Vec<u8> {
        let opcode = match packets {
            Some(_) => Opcode::RC_WRITE_FIRST,
            None => Opcode::RC_WRITE_MIDDLE,
        };
        let info = opcode.info().expect("in the table");
        let mut bytes = vec![0; packet_len(info, MTU as usize)];
        let bth = Bth::new(opcode, Qpn::new(7), Psn::new(psn));
        let mut writer = PacketWriter::new(&mut bytes, &bth);
        if let Some(packets) = packets {
            writer.reth(&Reth {
                va: 0,
                rkey: Rkey(0),
                dma_len: packets * MTU,
            });
        }
        writer.payload_mut(MTU as usize);
        bytes
    }

    fn pacer(senders: u32) -> Pacer {
        let mut pacer = Pacer::default();
        for qpn in 0..senders {
            let params = (RcccParams::default(), ROAD, MTU);
            pacer.add(qpn, (HostId(qpn), 7), Psn::new(0xff_fff0), params);
        }
        pacer
    }

    /// So many packets of a message of 1000 come, and the first of it before.
    fn come(pacer: &mut Pacer, qpn: u32, from: u32, to: u32, now: Time) -> Option<Time> {
        let mut news = None;
        for n in from..to {
            let bytes = data((0xff_fff0 + n) & 0xff_ffff, (n == 0).then_some(1000));
            let packet = Packet::parse(&bytes).expect("well-formed");
            news = pacer.on_data(qpn, &packet, now).or(news);
        }
        news
    }

    #[test]
    fn a_sender_spends_what_it_has_and_no_more_until_it_is_at_the_end_of_a_message() {
        let mut spender = Spender::new(RcccParams::default(), ROAD);
        assert_eq!(spender.start().window, 150);
        let mut ack = |acked, is_at_end| {
            let ack = Ack {
                now: Time::ZERO,
                rtt: ROAD.base_rtt,
                packets: 1,
                acked,
                sent: 150,
                hops: &[],
                marked: false,
                is_at_end,
            };
            spender.on_ack(&ack).window
        };
        assert_eq!(ack(140, false), 10);
        assert_eq!(ack(150, false), 0);
        assert_eq!(ack(150, true), 1, "the first packet of the next message");
        assert_eq!(spender.on_grant(154).map(|a| a.window), Some(4));
        assert_eq!(spender.on_grant(152), None, "overtaken");
    }

    #[test]
    fn two_senders_get_credit_in_turn_at_the_rate_of_the_link() {
        let mut pacer = pacer(2);
        let start = Time::ZERO + Span::from_us(5);
        // Each has sent all but 20 of its first window.
        let news = come(&mut pacer, 0, 0, 130, start).or(come(&mut pacer, 1, 0, 130, start));
        let mut now = news.expect("there is something to give");
        let mut given = [150; 2];
        for turn in 0..10 {
            let (grant, next) = pacer.on_timer(now);
            let grant = grant.expect("there is more");
            let to = grant.to.0 as usize;
            assert_eq!(to, turn % 2);
            assert_eq!(grant.packets - given[to], 4);
            given[to] = grant.packets;
            let next = next.expect("it goes on");
            // Four packets at 100 Gb/s take 480 ns, of which 99 % are given.
            assert_eq!(next.since(now).ps(), 484_848 / 4 * 4);
            now = next;
        }
    }

    #[test]
    fn nothing_is_given_while_a_window_is_on_its_way() {
        let mut pacer = pacer(4);
        let now = Time::ZERO + Span::from_us(5);
        for qpn in 0..4 {
            come(&mut pacer, qpn, 0, 1, now);
        }
        let at = now + PATIENCE;
        assert_eq!(pacer.on_timer(at).0, None, "4 windows are on their way");
        // 596 were; 447 have come.
        for qpn in 0..3 {
            come(&mut pacer, qpn, 1, 150, at);
        }
        assert_eq!(pacer.on_its_way, 149);
        let next = pacer.next.expect("there is something to give");
        assert!(pacer.on_timer(next).0.is_some());
    }

    #[test]
    fn a_grant_that_was_lost_is_told_again_but_not_for_ever() {
        let mut pacer = pacer(1);
        let mut now = come(&mut pacer, 0, 0, 150, Time::ZERO + Span::from_us(5)).expect("credit");
        let mut grants = Vec::new();
        for _ in 0..1000 {
            let (grant, next) = pacer.on_timer(now);
            grants.extend(grant);
            match next {
                Some(next) => now = next,
                None => break,
            }
        }
        let last = *grants.last().expect("some");
        assert_eq!(last.packets, 300, "a window ahead of what came");
        let again = grants.iter().filter(|&&grant| grant == last).count();
        assert_eq!(again, LOOKS_MAX as usize, "and then it is given up");
    }
}
