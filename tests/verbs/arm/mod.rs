//! Where a test body runs. An arm has two sides with a QP each, and does what verbs do;
//! a body is written once and runs on all of them, so that the virtual wire cannot lie
//! about what the engine does, nor the engine hide what loss would bring out.

mod loopback;
mod wire;

use std::net::IpAddr;

use urxe::{
    Access, AttrMask, ErrorKind, Lkey, ModifyError, Mtu, PostError, Psn, QpAttr, QpCap, QpState,
    QpType, Qpn, RegisterError, Rkey, Sge, Wc,
};
use urxe_core::work::{RecvWr, SendWr};

/// How the two QPs are created and connected.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) qp_type: QpType,
    pub(crate) cap: QpCap,
    pub(crate) sq_sig_all: bool,
    /// What both QPs allow their peers.
    pub(crate) access: Access,
    pub(crate) mtu: Mtu,
    /// First PSN of each side.
    pub(crate) psn: [u32; 2],
    pub(crate) rd_atomic: u8,
    pub(crate) timeout: u8,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) min_rnr_timer: u8,
    /// Entries of each completion queue.
    pub(crate) cqe: usize,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            qp_type: QpType::Rc,
            cap: QpCap {
                max_send_wr: 64,
                max_recv_wr: 64,
                max_send_sge: 4,
                max_recv_sge: 4,
                max_inline_data: 128,
            },
            sq_sig_all: false,
            access: ALL,
            mtu: Mtu::Mtu1024,
            psn: [0x100, 0xff_fff0],
            rd_atomic: 4,
            timeout: 12,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 1,
            cqe: 512,
        }
    }
}

/// Local write and the three remote rights.
pub(crate) const ALL: Access = Access(15);

/// A protection domain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Domain {
    /// That of the QP.
    Own,
    /// Another one of the same side.
    Other,
}

/// The completion queue of sends, or of receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Queue {
    Send,
    Recv,
}

/// Registered memory of one side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    pub(crate) side: usize,
    /// Number of the registration on its side.
    id: usize,
    pub(crate) addr: u64,
    pub(crate) len: usize,
    pub(crate) lkey: Lkey,
    pub(crate) rkey: Rkey,
}

impl Region {
    /// An entry for some of its bytes.
    pub(crate) fn sge(&self, range: std::ops::Range<usize>) -> Sge {
        assert!(range.end <= self.len, "the test stays inside");
        Sge {
            addr: self.addr + range.start as u64,
            length: range.len() as u32,
            lkey: self.lkey,
        }
    }

    /// An entry for all of it.
    pub(crate) fn whole(&self) -> Sge {
        self.sge(0..self.len)
    }
}

/// What a body runs on.
pub(crate) trait Arm {
    /// Where a side is.
    fn addr(&self, side: usize) -> IpAddr;
    /// The number of its QP.
    fn qpn(&self, side: usize) -> Qpn;
    /// Memory in the QP's protection domain, or in another one.
    fn register(
        &mut self,
        side: usize,
        domain: Domain,
        len: usize,
        access: Access,
    ) -> Result<Region, RegisterError>;
    fn deregister(&mut self, region: &Region);
    /// Lets the peer invalidate the region's rkey.
    fn allow_invalidate(&mut self, region: &Region);
    fn write(&mut self, region: &Region, offset: usize, bytes: &[u8]);
    fn read(&self, region: &Region, offset: usize, len: usize) -> Vec<u8>;
    fn modify(&mut self, side: usize, attr: &QpAttr, mask: AttrMask) -> Result<(), ModifyError>;
    fn query(&self, side: usize) -> QpAttr;
    fn post_send(&mut self, side: usize, wr: &SendWr<'_>) -> Result<(), PostError>;
    fn post_recv(&mut self, side: usize, wr: &RecvWr<'_>) -> Result<(), PostError>;
    /// A completion that is there.
    fn poll(&mut self, side: usize, queue: Queue) -> Option<Wc>;
    /// The name of an asynchronous event that is there.
    fn event(&mut self, side: usize) -> Option<String>;
    /// Destroys a side's QP.
    fn destroy(&mut self, side: usize);
    /// Goes on; false if nothing will happen any more, or nothing has for long.
    fn advance(&mut self) -> bool;
    /// From now on nothing that a side sends arrives; false if the arm cannot do that.
    fn silence(&mut self, side: usize) -> bool;
}

/// An arm with both QPs in RESET.
pub(crate) fn open(kind: Kind, setup: &Setup) -> Box<dyn Arm> {
    match kind {
        Kind::Wire { seed } => Box::new(wire::WireArm::open(setup, seed)),
        Kind::Loopback => Box::new(loopback::LoopbackArm::open(setup)),
    }
}

/// The arms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Two shards on a virtual wire in virtual time; with a seed, the wire loses,
    /// duplicates, corrupts and reorders packets.
    Wire { seed: Option<u64> },
    /// Two contexts of the engine on real loopback sockets.
    Loopback,
}

/// The attributes and masks of RESET to INIT, INIT to RTR, RTR to RTS.
pub(crate) fn steps(arm: &dyn Arm, setup: &Setup, side: usize) -> [(QpAttr, AttrMask); 3] {
    let peer = 1 - side;
    let mut attr = QpAttr {
        qp_state: QpState::Init,
        qp_access_flags: setup.access,
        ..QpAttr::default()
    };
    let init = attr;
    attr.qp_state = QpState::Rtr;
    attr.path_mtu = setup.mtu;
    attr.dest_qp_num = arm.qpn(peer);
    attr.rq_psn = Psn::new(setup.psn[peer]);
    attr.max_dest_rd_atomic = setup.rd_atomic;
    attr.min_rnr_timer = setup.min_rnr_timer;
    attr.ah_attr = Some(urxe::AddressVector {
        local: arm.addr(side),
        remote: arm.addr(peer),
        traffic_class: 0,
        hop_limit: 64,
    });
    let rtr = attr;
    attr.qp_state = QpState::Rts;
    attr.sq_psn = Psn::new(setup.psn[side]);
    attr.timeout = setup.timeout;
    attr.retry_cnt = setup.retry_cnt;
    attr.rnr_retry = setup.rnr_retry;
    attr.max_rd_atomic = setup.rd_atomic;
    match setup.qp_type {
        QpType::Uc => [
            (init, TO_INIT),
            (rtr, UC_TO_RTR),
            (attr, AttrMask::STATE.union(AttrMask::SQ_PSN)),
        ],
        _ => [(init, TO_INIT), (rtr, TO_RTR), (attr, TO_RTS)],
    }
}

pub(crate) const TO_INIT: AttrMask = AttrMask::STATE
    .union(AttrMask::PKEY_INDEX)
    .union(AttrMask::PORT)
    .union(AttrMask::ACCESS_FLAGS);
const UC_TO_RTR: AttrMask = AttrMask::STATE
    .union(AttrMask::AV)
    .union(AttrMask::PATH_MTU)
    .union(AttrMask::DEST_QPN)
    .union(AttrMask::RQ_PSN);
pub(crate) const TO_RTR: AttrMask = UC_TO_RTR
    .union(AttrMask::MAX_DEST_RD_ATOMIC)
    .union(AttrMask::MIN_RNR_TIMER);
pub(crate) const TO_RTS: AttrMask = AttrMask::STATE
    .union(AttrMask::SQ_PSN)
    .union(AttrMask::TIMEOUT)
    .union(AttrMask::RETRY_CNT)
    .union(AttrMask::RNR_RETRY)
    .union(AttrMask::MAX_QP_RD_ATOMIC);

/// The name of an event without what it is about.
fn event_name(event: impl std::fmt::Debug) -> String {
    let text = format!("{event:?}");
    text.split('(').next().unwrap_or_default().to_owned()
}

/// The reason of an error of the API, of the kind that the core gives too.
fn kind_of(error: &urxe::Error) -> &ErrorKind {
    error.kind()
}
