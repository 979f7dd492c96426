//! The words that test bodies are written in.

use std::collections::VecDeque;

use urxe::{
    Access, AttrMask, Fault, QpAttr, QpState, Rkey, SendFlags, Sge, Wc, WcOpcode, WcStatus, WrData,
    WrOpcode,
};
use urxe_core::work::{RecvWr, SendWr};

use crate::arm::{self, ALL, Arm, Domain, Kind, Queue, Region, Setup};

/// Two connected QPs, and what became of what was posted to them.
pub(crate) struct Verbs {
    pub(crate) arm: Box<dyn Arm>,
    pub(crate) setup: Setup,
    done: [[VecDeque<Wc>; 2]; 2],
    events: [VecDeque<String>; 2],
}

/// Runs a body on every arm: the clean wire, wires with faults, loopback.
pub(crate) fn on_all(body: impl Fn(&mut Verbs)) {
    on_all_with(Setup::default(), body);
}

/// Runs on all arms with other settings.
pub(crate) fn on_all_with(setup: Setup, body: impl Fn(&mut Verbs)) {
    on(
        &[CLEAN, FAULTY[0], FAULTY[1], FAULTY[2], Kind::Loopback],
        setup,
        body,
    );
}

/// Runs a body that fails a QP on the arms that lose nothing: where the NAK may be lost,
/// the requester rightly reports a timeout instead.
pub(crate) fn on_lossless(body: impl Fn(&mut Verbs)) {
    on(&[CLEAN, Kind::Loopback], Setup::default(), body);
}

/// Runs on the arms without losses, with other settings.
pub(crate) fn on_lossless_with(setup: Setup, body: impl Fn(&mut Verbs)) {
    on(&[CLEAN, Kind::Loopback], setup, body);
}

/// Runs a body on the clean wire only: it needs a peer that falls silent.
pub(crate) fn on_wire_with(setup: Setup, body: impl Fn(&mut Verbs)) {
    on(&[CLEAN], setup, body);
}

const CLEAN: Kind = Kind::Wire { seed: None };
const FAULTY: [Kind; 3] = [
    Kind::Wire { seed: Some(1) },
    Kind::Wire { seed: Some(2) },
    Kind::Wire { seed: Some(3) },
];

fn on(kinds: &[Kind], setup: Setup, body: impl Fn(&mut Verbs)) {
    for &kind in kinds {
        // Shown when the test fails: on which arm, with which seed.
        println!("arm: {kind:?}");
        let mut verbs = Verbs::open(kind, setup);
        verbs.connect();
        body(&mut verbs);
    }
}

impl Verbs {
    fn open(kind: Kind, setup: Setup) -> Verbs {
        Verbs {
            arm: arm::open(kind, &setup),
            setup,
            done: Default::default(),
            events: Default::default(),
        }
    }

    /// Brings both QPs from RESET to RTS.
    pub(crate) fn connect(&mut self) {
        for side in 0..2 {
            self.connect_side(side);
        }
    }

    /// Brings one side's QP from RESET to RTS.
    pub(crate) fn connect_side(&mut self, side: usize) {
        for (attr, mask) in arm::steps(&*self.arm, &self.setup, side) {
            self.arm.modify(side, &attr, mask).expect("modifies");
        }
    }

    /// Memory of a side, with all rights.
    pub(crate) fn memory(&mut self, side: usize, len: usize) -> Region {
        self.memory_with(side, len, ALL)
    }

    pub(crate) fn memory_with(&mut self, side: usize, len: usize, access: Access) -> Region {
        let region = self.arm.register(side, Domain::Own, len, access);
        region.expect("registers")
    }

    /// Memory of a side in another protection domain than its QP's.
    pub(crate) fn foreign_memory(&mut self, side: usize, len: usize) -> Region {
        let region = self.arm.register(side, Domain::Other, len, ALL);
        region.expect("registers")
    }

    /// Memory with a pattern in it.
    pub(crate) fn filled(&mut self, side: usize, len: usize, seed: u64) -> (Region, Vec<u8>) {
        let region = self.memory(side, len);
        let bytes = crate::common::pattern(seed, len);
        self.arm.write(&region, 0, &bytes);
        (region, bytes)
    }

    pub(crate) fn bytes(&self, region: &Region) -> Vec<u8> {
        self.arm.read(region, 0, region.len)
    }

    #[track_caller]
    pub(crate) fn send(&mut self, side: usize, wr: &SendWr<'_>) {
        self.arm.post_send(side, wr).expect("posts");
    }

    #[track_caller]
    pub(crate) fn recv(&mut self, side: usize, wr_id: u64, sges: &[Sge]) {
        let wr = RecvWr { wr_id, sges };
        self.arm.post_recv(side, &wr).expect("posts");
    }

    /// The next completion of a queue.
    #[track_caller]
    pub(crate) fn next(&mut self, side: usize, queue: Queue) -> Wc {
        let mut goes_on = true;
        loop {
            if let Some(wc) = self.look(side, queue) {
                return wc;
            }
            assert!(
                goes_on,
                "{queue:?} completion of side {side}: nothing will happen any more"
            );
            goes_on = self.arm.advance();
        }
    }

    fn look(&mut self, side: usize, queue: Queue) -> Option<Wc> {
        self.gather();
        self.done[side][queue as usize].pop_front()
    }

    /// Takes what is there of both sides and queues: in the engine, polling is what drives.
    fn gather(&mut self) {
        for side in 0..2 {
            for queue in [Queue::Send, Queue::Recv] {
                while let Some(wc) = self.arm.poll(side, queue) {
                    self.done[side][queue as usize].push_back(wc);
                }
            }
            while let Some(event) = self.arm.event(side) {
                self.events[side].push_back(event);
            }
        }
    }

    /// The next completion of a send.
    #[track_caller]
    pub(crate) fn sent(&mut self, side: usize) -> Wc {
        self.next(side, Queue::Send)
    }

    /// The next completion of a receive.
    #[track_caller]
    pub(crate) fn received(&mut self, side: usize) -> Wc {
        self.next(side, Queue::Recv)
    }

    /// The next completion of a send, which must be this one, and a success.
    #[track_caller]
    pub(crate) fn sent_ok(&mut self, side: usize, wr_id: u64) -> Wc {
        let wc = self.sent(side);
        assert_eq!((wc.wr_id, wc.status), (wr_id, WcStatus::Success), "{wc}");
        wc
    }

    /// The next completion of a receive, which must be this one, and a success.
    #[track_caller]
    pub(crate) fn received_ok(&mut self, side: usize, wr_id: u64) -> Wc {
        let wc = self.received(side);
        assert_eq!((wc.wr_id, wc.status), (wr_id, WcStatus::Success), "{wc}");
        wc
    }

    /// The next completion of a send, which must fail like this.
    #[track_caller]
    pub(crate) fn sent_fails(&mut self, side: usize, wr_id: u64, fault: Fault) {
        fails(self.sent(side), wr_id, fault);
    }

    /// The next completion of a receive, which must fail like this.
    #[track_caller]
    pub(crate) fn received_fails(&mut self, side: usize, wr_id: u64, fault: Fault) {
        fails(self.received(side), wr_id, fault);
    }

    /// The next asynchronous event of a side.
    #[track_caller]
    pub(crate) fn event(&mut self, side: usize) -> String {
        let mut goes_on = true;
        loop {
            self.gather();
            if let Some(event) = self.events[side].pop_front() {
                return event;
            }
            assert!(
                goes_on,
                "event of side {side}: nothing will happen any more"
            );
            goes_on = self.arm.advance();
        }
    }

    /// Whatever is under way has come to its end, and nothing unexpected came of it: a
    /// message there and one back pass whatever was posted before them.
    #[track_caller]
    pub(crate) fn nothing_more(&mut self) {
        for side in 0..2 {
            let (queue, events) = (&self.done[side], &self.events[side]);
            assert!(
                queue.iter().all(VecDeque::is_empty),
                "unexpected: {queue:?}"
            );
            assert!(events.is_empty(), "unexpected: {events:?}");
        }
        for side in 0..2 {
            if [0, 1].map(|side| self.state(side)) == [QpState::Rts; 2] {
                self.pass_a_message(side);
            }
        }
        assert!(self.is_empty(0, Queue::Send));
        let rest = self.done.iter().flatten().flatten().next();
        assert!(rest.is_none(), "unexpected: {rest:?}");
    }

    pub(crate) fn state(&self, side: usize) -> QpState {
        self.arm.query(side).qp_state
    }

    /// Modifies the state alone.
    #[track_caller]
    pub(crate) fn go(&mut self, side: usize, qp_state: QpState) {
        let attr = QpAttr {
            qp_state,
            ..QpAttr::default()
        };
        self.arm
            .modify(side, &attr, AttrMask::STATE)
            .expect("modifies");
    }

    /// Resets both QPs and connects them again, as strangers to their former selves.
    pub(crate) fn reconnect(&mut self) {
        for side in 0..2 {
            self.go(side, QpState::Reset);
        }
        self.gather();
        self.done = Default::default();
        self.events = Default::default();
        // Far enough that a late packet of the old connection means nothing to the new.
        self.setup.psn = self.setup.psn.map(|psn| (psn + 0x12_3456) & 0xff_ffff);
        self.connect();
    }

    /// A message from a side to the other, which comes after all that was sent before.
    #[track_caller]
    pub(crate) fn pass_a_message(&mut self, side: usize) {
        let id = u64::MAX - side as u64;
        self.recv(1 - side, id, &[]);
        self.send(side, &wr(id, WrOpcode::Send, &[]));
        self.received_ok(1 - side, id);
        self.sent_ok(side, id);
    }

    /// The peer may have been heard before the QP was in RTS.
    pub(crate) fn forget_comm_est(&mut self, side: usize) {
        self.gather();
        self.events[side].retain(|event| event != "CommEst");
    }

    /// Goes on until something is so.
    #[track_caller]
    pub(crate) fn until(&mut self, what: &str, is_so: impl Fn(&Verbs) -> bool) {
        let mut goes_on = true;
        loop {
            self.gather();
            if is_so(self) {
                return;
            }
            assert!(goes_on, "{what}: nothing will happen any more");
            goes_on = self.arm.advance();
        }
    }

    /// True if no completion is there.
    pub(crate) fn is_empty(&mut self, side: usize, queue: Queue) -> bool {
        self.gather();
        self.done[side][queue as usize].is_empty()
    }

    /// Lets a side's sends complete without polling for them, until its QP fails; the
    /// events that tell of it.
    pub(crate) fn overrun(&mut self, side: usize) -> Vec<String> {
        let mut events = Vec::new();
        while self.state(side) != QpState::Err {
            assert!(self.arm.advance(), "nothing overruns");
            // The side that polls drives, so this is the other side.
            self.arm.poll(1 - side, Queue::Recv);
        }
        while let Some(event) = self.arm.event(side) {
            events.push(event);
        }
        events
    }
}

#[track_caller]
fn fails(wc: Wc, wr_id: u64, fault: Fault) {
    assert_eq!(
        (wc.wr_id, wc.status, wc.fault()),
        (wr_id, fault.status(), fault),
        "{wc}"
    );
}

/// A signaled request.
pub(crate) fn wr<'a>(wr_id: u64, opcode: WrOpcode, sges: &'a [Sge]) -> SendWr<'a> {
    let mut wr = SendWr::new(wr_id, opcode, WrData::Sges(sges));
    wr.flags = SendFlags::SIGNALED;
    wr
}

/// A signaled request for remote memory.
pub(crate) fn remote<'a>(
    wr_id: u64,
    opcode: WrOpcode,
    sges: &'a [Sge],
    region: &Region,
    offset: usize,
) -> SendWr<'a> {
    let mut wr = wr(wr_id, opcode, sges);
    (wr.remote_addr, wr.rkey) = (region.addr + offset as u64, region.rkey);
    wr
}

/// An rkey that was never given out.
pub(crate) fn wrong(rkey: Rkey) -> Rkey {
    Rkey(rkey.0 ^ 0x100)
}

/// What a successful receive says.
pub(crate) fn opcode_and_len(wc: &Wc) -> (WcOpcode, u32) {
    (wc.opcode, wc.byte_len)
}
