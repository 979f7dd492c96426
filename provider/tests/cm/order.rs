//! In which order a listener hears of what a peer at its own address sent.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, getpid, kill_process};

use super::*;
use crate::common::wait_until;

/// Says to this test binary, started again, where it is to listen.
const LISTEN_AT: &str = "URXE_TEST_CM_ORDER_AT";

/// A process that accepts all, and stops right after each.
struct Listening {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Listening {
    fn start(at: IpAddr) -> Listening {
        let mut command = Command::new(std::env::current_exe().expect("this test binary"));
        let role = [
            "cm::order::listening_process",
            "--exact",
            "--nocapture",
            "--quiet",
        ];
        command.args(role).env(LISTEN_AT, at.to_string());
        let mut process = command.stdout(Stdio::piped()).spawn().expect("starts");
        let output = process.stdout.take().expect("piped");
        let lines = BufReader::new(output).lines();
        Listening { process, lines }
    }

    /// What it says next; the test harness prints, too.
    fn says(&mut self) -> String {
        let mut lines = self.lines.by_ref().map_while(Result::ok);
        let said = lines.find_map(|line| Some(line.split_once("says: ")?.1.to_owned()));
        said.expect("it runs")
    }

    fn is_stopped(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.id()));
        // The state comes after the name, which is in brackets.
        stat.expect("it runs").contains(") T ")
    }

    fn go_on(&self) {
        let pid = Pid::from_child(&self.process);
        kill_process(pid, Signal::CONT).expect("it runs");
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Not a test of its own: the process behind [`Listening`].
#[test]
fn listening_process() {
    let Ok(at) = std::env::var(LISTEN_AT) else {
        return;
    };
    let host = Host::new(at.parse().expect("an address"));
    let (_listener, addr) = host.listen(PortSpace::Tcp);
    let say = |what: &dyn std::fmt::Display| {
        println!("\nsays: {what}");
        std::io::stdout().flush().expect("a pipe");
    };
    say(&addr);
    let mut kept = Vec::new();
    loop {
        let event = host.next();
        say(&event.kind);
        if event.kind == EventKind::ConnectRequest {
            let end = End::new(&host, QpType::Rc);
            event.id.attach_qp(&end.qp).expect("attaches");
            event.id.accept(&ConnParam::default()).expect("accepts");
            kept.push((event, end));
            // What the peer says to that, and next, is for later.
            kill_process(getpid(), Signal::STOP).expect("it is this one");
        }
    }
}

/// "Ready to use" of one connection is steered to its owner, and the request of the next one, sent after it, may be handed over by the
/// peer's own sockets. libfabric's test of several endpoints takes the first one for failed if it hears of them in the other order.
#[test]
fn a_connection_is_established_before_the_next_request_of_its_peer() {
    // The kernel gives all requests at an address to the same socket: at each second one to the peer's.
    let tried = (0..32).find(|_| try_at(address()));
    assert!(tried.is_some(), "no request was handed over");
}

/// False if requests at this address come to the listener's own socket.
fn try_at(shared: IpAddr) -> bool {
    let mut server = Listening::start(shared);
    let addr = server.says().parse().expect("an address");
    let client = Host::new(shared);
    let connect = || {
        let id = client.resolved(PortSpace::Tcp, addr);
        let end = End::new(&client, QpType::Rc);
        id.attach_qp(&end.qp).expect("attaches");
        id.connect(&ConnParam::default()).expect("asks");
        (id, end)
    };
    let handed_over = || {
        let counters = client.context.counters().expect("it is open");
        let found = counters.iter().find(|(name, _)| *name == "handed_over");
        found.expect("a counter").1
    };
    let _first = connect();
    client.expect(EventKind::Established);
    let before = handed_over();
    if before == 0 {
        return false;
    }
    wait_until("the listener stops", || server.is_stopped());
    let _second = connect();
    wait_until("its request is handed over", || handed_over() > before);
    server.go_on();
    let order = [(); 3].map(|()| server.says());
    let kinds = [
        EventKind::ConnectRequest,
        EventKind::Established,
        EventKind::ConnectRequest,
    ];
    assert_eq!(order, kinds.map(|kind| kind.to_string()));
    true
}
