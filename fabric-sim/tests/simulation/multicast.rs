//! Multicast groups between programs on simulated hosts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fabric_sim::fault::Fault;
use fabric_sim::program::{Report, Simulation, ask, sleep, tell};
use fabric_sim::{HostId, Link, Rate, Span, Topology};
use urxe::{Access, Context, Cq, Mr, Pd, Qkey, Qp, QpType, Qpn, RecvWr, SendWr};

const QKEY: Qkey = Qkey(0x0123_4567);
/// A datagram lies behind the 40 bytes of its GRH.
const GRH: usize = 40;
const SLOT: usize = GRH + 24;
const SLOTS: usize = 64;

/// A datagram QP with receives posted.
struct Listener {
    _context: Context,
    pd: Pd,
    sent: Cq,
    cq: Cq,
    qp: Qp,
    memory: Mr,
}

impl Listener {
    fn open(host: u8) -> Listener {
        let address = [10, 0, 0, host + 1].into();
        let context = Context::open(address).expect("a context");
        let (pd, cq) = (context.alloc_pd().expect("a PD"), context.create_cq(256));
        let cq = cq.expect("a CQ");
        let sent = context.create_cq(16).expect("a CQ");
        let qp = pd.qp(&sent).recv_cq(&cq).qp_type(QpType::Ud);
        let qp = qp.max_recv_wr(SLOTS as u32).create().expect("a QP");
        qp.start_datagrams(QKEY).expect("begins");
        let memory = pd.reg_owned(vec![0; SLOT * SLOTS], Access::LOCAL_WRITE);
        let memory = memory.expect("registers");
        for slot in 0..SLOTS {
            let sges = [memory.sge(slot * SLOT..(slot + 1) * SLOT)];
            qp.post_recv(&RecvWr::new(slot as u64, &sges))
                .expect("posts");
        }
        Listener {
            _context: context,
            pd,
            sent,
            cq,
            qp,
            memory,
        }
    }

    fn join(&self, group: &str) {
        self.qp.attach_mcast(group_of(group).into()).expect("joins");
    }

    fn leave(&self, group: &str) {
        let left = self.qp.detach_mcast(group_of(group).into());
        left.expect("leaves");
    }

    fn send(&self, group: &str, number: u64) {
        let ah = self.pd.create_ah_to(group_of(group)).expect("an AH");
        let bytes = number.to_be_bytes();
        let send = SendWr::send_inline(1000, &bytes);
        let send = send.ud_addr(&ah, Qpn::MULTICAST, QKEY).signaled();
        self.qp.post_send(&send).expect("posts");
        self.sent.poll_one().expect("polls").ok().expect("is sent");
    }

    /// The numbers that come in so long.
    fn hear(&self, time: Duration) -> Vec<u64> {
        let mut heard = Vec::new();
        while let Some(wc) = self.cq.poll_timeout(time).expect("polls") {
            assert_eq!(wc.byte_len as usize, GRH + 8);
            let mut bytes = [0; 8];
            self.memory.read(wc.wr_id as usize * SLOT + GRH, &mut bytes);
            heard.push(u64::from_be_bytes(bytes));
        }
        heard
    }
}

fn group_of(text: &str) -> std::net::IpAddr {
    text.parse().expect("an address")
}

const RED: &str = "239.1.1.1";
const BLUE: &str = "239.129.1.1";
const SILENCE: Duration = Duration::from_millis(1);

/// A network with several ways between any two leaves.
fn fabric() -> Topology {
    Topology::leaf_spine(
        3,
        2,
        2,
        Link::new(Rate::gbps(25)),
        Link::new(Rate::gbps(100)),
    )
}

fn run(sim: &mut Simulation) -> Report {
    sim.topology(fabric()).run().expect("all end")
}

/// Each member gets each datagram once, wherever it is; no other host gets any; and a host that leaves hears no more.
#[fabric_sim::test(seeds = 20, twice)]
fn members_hear_their_groups_and_no_others(sim: &mut Simulation) {
    sim.host(HostId(0), || {
        let all = Listener::open(0);
        for who in 1..6 {
            ask(&format!("h{who} listens"));
        }
        for number in 0..10 {
            all.send(RED, number);
            all.send(BLUE, 100 + number);
        }
        sleep(SILENCE);
        tell("first part", "is over");
        (1..6).for_each(|who| drop(ask(&format!("h{who} has heard"))));
        for number in 10..20 {
            all.send(RED, number);
        }
    });
    // On the sender's leaf, on the second, and two on the third.
    let red = [1, 3, 4, 5];
    for who in 1..6u8 {
        sim.host(HostId(who.into()), move || {
            let me = Listener::open(who);
            let is_red = red.contains(&who);
            if is_red {
                me.join(RED);
            }
            if who % 2 == 0 {
                me.join(BLUE);
            }
            tell(&format!("h{who} listens"), "yes");
            ask("first part");
            let mut heard = me.hear(SILENCE);
            heard.sort_unstable();
            let red = (0..10).filter(|_| is_red);
            let blue = (100..110).filter(|_| who % 2 == 0);
            assert_eq!(heard, red.chain(blue).collect::<Vec<_>>(), "h{who}");
            if who == 3 {
                me.leave(RED);
            }
            tell(&format!("h{who} has heard"), "yes");
            let later = me.hear(Duration::from_millis(5));
            let expected = (10..20).filter(|_| is_red && who != 3);
            assert_eq!(later, expected.collect::<Vec<_>>(), "h{who}, later");
        });
    }
    run(sim);
}

/// A copy is lost by itself: what one member misses the others have.
#[fabric_sim::test(seeds = 10)]
fn each_copy_is_lost_by_itself(sim: &mut Simulation) {
    const SENT: u64 = 40;
    sim.fault(Fault::loss(0.3).on(HostId(4)));
    let heard: Arc<[AtomicU64; 6]> = Arc::default();
    sim.host(HostId(0), || {
        let me = Listener::open(0);
        (1..6).for_each(|who| drop(ask(&format!("h{who} listens"))));
        for number in 0..SENT {
            me.send(RED, number);
            sleep(Duration::from_micros(1));
        }
    });
    for who in 1..6u8 {
        let heard = heard.clone();
        sim.host(HostId(who.into()), move || {
            let me = Listener::open(who);
            me.join(RED);
            tell(&format!("h{who} listens"), "yes");
            let count = me.hear(Duration::from_millis(2)).len() as u64;
            heard[usize::from(who)].store(count, Ordering::Relaxed);
        });
    }
    let report = run(sim);
    let heard: Vec<u64> = heard.iter().map(|n| n.load(Ordering::Relaxed)).collect();
    assert!(heard[4] < SENT && heard[4] > SENT / 3, "{heard:?}");
    assert_eq!(heard, [0, SENT, SENT, SENT, heard[4], SENT]);
    assert_eq!(report.drops().total(), SENT - heard[4]);
}

/// What is sent to a group without members ends at the first switch; a group of the sender's own is heard there.
#[test]
fn a_group_without_members_reaches_no_host() {
    let mut sim = Simulation::new(3);
    sim.host(HostId(0), || {
        let me = Listener::open(0);
        me.send(RED, 1);
        assert_eq!(me.hear(SILENCE), [0u64; 0]);
        me.join(BLUE);
        me.send(BLUE, 2);
        assert_eq!(me.hear(SILENCE), [2]);
        let v6 = me.qp.attach_mcast(group_of("ff0e::1").into());
        let words = v6.expect_err("IPv4 alone").to_string();
        assert!(words.contains("ff0e::1"), "{words}");
        let none = me.qp.attach_mcast(group_of("10.0.0.2").into());
        assert!(none.is_err(), "no group");
        assert!(me.qp.detach_mcast(group_of(RED).into()).is_err());
    });
    sim.host(HostId(1), || drop(Listener::open(1).hear(SILENCE * 4)));
    let report = run(&mut sim);
    assert_eq!(report.drops().total(), 2, "one a group");
}

/// A crash takes a host out of its groups; it is in them again when its service joins once more.
#[test]
fn a_host_that_crashes_has_left() {
    let mut sim = Simulation::new(4);
    let crash = Fault::crash(HostId(2)).between(Span::from_ms(1), Span::from_ms(2));
    sim.fault(crash);
    sim.host(HostId(0), || {
        let me = Listener::open(0);
        for number in 0..4 {
            sleep(Duration::from_micros(750));
            me.send(RED, number);
        }
        sleep(Duration::from_millis(1));
    });
    let heard = Arc::new(AtomicU64::new(0));
    let its = heard.clone();
    sim.service(HostId(2), move || {
        let me = Listener::open(2);
        me.join(RED);
        for number in me.hear(Duration::from_millis(2)) {
            its.fetch_add(1 << (8 * number), Ordering::Relaxed);
        }
    });
    sim.host(HostId(5), || {
        let me = Listener::open(5);
        me.join(RED);
        assert_eq!(me.hear(Duration::from_millis(3)), [0, 1, 2, 3]);
    });
    run(&mut sim);
    // 0 was heard at once, by a program that the crash ended; 1 was sent meanwhile.
    assert_eq!(heard.load(Ordering::Relaxed) & 0xff00, 0);
    assert_eq!(heard.load(Ordering::Relaxed) >> 16, 0x0101);
}
