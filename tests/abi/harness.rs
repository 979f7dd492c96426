//! The library as cargo builds it, and programs that find it in place of the system's.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use std::{env, thread};

/// No program here takes near this long.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// The folder in which the library has the names that programs ask for.
pub(crate) fn library() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(build)
}

fn build() -> PathBuf {
    // .../target/PROFILE/deps/abi-HASH: two folders up is where cargo puts libraries.
    let test = env::current_exe().expect("a test knows its own path");
    let folder = test.ancestors().nth(2).expect("tests lie in PROFILE/deps");
    let name = folder.file_name().expect("PROFILE").to_string_lossy();
    let profile = if name == "debug" { "dev" } else { &name };
    let status = urxe_tests::cargo()
        .args(["build", "--quiet", "--package", "urxe-abi"])
        .args([
            "--package",
            "urxe-cli",
            "--package",
            "urxe-preload",
            "--package",
            "urxe-simulated",
            "--profile",
        ])
        .arg(profile)
        .arg("--target-dir")
        .arg(folder.parent().expect("the target folder"))
        .status();
    assert!(status.expect("cargo runs").success(), "it does not build");
    folder.join("urxe-lib")
}

/// The command `urxe` beside it.
pub(crate) fn urxe() -> Command {
    Command::new(library().with_file_name("urxe"))
}

/// A program on the library, with a device on this address; `None`, with the reason printed, where it is not
/// installed.
pub(crate) fn program(name: &str, package: &str, device: impl Into<IpAddr>) -> Option<Command> {
    let path = env::var_os("PATH").unwrap_or_default();
    if !env::split_paths(&path).any(|folder| folder.join(name).is_file()) {
        println!("skipped: {name} is missing (apt-get install {package})");
        return None;
    }
    let mut command = Command::new(name);
    command
        .env("LD_LIBRARY_PATH", library())
        .env("URXE_DEVICES", device.into().to_string())
        .stdin(Stdio::null());
    Some(command)
}

/// Two addresses on loopback that no other test has: this process has 1024 of the upper half of 127.0.0.0/8.
pub(crate) fn addresses() -> (Ipv4Addr, Ipv4Addr) {
    const EACH: u32 = 1024;
    // The last one has 127.255.255.255, which is no host's.
    const REGIONS: u32 = (1 << 23) / EACH - 1;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let count = NEXT.fetch_add(2, Ordering::Relaxed);
    assert!(count < EACH, "more addresses are asked for than there are");
    let first = u32::from(Ipv4Addr::new(127, 128, 0, 0));
    let base = first + std::process::id() % REGIONS * EACH;
    ((base + count).into(), (base + count + 1).into())
}

/// A TCP port for a pair of programs to find each other.
pub(crate) fn port() -> String {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let base = 20_000 + (std::process::id() % 1000) as u16 * 10;
    (base + NEXT.fetch_add(1, Ordering::Relaxed)).to_string()
}

/// How a program ended, and what it printed.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) text: String,
}

pub(crate) fn run(command: Command) -> Ran {
    run_within(command, LIMIT)
}

pub(crate) fn run_within(mut command: Command, limit: Duration) -> Ran {
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    finish(child.expect("it starts"), limit)
}

/// Runs a server, and a client once the server listens; returns both.
pub(crate) fn pair(mut server: Command, client: Command, port: &str) -> (Ran, Ran) {
    let server = server
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    wait_for_listener(port);
    let client = run(client);
    (finish(server, LIMIT), client)
}

/// Server and client of the same command; the client is told where the server is. `None` if the program is missing.
pub(crate) fn pair_of(start: impl Fn() -> Option<Command>, port: &str) -> Option<(Ran, Ran)> {
    let (server, mut client) = (start()?, start()?);
    client.arg("127.0.0.1");
    Some(pair(server, client, port))
}

/// Until there is a listener on a TCP port. Trying to connect would be taken for the client.
pub(crate) fn wait_for_listener(port: &str) {
    let number: u16 = port.parse().expect("a number");
    let line = format!(":{number:04X} ");
    let start = Instant::now();
    loop {
        let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
        let listens = tables.iter().any(|table| {
            let text = std::fs::read_to_string(table).unwrap_or_default();
            // Local address, remote address, state 0A: listening.
            text.lines()
                .any(|l| l.contains(&line) && l.contains(" 0A "))
        });
        if listens {
            return;
        }
        assert!(start.elapsed() < LIMIT, "the server does not listen");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Waits for the end, with a limit. What it prints is read meanwhile, or it would stop at a full pipe.
pub(crate) fn finish(child: Child, limit: Duration) -> Ran {
    let id = child.id();
    let waiter = thread::spawn(move || child.wait_with_output());
    let start = Instant::now();
    let mut is_late = false;
    while !waiter.is_finished() {
        if start.elapsed() > limit && !is_late {
            is_late = true;
            let id =
                rustix::process::Pid::from_raw(id.cast_signed()).expect("a child's id is not 0");
            // It may have ended just now.
            let _ = rustix::process::kill_process(id, rustix::process::Signal::KILL);
        }
        thread::sleep(Duration::from_millis(5));
    }
    let output: Output = waiter
        .join()
        .expect("it does not panic")
        .expect("it can be waited for");
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text += &String::from_utf8_lossy(&output.stderr);
    if is_late {
        text += "\nended by the test: it took too long\n";
    }
    Ran {
        code: output.status.code(),
        text,
    }
}
