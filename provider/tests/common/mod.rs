//! Two connected ends on loopback, and a deadline for everything.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test binary uses some of it"
)]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use urxe::stat_file::{ContextCounters, read_all};
use urxe::{
    Access, CompChannel, ConnectOptions, Context, Cq, Endpoint, Mr, Pd, Qp, QpBuilder, QpStatus,
    RecvWr, SendWr, Wc,
};

/// Longer than anything here takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub const ALL: Access = Access(15);

/// An address on loopback that no other test has: from the process id and a count. The first 254 are in a block that processes with
/// ids near this one do not have; the processes that tests start need no more.
pub fn address() -> IpAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let pid = std::process::id();
    let count = NEXT.fetch_add(1, Ordering::Relaxed);
    let high = match count / 254 {
        0 => 100 + pid / 250 % 100,
        block @ 1..100 => block,
        _ => panic!("more contexts than addresses"),
    };
    let last = count % 254 + 1;
    IpAddr::V4(Ipv4Addr::new(
        127,
        high as u8,
        (pid % 250) as u8,
        last as u8,
    ))
}

/// The one IPv6 address that every host has, for a test at a time: contexts of an address take packets for each other.
pub fn v6_in_turn() -> (IpAddr, MutexGuard<'static, ()>) {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    (Ipv6Addr::LOCALHOST.into(), turn)
}

/// A multicast group that no other test has.
pub fn group() -> IpAddr {
    match address() {
        IpAddr::V4(v4) => {
            let [_, b, c, d] = v4.octets();
            IpAddr::from([239, b, c, d])
        }
        IpAddr::V6(_) => unreachable!("tests have IPv4 addresses"),
    }
}

pub struct End {
    pub context: Context,
    pub pd: Pd,
    pub channel: CompChannel,
    pub cq: Cq,
    pub qp: Qp,
}

impl End {
    pub fn open() -> End {
        End::on(Context::open(address()).expect("the address is free"))
    }

    pub fn on(context: Context) -> End {
        End::with(context, |qp| qp)
    }

    pub fn with(context: Context, build: impl Fn(QpBuilder<'_>) -> QpBuilder<'_>) -> End {
        let pd = context.alloc_pd().expect("a PD");
        let channel = context.create_comp_channel().expect("a channel");
        let cq = context
            .create_cq_with_channel(1024, &channel)
            .expect("a CQ");
        let qp = build(pd.qp(&cq)).create().expect("a QP");
        End {
            context,
            pd,
            channel,
            cq,
            qp,
        }
    }

    pub fn memory(&self, len: usize) -> Mr {
        self.pd.reg_owned(vec![0; len], ALL).expect("memory")
    }

    #[track_caller]
    pub fn recv(&self, wr_id: u64, mr: &Mr) {
        self.qp
            .post_recv(&RecvWr::new(wr_id, &[mr.sge(..)]))
            .expect("room in the queue");
    }

    /// The next completion.
    #[track_caller]
    pub fn complete(&self) -> Wc {
        poll(&self.cq)
    }

    /// The next completion, which must be a success.
    #[track_caller]
    pub fn succeed(&self) -> Wc {
        let wc = self.complete();
        assert!(wc.is_success(), "{wc}");
        wc
    }

    pub fn counter(&self, name: &str) -> u64 {
        let counters = self.context.counters().expect("counters");
        let found = counters.iter().find(|(n, _)| *n == name);
        found.unwrap_or_else(|| panic!("no counter {name}")).1
    }
}

#[track_caller]
pub fn poll(cq: &Cq) -> Wc {
    let mut wc = [Wc::default()];
    wait_until("a completion", || {
        cq.poll(&mut wc).expect("polling works") == 1
    });
    wc[0]
}

/// Tries until it is so.
#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(
            start.elapsed() < PATIENCE,
            "{what}: not within {PATIENCE:?}"
        );
        // Others need the processor to bring it about.
        std::thread::yield_now();
    }
}

/// What `urxe stat` reads of a context of this process.
pub fn stat_entry(context: &Context) -> ContextCounters {
    let mut found = None;
    wait_until("the counters are written", || {
        let all = read_all().expect("readable");
        found = all
            .into_iter()
            .find(|entry| entry.addresses == [context.address()]);
        found.is_some()
    });
    found.expect("just found")
}

/// And of one of its QPs.
pub fn qp_status(context: &Context, qp: &Qp) -> QpStatus {
    let qps = stat_entry(context).qps().expect("the process answers");
    let number = qp.qp_num().get();
    let found = qps.into_iter().find(|qp| qp.qpn == number);
    found.unwrap_or_else(|| panic!("no QP {number:#x}"))
}

pub fn connect(a: &Qp, b: &Qp, options: &ConnectOptions) {
    a.connect(&b.endpoint(), options).expect("connects");
    b.connect(&a.endpoint(), options).expect("connects");
}

/// Two ends, each with a context of its own.
pub fn pair() -> (End, End) {
    pair_with(&ConnectOptions::default())
}

pub fn pair_with(options: &ConnectOptions) -> (End, End) {
    let (a, b) = (End::open(), End::open());
    connect(&a.qp, &b.qp, options);
    (a, b)
}

/// An endpoint without a QP.
pub fn nobody(mtu: urxe::Mtu) -> Endpoint {
    let (qpn, psn) = (urxe::Qpn::new(0x1234), urxe::Psn::new(1));
    Endpoint {
        addr: address(),
        qpn,
        psn,
        mtu,
    }
}

/// Bytes that differ from message to message and place to place.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|at| (at.wrapping_mul(31) ^ seed.wrapping_mul(77) ^ at >> 8) as u8)
        .collect()
}

pub fn bytes(mr: &Mr, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    mr.read(0, &mut bytes);
    bytes
}

/// A SEND each way, and a WRITE and a READ, all verified.
pub fn exchange(a: &End, b: &End, seed: u64) {
    for (from, to, seed) in [(a, b, seed), (b, a, seed + 1)] {
        let (source, target) = (from.memory(5000), to.memory(5000));
        source.write(0, &pattern(seed, 5000));
        to.recv(1, &target);
        let whole = [source.sge(..)];
        let wr = SendWr::send(2, &whole);
        from.qp.post_send(&wr.signaled()).expect("room");
        let (sent, received) = (from.succeed(), to.succeed());
        assert_eq!((sent.wr_id, received.wr_id), (2, 1));
        assert_eq!(bytes(&target, 5000), pattern(seed, 5000));

        source.write(0, &pattern(seed + 7, 5000));
        let (addr, rkey) = (target.addr(), target.rkey());
        let back = from.memory(5000);
        let (out, in_) = ([source.sge(..)], [back.sge(..)]);
        let wrs = [
            SendWr::rdma_write(3, &out, addr, rkey),
            SendWr::rdma_read(4, &in_, addr, rkey).signaled(),
        ];
        from.qp.post_send_list(&wrs).expect("room");
        assert_eq!(from.succeed().wr_id, 4);
        assert_eq!(bytes(&back, 5000), pattern(seed + 7, 5000));
    }
}

/// Set in a test's second process, which has a network of its own.
const INSIDE_NAMESPACE: &str = "URXE_TEST_INSIDE_NAMESPACE";

/// Runs the body of the test called `name` in another process that has a network of its
/// own: a virtual cable from `urxe0` to `urxe1`. Without the rights or commands for that
/// the test says so and is skipped.
pub fn in_namespace(name: &str, body: impl FnOnce()) {
    if std::env::var_os(INSIDE_NAMESPACE).is_some() {
        ip("link add urxe0 type veth peer name urxe1");
        body();
        println!("{name} is done");
        return;
    }
    // Root needs no user namespace; others can have a network only inside one.
    let kinds = if rustix::process::getuid().is_root() {
        "--net"
    } else {
        "--user --map-root-user --net"
    };
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(kinds.split(' '));
        command
    };
    let can = unshare()
        .args("ip link add urxe0 type veth peer name urxe1".split(' '))
        .output();
    match can {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            let why = String::from_utf8_lossy(&output.stderr);
            println!("skipped {name}: no network of its own: {}", why.trim());
            return;
        }
        Err(error) => {
            println!("skipped {name}: no `unshare` command: {error}");
            return;
        }
    }
    let mut command = unshare();
    command.arg(std::env::current_exe().expect("a path"));
    run_again(name, &mut command, INSIDE_NAMESPACE);
}

/// Set in the process of a test that is alone in it.
const ALONE: &str = "URXE_TEST_ALONE";

/// Runs the body of the test called `name` in another process, in which no other test runs.
pub fn alone(name: &str, body: impl FnOnce()) {
    if std::env::var_os(ALONE).is_some() {
        body();
        println!("{name} is done");
        return;
    }
    let binary = std::env::current_exe().expect("this test binary");
    run_again(name, &mut Command::new(binary), ALONE);
}

/// Runs the test called `name` in another process, which is told so by a variable, and says at its end that it is done.
pub fn run_again(name: &str, binary: &mut Command, variable: &str) {
    let output = binary
        .args([name, "--exact", "--nocapture"])
        .env(variable, "1")
        .output()
        .expect("it can be run");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    assert!(text.contains(&format!("{name} is done")), "{text}{errors}");
    print!("{text}");
}

/// Runs the `ip` command.
pub fn ip(args: &str) {
    let output = Command::new("ip").args(args.split(' ')).output();
    let output = output.expect("ip runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {args}: {errors}");
}

/// Makes the kernel deliver everything to one of the sockets on an address.
pub fn steer_all_to(addr: IpAddr, number: u32) {
    // Sealed packets have a port of their own.
    for port in [4791, urxe_seal::PORT] {
        steer_all_at(addr, port, number);
    }
}

/// The same at any port.
pub fn steer_all_at(addr: IpAddr, port: u16, number: u32) {
    use urxe_udp::{Steering, UdpConfig, UdpSocket};
    let config = UdpConfig {
        reuse_port: true,
        ..UdpConfig::default()
    };
    // It is in the group for a moment, as the last: no other socket is renumbered.
    let socket = UdpSocket::bind((addr, port).into(), &config).expect("of the same user");
    let steering = Steering {
        probe: urxe_core::qpn_table::PROBE,
        offset: 4,
        mask: 0x00ff_ffff,
        shift: 12,
        by_other: None,
        map: &[(0, number)],
    };
    let program = steering.program().expect("short");
    socket.attach_steering(&program).expect("attached");
}
