//! One address, several owners, each with listeners and connections of its own: QP 1 is
//! shared by all.

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{self, PATIENCE, address};
use urxe::cm::{
    CmError, ConnectBuilder, Connection, EventChannel, EventKind, Id, Manager, Opener, PortSpace,
    RejReason, listen,
};
use urxe::{Access, Context, Error, KeyFile, RecvWr, Security, SendWr};

/// Says to this test binary, started again, where it is to listen.
const LISTEN_AT: &str = "URXE_TEST_CM_LISTEN_AT";

/// One context and no other.
struct Only(Context);

impl Opener for Only {
    fn context_of(&self, addr: IpAddr) -> Result<Context, Error> {
        let is_its = self.0.addresses().any(|other| other == addr);
        is_its
            .then(|| self.0.clone())
            .ok_or_else(|| CmError::NoDevice(addr).into())
    }

    fn contexts(&self) -> Result<Vec<Context>, Error> {
        Ok(vec![self.0.clone()])
    }
}

/// Another owner of the address, as another process would be.
fn owner(addr: IpAddr) -> Manager {
    let context = Context::open(addr).expect("shared");
    Manager::new(Arc::new(Only(context)))
}

/// Asks by an owner's own context.
fn connect_by(manager: &Manager, from: IpAddr, to: SocketAddr) -> Result<Connection, Error> {
    ConnectBuilder::new(to)
        .manager(manager)
        .from(SocketAddr::new(from, 0))
        .timeout(PATIENCE)
        .connect()
}

fn say(connection: &Connection, text: &[u8]) {
    let send = SendWr::send_inline(1, text).signaled();
    connection.qp().post_send(&send).expect("room");
    let wc = connection.cq().poll_one().expect("polls");
    wc.ok().expect("sent");
}

/// A process that listens, says where, and takes all that come, and one message of each.
struct Server {
    process: Child,
    addr: SocketAddr,
}

impl Server {
    fn start(at: SocketAddr) -> Server {
        Server::start_by(&mut Server::command(), at)
    }

    fn command() -> Command {
        let mut command = Command::new(std::env::current_exe().expect("this test binary"));
        command.args([
            "cm_sharing::server_process",
            "--exact",
            "--nocapture",
            "--quiet",
        ]);
        command
    }

    fn start_by(command: &mut Command, at: SocketAddr) -> Server {
        let command = command.env(LISTEN_AT, at.to_string());
        let process = command.stdout(Stdio::piped()).spawn();
        let mut process = process.expect("starts");
        let output = BufReader::new(process.stdout.take().expect("piped"));
        let found = output.lines().map_while(Result::ok).find_map(|line| {
            let (_, addr) = line.split_once("listens at ")?;
            addr.trim().parse().ok()
        });
        let addr = found.expect("it says where it listens");
        Server { process, addr }
    }

    fn kill(&mut self) {
        self.process.kill().expect("it runs");
        self.process.wait().expect("it ends");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may be dead already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Not a test of its own: the process behind [`Server`].
#[test]
fn server_process() {
    let Ok(at) = std::env::var(LISTEN_AT) else {
        return;
    };
    let listener = listen(at.parse().expect("an address")).expect("listens");
    println!("\nlistens at {}", listener.local_addr());
    let mut guests = Vec::new();
    loop {
        let guest = listener.accept().expect("accepts");
        let memory = guest.pd().reg_owned(vec![0; 64], Access::LOCAL_WRITE);
        let memory = memory.expect("memory");
        let sge = [memory.sge(..)];
        guest.qp().post_recv(&RecvWr::new(1, &sge)).expect("room");
        guests.push((guest, memory));
    }
}

#[test]
fn owners_of_one_address_are_told_apart_by_port_and_id() {
    let (shared, elsewhere) = (address(), address());
    let [a, b, c] = [(); 3].map(|()| owner(shared));
    let listeners: Vec<Id> = [&a, &b, &c]
        .into_iter()
        .map(|manager| {
            let channel = EventChannel::with_manager(manager).expect("a channel");
            let id = Id::new(&channel, PortSpace::Tcp).expect("an identifier");
            id.bind_addr(SocketAddr::new(shared, 0)).expect("binds");
            id.listen(8).expect("listens");
            id
        })
        .collect();
    let ports: Vec<u16> = listeners
        .iter()
        .map(|id| id.local_addr().expect("bound").port())
        .collect();
    assert!(ports[0] != ports[1] && ports[1] != ports[2] && ports[0] != ports[2]);
    // A port is one owner's.
    let channel = EventChannel::with_manager(&b).expect("a channel");
    let id = Id::new(&channel, PortSpace::Tcp).expect("an identifier");
    let error = id.bind_addr(SocketAddr::new(shared, ports[0]));
    assert_eq!(error.expect_err("it is taken").errno(), 98);
    drop((id, listeners));

    // Each listens and each asks, all of one another and from elsewhere.
    let mut servers: Vec<Server> = Vec::new();
    for _ in 0..2 {
        servers.push(Server::start(SocketAddr::new(shared, 0)));
    }
    let far = owner(elsewhere);
    let mut connections = Vec::new();
    for round in 0..6 {
        for server in &servers {
            for (manager, from) in [(&a, shared), (&b, shared), (&far, elsewhere)] {
                let connection = connect_by(manager, from, server.addr);
                let connection = connection.unwrap_or_else(|error| panic!("{round}: {error}"));
                say(&connection, b"hello");
                connections.push(connection);
            }
        }
    }
    // Each of them ends, and is told so.
    for connection in connections {
        connection.disconnect().expect("the peer answers");
    }
    // There is no listener.
    let nowhere = SocketAddr::new(shared, 9);
    let error = connect_by(&far, elsewhere, nowhere).expect_err("nobody is there");
    assert_eq!(
        error.cm(),
        Some(CmError::Rejected(RejReason::INVALID_SERVICE_ID))
    );
}

/// A participant that has just joined an address is known to the others there: its first answer may come to their sockets.
#[test]
fn answers_reach_who_has_just_come() {
    let (shared, elsewhere) = (address(), address());
    let server = Server::start(SocketAddr::new(elsewhere, 0));
    let bystander = Context::open(shared).expect("shared");
    let resident = owner(shared);
    let mut connections = Vec::new();
    for _ in 0..10 {
        // The bystander reads the list of participants,
        common::steer_all_to(shared, 0);
        connections.push(connect_by(&resident, shared, server.addr).expect("connects"));
        // and then a participant joins.
        let newcomer = owner(shared);
        common::steer_all_to(shared, 0);
        connections.push(connect_by(&newcomer, shared, server.addr).expect("connects"));
    }
    let counters = bystander.counters().expect("it is whole");
    let count = |name| counters.iter().find(|(other, _)| *other == name);
    assert!(count("handed_over").is_some_and(|(_, count)| *count > 0));
    // It had nothing to say, such as that there is no listener.
    assert_eq!(count("cm_sent_msgs"), Some(&("cm_sent_msgs", 0)));
}

#[test]
fn a_dead_process_leaves_no_port() {
    let (shared, elsewhere) = (address(), address());
    let far = owner(elsewhere);
    let mut server = Server::start(SocketAddr::new(shared, 7499));
    let mine = owner(shared);
    let try_bind = || {
        let channel = EventChannel::with_manager(&mine).expect("a channel");
        let id = Id::new(&channel, PortSpace::Tcp).expect("an identifier");
        id.bind_addr(SocketAddr::new(shared, 7499)).map(|()| id)
    };
    assert_eq!(try_bind().expect_err("it is taken").errno(), 98);
    let connection = connect_by(&far, elsewhere, server.addr).expect("it listens");
    say(&connection, b"hello");
    server.kill();
    let id = try_bind().expect("it is free");
    drop(id);
    // Another one takes its place.
    let again = Server::start(SocketAddr::new(shared, 7499));
    let connection = connect_by(&far, elsewhere, again.addr).expect("it listens");
    say(&connection, b"hello again");
}

/// What an ended listener left in the list of ports may lie behind the entry of the one that listens now.
#[test]
fn a_dead_listener_does_not_hide_the_living_one() {
    let (shared, elsewhere) = (address(), address());
    let far = owner(elsewhere);
    let before = owner(shared);
    let channel = EventChannel::with_manager(&before).expect("a channel");
    let id = Id::new(&channel, PortSpace::Tcp).expect("an identifier");
    id.bind_addr(SocketAddr::new(shared, 7496)).expect("free");
    id.listen(1).expect("bound");
    let mut server = Server::start(SocketAddr::new(shared, 7497));
    // Both places are free now, and the next one gets the first.
    drop((id, channel, before));
    server.kill();
    let again = Server::start(SocketAddr::new(shared, 7497));
    // Another owner, which may be the one that gets the request.
    let beside = owner(shared);
    for (manager, from) in [(&far, elsewhere), (&beside, shared)] {
        let connection = connect_by(manager, from, again.addr).expect("it listens");
        say(&connection, b"hello");
    }
}

/// Two hundred connect while the listener is killed and started again: each gets a
/// connection, or hears why not, within its time.
#[test]
fn nobody_hangs_while_a_listener_is_restarted() {
    const CLIENTS: usize = 200;
    let (addr, from) = (address(), address());
    let at = SocketAddr::new(addr, 7498);
    let mut server = Server::start(at);
    let manager = owner(from);
    let start = Instant::now();
    let threads: Vec<_> = (0..CLIENTS)
        .map(|n| {
            let manager = manager.clone();
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(n as u64 * 2));
                let connection = connect_by(&manager, from, at);
                (connection.map(drop), start.elapsed())
            })
        })
        .collect();
    std::thread::sleep(Duration::from_millis(150));
    server.kill();
    std::thread::sleep(Duration::from_millis(100));
    let _again = Server::start(at);
    let (mut connected, mut refused) = (0, 0);
    for thread in threads {
        let (outcome, after) = thread.join().expect("no panic");
        assert!(after < PATIENCE + Duration::from_secs(10), "{after:?}");
        match outcome {
            Ok(()) => connected += 1,
            Err(error) => {
                let known = matches!(
                    error.cm(),
                    Some(
                        CmError::Rejected(_)
                            | CmError::Unreachable
                            | CmError::TimedOut
                            | CmError::Closed
                    )
                );
                assert!(known, "{error}");
                refused += 1;
            }
        }
    }
    println!("{connected} connected, {refused} heard why not");
    assert!(connected > CLIENTS / 2, "{connected} of {CLIENTS}");
}

/// Its packets are steered nowhere, or to another owner, which answers in its stead: no peer waits for the ended process.
#[test]
fn the_dead_are_answered_for() {
    let shared = address();
    let mine = owner(shared);
    let mut server = Server::start(SocketAddr::new(shared, 0));
    let connections: Vec<Connection> = (0..4)
        .map(|_| connect_by(&mine, shared, server.addr).expect("it listens"))
        .collect();
    server.kill();
    let start = Instant::now();
    for connection in connections {
        connection.disconnect().expect("somebody answers");
    }
    // Less than the time after which a message is sent again.
    assert!(start.elapsed() < Duration::from_secs(4));
}

/// One that has its address alone, and so knows no participants: as if on another host.
fn stranger() -> (Manager, IpAddr) {
    let addr = address();
    let context = Context::builder(addr).share(false).open();
    let context = context.expect("nobody else has it");
    (Manager::new(Arc::new(Only(context))), addr)
}

/// Neither sends anything, so no retries tell it.
fn hears_of_the_end(connection: &Connection) {
    let event = connection.events().wait(Some(PATIENCE)).expect("waits");
    assert_eq!(event.map(|event| event.kind), Some(EventKind::Disconnected));
    // What was posted comes back.
    let flushed = connection.wait(PATIENCE).expect_err("it is over");
    assert_eq!(flushed.cm(), Some(CmError::Closed));
}

/// Connections of several peers, each with a receive posted.
fn guests(peers: &[(Manager, IpAddr)], server: &Server) -> Vec<(Connection, urxe::Mr)> {
    let each = peers.iter().flat_map(|peer| [peer; 3]);
    let guests = each.map(|(manager, from)| {
        let guest = connect_by(manager, *from, server.addr).expect("it listens");
        let memory = guest.pd().reg_owned(vec![0; 64], Access::LOCAL_WRITE);
        let memory = memory.expect("memory");
        let sge = [memory.sge(..)];
        guest.qp().post_recv(&RecvWr::new(1, &sge)).expect("room");
        say(&guest, b"hello");
        (guest, memory)
    });
    guests.collect()
}

#[test]
fn peers_of_a_killed_process_hear_it_from_another_at_its_address() {
    let shared = address();
    let before = owner(shared);
    let mut server = Server::start(SocketAddr::new(shared, 0));
    let after = owner(shared);
    // The address is the killed one's, a third one's, or as on another host; the last are told by sockets alone.
    let far = [stranger(), stranger()];
    let elsewhere = address();
    let here = [
        (before, shared),
        (after, shared),
        (owner(elsewhere), elsewhere),
    ];
    let (far, here) = (guests(&far, &server), guests(&here, &server));
    let mut other = Server::start(SocketAddr::new(shared, 0));
    let stays = guests(&[stranger()], &other);
    server.kill();
    for (guest, _) in far.iter().chain(&here) {
        hears_of_the_end(guest);
    }
    // No others were meant.
    for (guest, _) in &stays {
        let event = guest.events().wait(Some(Duration::ZERO)).expect("waits");
        assert!(event.is_none(), "{event:?}");
    }
    other.kill();
    for (guest, _) in &stays {
        hears_of_the_end(guest);
    }
}

#[test]
fn peers_of_a_killed_process_hear_it_from_the_next_at_its_address() {
    let shared = address();
    let mut server = Server::start(SocketAddr::new(shared, 0));
    let guests = guests(&[stranger(), stranger()], &server);
    server.kill();
    let next = Context::open(shared).expect("shared");
    for (guest, _) in &guests {
        hears_of_the_end(guest);
    }
    drop(next);
}

/// A peer that takes sealed packets alone believes no others.
#[test]
fn what_is_said_for_a_killed_process_is_sealed_where_its_packets_were() {
    let path = std::env::temp_dir().join(format!("urxe-test-bye-{}", std::process::id()));
    std::fs::write(&path, &**KeyFile::new(1, [7; 32], 0).text()).expect("a file");
    let rights = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(&path, rights).expect("it is ours");
    let open = |addr: IpAddr, shared: bool| {
        let builder = Context::builder(addr).security(Security::Seal);
        let context = builder.key_file(&path).share(shared).open();
        context.expect("no others have it")
    };
    let (shared, far) = (address(), address());
    let mut command = Server::command();
    command.env("URXE_SECURITY", "seal");
    command.env("URXE_KEY_FILE", &path);
    let mut server = Server::start_by(&mut command, SocketAddr::new(shared, 0));
    let beside = open(shared, true);
    let manager = Manager::new(Arc::new(Only(open(far, false))));
    let guests = guests(&[(manager, far)], &server);
    server.kill();
    for (guest, _) in &guests {
        hears_of_the_end(guest);
    }
    drop(beside);
    std::fs::remove_file(&path).expect("it is ours");
}

/// What says so is gone with those that it was about.
#[test]
fn nothing_is_left_of_farewells() {
    let shared = address();
    let files = |pid: u32| {
        let folder = format!("/proc/{pid}/fd");
        let all = std::fs::read_dir(folder).expect("it runs").flatten();
        let targets = all.filter_map(|one| std::fs::read_link(one.path()).ok());
        let names = targets.map(|path| path.to_string_lossy().into_owned());
        names
            .filter(|name| name.contains("/farewells-"))
            .collect::<Vec<_>>()
    };
    let mine = owner(shared);
    let server = Server::start(SocketAddr::new(shared, 0));
    let guests = guests(&[(mine, shared)], &server);
    let kept = files(server.process.id());
    let its = |name: &&String| files(std::process::id()).contains(name);
    let own: Vec<_> = kept.iter().filter(|name| its(name)).cloned().collect();
    assert!(own.len() >= 2, "each has its own and the other's: {kept:?}");
    drop(server);
    for (guest, _) in &guests {
        hears_of_the_end(guest);
    }
    drop(guests);
    common::wait_until("its file is gone", || {
        own.iter()
            .filter(|name| std::path::Path::new(name).exists())
            .count()
            < own.len()
    });
}
