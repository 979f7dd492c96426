//! Ordinary programs with sockets, unchanged, under Debian's `librspreload.so`: what they send goes by RDMA.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use crate::cm_ends::{Talking, command, start};
use crate::ends::{User, alone};
use crate::harness::{LIMIT, Ran, finish, port, run};

/// Debian's, from the package librdmacm1.
const PRELOAD: &str = "/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so";
const BYTES: usize = 100 << 20;

/// A folder with a file of 100 MiB, `sent`, of bytes that do not repeat. Removed with the value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("urxe-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let mut state = 7_u64;
        let words = (0..BYTES / 8).flat_map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state ^ (state >> 29)).to_ne_bytes()
        });
        fs::write(folder.join("sent"), words.collect::<Vec<u8>>()).expect("room for it");
        Folder(folder)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// `got` is the same as `sent`.
    fn assert_arrived(&self, told: &str) {
        let sent = fs::read(self.file("sent")).expect("it is there");
        let got = fs::read(self.file("got")).unwrap_or_default();
        let same = sent.iter().zip(&got).take_while(|(a, b)| a == b).count();
        assert!(
            sent == got,
            "{told}: {} bytes arrived, the first {same} as sent",
            got.len()
        );
        fs::remove_file(self.file("got")).expect("it is ours");
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A test that failed has more to say than this.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn preloaded(package: &str, line: &str, port: &str) -> Option<std::process::Command> {
    if !Path::new(PRELOAD).exists() {
        println!("skipped: {PRELOAD} is missing (apt-get install librdmacm1)");
        return None;
    }
    let mut command = command(User::Myself, package, line, port)?;
    command.env("LD_PRELOAD", PRELOAD);
    Some(command)
}

/// A client that is refused tries again: there was no listener yet.
fn until(is_done: impl Fn(&Ran) -> bool, mut client: impl FnMut() -> Ran) -> Ran {
    let started = Instant::now();
    loop {
        let ran = client();
        if is_done(&ran) || started.elapsed() > LIMIT {
            return ran;
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// ncat leaves its connection to the exit of the process: the other side has to hear of that.
#[test]
fn ncat_sends_100_mib_either_way() {
    let _alone = alone();
    let folder = Folder::new("ncat");
    for (server, client) in [
        ("--recv-only -l", "--send-only"),
        ("--send-only -l", "--recv-only"),
    ] {
        let port = port();
        let end = |options: &str| {
            let line = format!("ncat --nsock-engine=select {options} ADDR PORT");
            let mut command = preloaded("ncat", &line, &port)?;
            if options.contains("--send-only") {
                command.stdin(fs::File::open(folder.file("sent")).expect("it is there"));
            } else {
                command.stdout(fs::File::create(folder.file("got")).expect("room for it"));
            }
            command.stderr(Stdio::piped());
            Some(thread::spawn(move || {
                finish(command.spawn().expect("it starts"), LIMIT)
            }))
        };
        let Some(serving) = end(server) else {
            return;
        };
        let told = until(
            |ran| ran.code == Some(0) || serving.is_finished(),
            || {
                let asking = end(client).expect("it was there");
                asking.join().expect("it does not panic")
            },
        );
        let served = serving.join().expect("it does not panic");
        let codes = (served.code, told.code);
        assert_eq!(codes, (Some(0), Some(0)), "{server}: {served:?} {told:?}");
        folder.assert_arrived(server);
    }
}

/// A web server and a client that know nothing of each other, with TLS between them.
#[test]
fn curl_gets_100_mib_from_the_server_of_openssl() {
    let _alone = alone();
    let folder = Folder::new("openssl");
    let port = port();
    let at = |name: &str| folder.file(name).display().to_string();
    let (key, cert) = (at("key"), at("cert"));
    let request = format!(
        "openssl req -x509 -newkey rsa:2048 -nodes -keyout {key} -out {cert} -days 2 -subj /CN=urxe"
    );
    let Some(made) = command(User::Myself, "openssl", &request, &port) else {
        return;
    };
    let made = run(made);
    assert_eq!(made.code, Some(0), "{made:?}");
    let mut page = b"HTTP/1.0 200 OK\r\n\r\n".to_vec();
    page.extend(fs::read(folder.file("sent")).expect("it is there"));
    fs::write(folder.file("page"), page).expect("room for it");
    let line = format!("openssl s_server -HTTP -accept PORT -key {key} -cert {cert}");
    let Some(mut server) = preloaded("openssl", &line, &port) else {
        return;
    };
    server.current_dir(&folder.0);
    let server = Talking::start(server);
    let line = format!("curl -sSk -o {} https://ADDR:PORT/page", at("got"));
    if preloaded("curl", "curl", &port).is_some() {
        let client = until(
            // 7: no listener.
            |ran| ran.code != Some(7),
            || run(preloaded("curl", &line, &port).expect("it was there")),
        );
        assert_eq!(client.code, Some(0), "{client:?}");
        folder.assert_arrived("curl");
    }
    drop(server);
}

#[test]
fn iperf3_moves_100_mib_either_way() {
    let _alone = alone();
    for way in ["", "-R"] {
        let port = port();
        let Some(server) = preloaded("iperf3", "iperf3 -s -1 -B ADDR -p PORT", &port) else {
            return;
        };
        let server = start(server);
        let line = format!("iperf3 -c ADDR -p PORT -n 104857600 {way}");
        let client = until(
            |ran| ran.code == Some(0) || server.is_finished(),
            || run(preloaded("iperf3", &line, &port).expect("it was there")),
        );
        let server = server.join().expect("it does not panic");
        assert_eq!(client.code, Some(0), "{way}: {client:?} {server:?}");
        assert_eq!(server.code, Some(0), "{way}: {server:?}");
        assert!(client.text.contains("100 MBytes"), "{way}: {client:?}");
    }
}

/// Names `librspreload.so` of rdma-core 65 or later, which distributions do not have yet: it has epoll, by `repoll_create`
/// and its kin.
const NEWEST: &str = "URXE_RSPRELOAD";

/// Ten connections to a server that waits by epoll. (Its own clients connect twice, which the preload library takes for TCP.)
const REDIS_CLIENT: &str = r"
import socket, sys
where = (sys.argv[1], int(sys.argv[2]))
all = [socket.create_connection(where) for _ in range(10)]
for n, one in enumerate(all):
    big = bytes([65 + n]) * 500000
    one.sendall(b'*3\r\n$3\r\nSET\r\n$2\r\nk%d\r\n$500000\r\n%s\r\n' % (n, big))
    assert one.recv(100) == b'+OK\r\n'
for _ in range(200):
    for one in all: one.sendall(b'PING\r\n')
    for one in all: assert one.recv(100) == b'+PONG\r\n'
for n, one in enumerate(all):
    one.sendall(b'GET k%d\r\n' % n)
    wanted, got = b'$500000\r\n' + bytes([65 + n]) * 500000 + b'\r\n', b''
    while len(got) < len(wanted): got += one.recv(100000)
    assert got == wanted
print('all came back')
";

#[test]
fn redis_serves_by_epoll_under_the_newest_preload_library() {
    let newest = std::env::var(NEWEST).unwrap_or_default();
    if newest.is_empty() {
        println!("skipped: {NEWEST} names no librspreload.so of rdma-core 65 or later");
        return;
    }
    let _alone = alone();
    let folder = std::env::temp_dir().join(format!("urxe-redis-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let script = folder.join("client.py");
    fs::write(&script, REDIS_CLIENT).expect("room for it");
    let port = port();
    let of = |package: &str, line: &str| {
        let mut command = command(User::Myself, package, line, &port)?;
        command.env("LD_PRELOAD", &newest).current_dir(&folder);
        Some(command)
    };
    let line = "redis-server --bind ADDR --port PORT --save --appendonly no --protected-mode no";
    if let Some(server) = of("redis-server", line) {
        let server = Talking::start(server);
        let line = format!("/usr/bin/python3 {} ADDR PORT", script.display());
        let client = until(
            |ran| ran.code == Some(0) || !ran.text.contains("Connection refused"),
            || run(of("python3", &line).expect("python3 is there")),
        );
        drop(server);
        assert_eq!(client.code, Some(0), "{client:?}");
        assert!(client.text.contains("all came back"), "{client:?}");
    }
    fs::remove_dir_all(&folder).expect("it is ours");
}
