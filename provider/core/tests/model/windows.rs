//! Memory windows: the owner binds them, takes them back, or lets its peer do so; the
//! peer reads and writes through them. A key opens what its window shows, while it does,
//! and nothing else; the first access that is refused ends the program.

use urxe_core::cq::Cqe;
use urxe_core::error::{Fault, WcStatus};
use urxe_core::mr::{Access, BindMw, MrInit, MrKeys, MwType, inc_rkey};
use urxe_core::qp::attr::Mtu;
use urxe_core::qp::state::QpState;
use urxe_core::work::{RecvWr, SendWr, Sge, WrData, WrOpcode};
use urxe_wire::Rkey;

use crate::suite::{Run, Service};
use crate::support::*;

pub(crate) const WINDOWS: Service = Service {
    name: "windows",
    programs: 1_500,
    run: run_program,
};

/// The region that windows are bound to, at the owner.
const PART: u64 = 0x8000;
const PART_LEN: u64 = 0x4000;
/// The peer's buffer.
const LOCAL: u64 = 0x4_0000;
const OWNER: usize = 0;
const PEER: usize = 1;

struct Window {
    mw_type: MwType,
    rkey: Rkey,
    /// First byte, length and rights, while it is bound.
    shows: Option<(u64, u64, Access)>,
    /// The key before this one.
    stale: Option<Rkey>,
}

struct World {
    rng: Rng,
    pair: Pair,
    keys: MrKeys,
    windows: Vec<Window>,
    /// What the region holds.
    bytes: Vec<u8>,
    is_lossy: bool,
    steps: u64,
}

fn run_program(seed: u64) -> Run {
    let mut rng = Rng(seed);
    let settings = Settings {
        mtu: rng.pick(&[Mtu::Mtu256, Mtu::Mtu1024]),
        psn: [rng.next() as u32 & 0xff_ffff, rng.next() as u32 & 0xff_ffff],
        secret: rng.next(),
        ..Settings::default()
    };
    let is_lossy = rng.chance(500);
    let mut pair = Pair::new(&settings, rng.next());
    let rate = |rng: &mut Rng, max| if is_lossy { rng.below(max) } else { 0 };
    pair.faults = Faults {
        lose: rate(&mut rng, 100),
        duplicate: rate(&mut rng, 100),
        corrupt: rate(&mut rng, 40),
        reorder: rate(&mut rng, 100),
        delay_ns: 500 + rng.below(5_000),
        batch_ns: rng.pick(&[0, 20_000]),
        ..Faults::default()
    };
    let keys = pair.nodes[OWNER].mrs.register(MrInit {
        pd: PD,
        access: Access(0xf) | Access::MW_BIND,
        host_addr: PART,
        iova: PART,
        len: PART_LEN,
        remote_invalidate: false,
    });
    let mut w = World {
        keys: keys.expect("registers"),
        windows: Vec::new(),
        bytes: vec![0; PART_LEN as usize],
        rng,
        pair,
        is_lossy,
        steps: 0,
    };
    for _ in 0..1 + w.rng.below(4) {
        let mw_type = w.rng.pick(&[MwType::Type1, MwType::Type2]);
        let rkey = w.pair.nodes[OWNER].mrs.alloc_mw(PD, mw_type);
        w.windows.push(Window {
            mw_type,
            rkey: rkey.expect("fits"),
            shows: None,
            stale: None,
        });
    }
    while w.steps < 40 && w.step() {
        w.steps += 1;
    }
    let held = w.pair.nodes[OWNER].memory.read(PART, PART_LEN as usize);
    assert!(held == w.bytes, "the region differs from the model's");
    Run::new(w.steps, w.pair.now, &w.pair.nodes)
}

impl World {
    /// One step to its end; false if the connection ended with it.
    fn step(&mut self) -> bool {
        let n = self.rng.below(self.windows.len() as u64) as usize;
        let is_type_2 = self.windows[n].mw_type == MwType::Type2;
        match (self.windows[n].shows, self.rng.below(10)) {
            (None, _) => self.bind(n),
            (Some(_), 0 | 1) if !is_type_2 => self.bind(n),
            (Some(_), 0) => self.invalidate(n),
            (Some(_), 1) => self.peer_invalidates(n),
            (Some(_), _) => return self.access(n),
        }
        true
    }

    fn bind(&mut self, n: usize) {
        let length = 1 + self.rng.below(3000);
        let offset = self.rng.below(PART_LEN - length + 1);
        let access = self.rng.pick(&[
            Access::REMOTE_WRITE,
            Access::REMOTE_READ,
            Access::REMOTE_WRITE | Access::REMOTE_READ,
        ]);
        let window = &mut self.windows[n];
        window.stale = Some(window.rkey);
        window.rkey = inc_rkey(window.rkey);
        window.shows = Some((offset, length, access));
        let bind = BindMw {
            lkey: self.keys.lkey,
            addr: PART + offset,
            length,
            access,
        };
        let wr = SendWr::bind_mw(self.steps, window.rkey, &bind);
        self.pair.post_send(OWNER, &wr);
        self.succeed(OWNER);
    }

    fn invalidate(&mut self, n: usize) {
        let wr = SendWr::local_inv(self.steps, self.windows[n].rkey);
        self.windows[n].shows = None;
        self.pair.post_send(OWNER, &wr);
        self.succeed(OWNER);
    }

    fn peer_invalidates(&mut self, n: usize) {
        let wr_id = self.steps;
        self.pair.post_recv(OWNER, &RecvWr { wr_id, sges: &[] });
        let mut wr = SendWr::new(wr_id, WrOpcode::SendWithInv, WrData::Sges(&[]));
        wr.rkey = self.windows[n].rkey;
        self.windows[n].shows = None;
        self.pair.post_send(PEER, &wr);
        self.succeed(PEER);
        let received = self.pair.nodes[OWNER].take(RECV_CQ);
        let key = self.windows[n].rkey;
        assert_eq!(received.len(), 1);
        assert_eq!(received[0].invalidated, Some(key));
    }

    /// A WRITE or READ through a window, mostly one that it allows.
    fn access(&mut self, n: usize) -> bool {
        let (start, length, access) = self.windows[n].shows.expect("it is bound");
        let mut len = 1 + self.rng.below(length);
        let mut at = start + self.rng.below(length - len + 1);
        let mut rkey = self.windows[n].rkey;
        let mut writes = access.contains(Access::REMOTE_WRITE)
            && (self.rng.chance(500) || !access.contains(Access::REMOTE_READ));
        match self.rng.below(40) {
            0 => len = start + length - at + 1,
            1 if at == start && at > 0 => at -= 1,
            2 => writes = !writes,
            3 => rkey = self.windows[n].stale.unwrap_or(rkey),
            4 => rkey = Rkey(self.rng.next() as u32),
            _ => {}
        }
        let need = if writes {
            Access::REMOTE_WRITE
        } else {
            Access::REMOTE_READ
        };
        let allowed = rkey == self.windows[n].rkey
            && at >= start
            && at + len <= start + length
            && access.contains(need);
        let data = self.rng.bytes(len as usize);
        let peer = &self.pair.nodes[PEER];
        peer.memory.write(LOCAL, &data);
        let sges = [Sge {
            addr: IOVA + LOCAL,
            length: len as u32,
            lkey: peer.keys.lkey,
        }];
        let opcode = if writes {
            WrOpcode::RdmaWrite
        } else {
            WrOpcode::RdmaRead
        };
        let mut wr = SendWr::new(self.steps, opcode, WrData::Sges(&sges));
        (wr.remote_addr, wr.rkey) = (PART + at, rkey);
        self.pair.post_send(PEER, &wr);
        if !allowed {
            self.refused();
            return false;
        }
        self.succeed(PEER);
        let place = at as usize..(at + len) as usize;
        if writes {
            self.bytes[place].copy_from_slice(&data);
        } else {
            let got = self.pair.nodes[PEER].memory.read(LOCAL, len as usize);
            assert!(got == self.bytes[place], "a READ through a window differs");
        }
        true
    }

    fn done(&mut self, side: usize) -> Cqe {
        self.pair.run();
        let done = self.pair.nodes[side].take(SEND_CQ);
        assert_eq!(done.len(), 1, "{done:?}");
        assert_eq!(done[0].wr_id, self.steps);
        done[0]
    }

    #[track_caller]
    fn succeed(&mut self, side: usize) {
        let cqe = self.done(side);
        assert_eq!(cqe.status, WcStatus::Success, "{cqe:?}");
    }

    fn refused(&mut self) {
        let fault = self.done(PEER).fault;
        let nak_was_lost = self.is_lossy && fault == Fault::AckTimeout;
        assert!(
            fault == Fault::NakRemoteAccess || nak_was_lost,
            "{fault:?} for an access that is not allowed"
        );
        assert_eq!(self.pair.nodes[OWNER].state(), QpState::Err);
    }
}
