//! The engine, on real sockets of the loopback interface.

use std::net::IpAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use urxe::{
    Access, AttrMask, Context, Cq, ErrorKind, ModifyError, Mr, Pd, PostError, Qp, QpAttr,
    QpInitAttr, Qpn, RecvWr as ApiRecvWr, RegisterError, Wc,
};
use urxe_core::work::{RecvWr, SendWr};

use super::{Arm, Domain, Queue, Region, Setup, event_name, kind_of};
use crate::common::address;

/// Longer than the longest wait of a protocol that is set up as these tests do.
const QUIET: Duration = Duration::from_secs(5);

/// Contexts of tests that are over: opening one for each test would use up addresses.
static CONTEXTS: Mutex<Vec<Context>> = Mutex::new(Vec::new());

struct Side {
    context: Context,
    pd: Pd,
    other_pd: Pd,
    cqs: [Cq; 2],
    qp: Option<Qp>,
    qpn: Qpn,
    memory: Vec<Option<Mr>>,
}

impl Side {
    fn open(setup: &Setup) -> Side {
        let kept = CONTEXTS.lock().expect("no panic holds the lock").pop();
        let context = kept.unwrap_or_else(|| Context::open(address()).expect("a free address"));
        while context.poll_async_event().is_some() {}
        let pd = context.alloc_pd().expect("a PD");
        let cq = || context.create_cq(setup.cqe).expect("a CQ");
        let cqs = [cq(), cq()];
        let init = QpInitAttr {
            cap: setup.cap,
            qp_type: setup.qp_type,
            sq_sig_all: setup.sq_sig_all,
            ..QpInitAttr::new(&cqs[0], &cqs[1])
        };
        let qp = pd.create_qp(&init).expect("a QP");
        Side {
            qpn: qp.qp_num(),
            qp: Some(qp),
            other_pd: context.alloc_pd().expect("a PD"),
            context,
            pd,
            cqs,
            memory: Vec::new(),
        }
    }

    fn qp(&self) -> &Qp {
        self.qp.as_ref().expect("the QP exists")
    }

    fn mr(&self, region: &Region) -> &Mr {
        self.memory[region.id].as_ref().expect("it is registered")
    }
}

pub(crate) struct LoopbackArm {
    sides: [Side; 2],
    last_news: Instant,
}

impl LoopbackArm {
    pub(crate) fn open(setup: &Setup) -> LoopbackArm {
        LoopbackArm {
            sides: [Side::open(setup), Side::open(setup)],
            last_news: Instant::now(),
        }
    }
}

impl Drop for LoopbackArm {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let mut kept = CONTEXTS.lock().expect("no panic holds the lock");
            kept.extend(self.sides.iter().map(|side| side.context.clone()));
        }
    }
}

impl Arm for LoopbackArm {
    fn addr(&self, side: usize) -> IpAddr {
        self.sides[side].context.address()
    }

    fn qpn(&self, side: usize) -> Qpn {
        self.sides[side].qpn
    }

    fn register(
        &mut self,
        side: usize,
        domain: Domain,
        len: usize,
        access: Access,
    ) -> Result<Region, RegisterError> {
        let side_of = &mut self.sides[side];
        let pd = match domain {
            Domain::Own => &side_of.pd,
            Domain::Other => &side_of.other_pd,
        };
        match pd.reg_owned(vec![0; len], access) {
            Ok(mr) => {
                let region = Region {
                    side,
                    id: side_of.memory.len(),
                    addr: mr.addr(),
                    len,
                    lkey: mr.lkey(),
                    rkey: mr.rkey(),
                };
                side_of.memory.push(Some(mr));
                Ok(region)
            }
            Err(error) => match kind_of(&error) {
                ErrorKind::Register(reason) => Err(*reason),
                other => panic!("{other}"),
            },
        }
    }

    fn deregister(&mut self, region: &Region) {
        let mr = self.sides[region.side].memory[region.id].take();
        let mr = mr.expect("it is registered");
        mr.dereg().expect("no window is bound");
    }

    fn allow_invalidate(&mut self, region: &Region) {
        let mr = self.sides[region.side].mr(region);
        mr.set_remote_invalidate(true).expect("the engine works");
    }

    fn write(&mut self, region: &Region, offset: usize, bytes: &[u8]) {
        self.sides[region.side].mr(region).write(offset, bytes);
    }

    fn read(&self, region: &Region, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.sides[region.side].mr(region).read(offset, &mut bytes);
        bytes
    }

    fn modify(&mut self, side: usize, attr: &QpAttr, mask: AttrMask) -> Result<(), ModifyError> {
        let result = self.sides[side].qp().modify(attr, mask);
        result.map_err(|error| match kind_of(&error) {
            ErrorKind::Modify(reason) => *reason,
            other => panic!("{other}"),
        })
    }

    fn query(&self, side: usize) -> QpAttr {
        self.sides[side].qp().query().expect("the QP exists")
    }

    fn post_send(&mut self, side: usize, wr: &SendWr<'_>) -> Result<(), PostError> {
        let result = self.sides[side].qp().post_send(&(*wr).into());
        result.map_err(|error| post_error(&error))
    }

    fn post_recv(&mut self, side: usize, wr: &RecvWr<'_>) -> Result<(), PostError> {
        let result = self.sides[side]
            .qp()
            .post_recv(&ApiRecvWr::new(wr.wr_id, wr.sges));
        result.map_err(|error| post_error(&error))
    }

    fn poll(&mut self, side: usize, queue: Queue) -> Option<Wc> {
        let mut wc = [Wc::default()];
        let count = self.sides[side].cqs[queue as usize].poll(&mut wc);
        if count.expect("the queue works") == 0 {
            return None;
        }
        self.last_news = Instant::now();
        Some(wc[0])
    }

    fn event(&mut self, side: usize) -> Option<String> {
        let event = self.sides[side].context.poll_async_event()?;
        self.last_news = Instant::now();
        Some(event_name(event))
    }

    fn destroy(&mut self, side: usize) {
        self.sides[side].qp = None;
    }

    fn advance(&mut self) -> bool {
        // A thread that polls drives; the other threads of the machine need their turn too.
        std::thread::yield_now();
        self.last_news.elapsed() < QUIET
    }

    fn silence(&mut self, _side: usize) -> bool {
        false
    }
}

fn post_error(error: &urxe::Error) -> PostError {
    match kind_of(error) {
        ErrorKind::Post(reason) => *reason,
        other => panic!("{other}"),
    }
}
