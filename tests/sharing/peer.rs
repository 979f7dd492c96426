//! One of many processes. It is told by lines on its input which others to play with, and says by lines on its output what
//! came of it:
//!
//! | told | answer |
//! |---|---|
//! | `make MEMBER` | `made MEMBER ENDPOINT` |
//! | `join MEMBER ENDPOINT` | `joined MEMBER` |
//! | `serve MEMBER` | the first ball is thrown |
//! | `drop MEMBER` | the QP is destroyed |
//! | `report` | `balls MEMBER:COUNT ...`, of all that play |
//! | `end` | `left COUNTER:VALUE ...`, when everything is closed |
//!
//! and, unasked: `failed MEMBER STATUS`, `wrong TEXT`.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use urxe::{Access, CompChannel, ConnectOptions, Context, Cq, Mr, Mtu, Pd, Qp, RecvWr, SendWr, Wc};

use crate::ball::{Ball, LONGEST};

/// Tells this test binary, started again, its identity: an address and a member's number.
pub(crate) const PEER: &str = "URXE_TEST_SHARING_PEER";

/// What its answers begin with: the test harness prints, too.
pub(crate) const ANSWER: &str = "peer: ";

/// While nothing arrives, how long until commands are looked at.
const PAUSE: Duration = Duration::from_millis(10);

/// Eight times half a second until a peer counts as dead: on a busy machine one may have to wait for the processor.
const PATIENT: u8 = 17;

/// Not a test by itself.
#[test]
fn peer_process() {
    let Ok(who) = std::env::var(PEER) else {
        println!("skipped: this is what the other test starts");
        return;
    };
    let (addr, member) = who.split_once(' ').expect("an address and a member");
    let addr = addr.parse().expect("an address");
    Peer::open(addr, member.parse().expect("a number")).run();
}

struct Peer {
    member: u32,
    courts: BTreeMap<u32, Court>,
    cq: Cq,
    channel: CompChannel,
    pd: Pd,
    context: Context,
}

/// What is shared with one other member. Its QP goes before the memory.
struct Court {
    qp: Qp,
    out: Mr,
    into: Mr,
    /// The number of the ball that must come next.
    next: u64,
    /// Balls that came.
    count: u64,
    /// The last throw is not acknowledged, so its memory is not ours yet.
    is_throwing: bool,
    /// To be thrown when it is.
    waits: Option<u64>,
    has_failed: bool,
}

impl Peer {
    fn open(addr: IpAddr, member: u32) -> Peer {
        let context = Context::open(addr).expect("the address is shared");
        let channel = context.create_comp_channel().expect("a channel");
        Peer {
            member,
            courts: BTreeMap::new(),
            cq: context
                .create_cq_with_channel(2048, &channel)
                .expect("a CQ"),
            channel,
            pd: context.alloc_pd().expect("a PD"),
            context,
        }
    }

    fn run(mut self) {
        let commands = commands();
        loop {
            let mut wcs = [Wc::default(); 32];
            let mut count = self.cq.poll(&mut wcs).expect("polls");
            if count == 0 {
                self.cq.req_notify(false).expect("a channel");
                count = self.cq.poll(&mut wcs).expect("polls");
            }
            for wc in &wcs[..count] {
                self.complete(wc);
            }
            loop {
                match commands.try_recv() {
                    Ok(command) if command == "end" => return self.end(),
                    Ok(command) => self.obey(&command),
                    Err(mpsc::TryRecvError::Empty) => break,
                    // The parent process is gone.
                    Err(mpsc::TryRecvError::Disconnected) => return,
                }
            }
            if count == 0 {
                self.channel.wait_timeout(PAUSE).expect("waits");
            }
        }
    }

    fn obey(&mut self, command: &str) {
        let mut words = command.split(' ');
        let verb = words.next().expect("split has a first");
        let other: u32 = words.next().map_or(0, |w| w.parse().expect("a member"));
        match verb {
            "make" => {
                let court = self.make(other);
                println!("{ANSWER}made {other} {}", court.qp.endpoint());
                self.courts.insert(other, court);
            }
            "drop" => {
                self.courts.remove(&other);
            }
            "report" => {
                let balls = self.courts.iter().map(|(k, c)| format!(" {k}:{}", c.count));
                println!("{ANSWER}balls{}", balls.collect::<String>());
            }
            // What follows is about a court that may be dropped already.
            "join" => {
                let Some(court) = self.courts.get_mut(&other) else {
                    return;
                };
                let endpoint = words.next().expect("an endpoint");
                let options = ConnectOptions {
                    timeout: PATIENT,
                    path_mtu: Some(Mtu::Mtu1024),
                    ..ConnectOptions::default()
                };
                let endpoint = endpoint.parse().expect("an endpoint");
                court.qp.connect(&endpoint, &options).expect("connects");
                court.expect_ball(other);
                println!("{ANSWER}joined {other}");
            }
            "serve" => self.throw(other, 1),
            other => panic!("what is {other}?"),
        }
    }

    fn make(&self, other: u32) -> Court {
        let memory = || {
            let memory = self.pd.reg_owned(vec![0; LONGEST], Access::LOCAL_WRITE);
            memory.expect("memory")
        };
        let qp = self.pd.qp(&self.cq).max_send_wr(2).max_recv_wr(2);
        Court {
            qp: qp.create().expect("QPNs are left"),
            out: memory(),
            into: memory(),
            next: if self.member < other { 2 } else { 1 },
            count: 0,
            is_throwing: false,
            waits: None,
            has_failed: false,
        }
    }

    fn complete(&mut self, wc: &Wc) {
        let (other, is_throw) = ((wc.wr_id >> 1) as u32, wc.wr_id & 1 == 1);
        let Some(court) = self.courts.get_mut(&other) else {
            return;
        };
        if !wc.is_success() {
            if !court.has_failed {
                println!("{ANSWER}failed {other} {:?}", wc.status);
            }
            court.has_failed = true;
        } else if is_throw {
            court.is_throwing = false;
            if let Some(number) = court.waits.take() {
                self.throw(other, number);
            }
        } else {
            self.take(other, wc.byte_len as usize);
        }
    }

    /// A ball has come: it must be the next, whole, and once.
    fn take(&mut self, other: u32, len: usize) {
        let pair = self.pair(other);
        let Some(court) = self.courts.get_mut(&other) else {
            return;
        };
        let ball = Ball {
            pair,
            number: court.next,
        };
        let mut bytes = vec![0; len];
        court.into.read(0, &mut bytes);
        if bytes != ball.bytes() {
            let number = bytes.first_chunk().map(|head| u64::from_le_bytes(*head));
            println!(
                "{ANSWER}wrong from {other}: {len} bytes that say {number:?}, not {ball:?} with {}",
                ball.len()
            );
        }
        court.next += 2;
        court.count += 1;
        court.expect_ball(other);
        self.throw(other, ball.number + 1);
    }

    fn throw(&mut self, other: u32, number: u64) {
        let pair = self.pair(other);
        let Some(court) = self.courts.get_mut(&other) else {
            return;
        };
        if court.is_throwing {
            // The answer was faster than the ACK.
            court.waits = Some(number);
            return;
        }
        let bytes = Ball { pair, number }.bytes();
        court.out.write(0, &bytes);
        let sges = [court.out.sge(..bytes.len())];
        let wr = SendWr::send(u64::from(other) << 1 | 1, &sges).signaled();
        // Of a QP in error the completion says so.
        court.is_throwing = true;
        if let Err(error) = court.qp.post_send(&wr) {
            println!("{ANSWER}wrong: posting to {other}: {error}");
        }
    }

    fn pair(&self, other: u32) -> [u32; 2] {
        [self.member.min(other), self.member.max(other)]
    }

    fn end(self) {
        let counters = self.context.counters().expect("counters");
        drop(self);
        let counters = counters.iter().map(|(name, n)| format!(" {name}:{n}"));
        println!("{ANSWER}left{}", counters.collect::<String>());
    }
}

impl Court {
    fn expect_ball(&self, other: u32) {
        let sges = [self.into.sge(..)];
        let wr = RecvWr::new(u64::from(other) << 1, &sges);
        self.qp.post_recv(&wr).expect("room");
    }
}

/// Lines of the standard input; a thread waits for them.
fn commands() -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines() {
            let Ok(line) = line else { return };
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}
