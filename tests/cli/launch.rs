//! `urxe run` and `urxe env`. What programs do on the library is tested in `tests/abi`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{Running, run, urxe, wait_until};

const FILE: &str = "libibverbs.so.1";
const LINKS: [&str; 3] = ["librdmacm.so.1", "libibverbs.so", "librdmacm.so"];

/// A folder with an empty library in it, taken away at the end.
struct Library(PathBuf);

impl Library {
    /// With all names of the library, as packages and builds have them.
    fn new(name: &str) -> Library {
        let library = Library::alone(name);
        for link in LINKS {
            symlink(FILE, library.0.join(link)).expect("a link");
        }
        library
    }

    /// The file without its other names, as in a wheel.
    fn alone(name: &str) -> Library {
        let folder = std::env::temp_dir().join(format!("urxe {name} {}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let folder = folder.canonicalize().expect("it is there");
        fs::write(folder.join(FILE), "").expect("a file");
        Library(folder)
    }

    fn urxe(&self, args: &[&str]) -> Command {
        let mut command = urxe();
        command.args(args).env("URXE_LIB_DIR", &self.0);
        command.env("LD_LIBRARY_PATH", "/somewhere/else");
        command
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // What is left in the system's folder for such things does no harm.
        let _ = fs::remove_dir_all(&self.0);
    }
}

const SHOW: &str = "echo \"$LD_LIBRARY_PATH|$URXE_DEVICES|$URXE_PCAP|$URXE_STRICT|$URXE_VERBOSE|$URXE_FAULTS|$URXE_MTU|$URXE_SPEED|$URXE_WIRE|$URXE_CONGESTION|$URXE_RECOVERY|$URXE_SHARDS\"; exit 7";
const OPTIONS: [&str; 22] = [
    "--device",
    "127.0.0.5",
    "--device",
    "::1",
    "--pcap",
    "/x/%p.pcapng",
    "--strict",
    "--verbose",
    "--faults",
    "drop=2%, seed=7",
    "--mtu",
    "1024",
    "--speed",
    "200Gb/s",
    "--wire",
    "sockets",
    "--congestion",
    "delay=100us",
    "--recovery",
    "go-back-n",
    "--shards",
    "3",
];

#[test]
fn run_sets_the_environment_and_ends_as_the_program_does() {
    let library = Library::new("run");
    let mut command = library.urxe(&["run"]);
    let ran = run(command.args(OPTIONS).args(["--", "sh", "-c", SHOW]));
    assert_eq!(ran.code, Some(7), "{}", ran.stderr);
    let folder = library.0.display();
    let wanted = format!(
        "{folder}:/somewhere/else|127.0.0.5,::1|/x/%p.pcapng|1|1|drop=2%,seed=7|1024|200|sockets|delay=100us|go-back-n|3\n"
    );
    assert_eq!(ran.stdout, wanted);
}

#[test]
fn env_gives_a_shell_the_same() {
    let library = Library::new("env");
    let mut command = library.urxe(&["env"]);
    let printed = run(command.args(OPTIONS)).stdout;
    let ran = run(Command::new("sh")
        .args(["-c", &format!("{printed}{SHOW}")])
        .env("LD_LIBRARY_PATH", "/somewhere/else"));
    let folder = library.0.display();
    let wanted = format!(
        "{folder}:/somewhere/else|127.0.0.5,::1|/x/%p.pcapng|1|1|drop=2%,seed=7|1024|200|sockets|delay=100us|go-back-n|3\n"
    );
    assert_eq!(ran.stdout, wanted);
}

#[test]
fn names_that_an_installation_lacks_are_made_elsewhere() {
    let library = Library::alone("alone");
    let mut command = library.urxe(&["run", "sh", "-c", "printf %s \"$LD_LIBRARY_PATH\""]);
    let ran = run(&mut command);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let (names, rest) = ran.stdout.split_once(':').expect("two folders");
    assert_eq!(rest, "/somewhere/else");
    assert_ne!(Path::new(names), library.0);
    for name in [FILE].iter().chain(&LINKS) {
        let file = Path::new(names).join(name);
        assert_eq!(fs::read_link(&file).expect(name), library.0.join(FILE));
    }
    assert_eq!(fs::read_dir(&library.0).expect("a folder").count(), 1);
}

#[test]
fn signals_reach_the_program() {
    let library = Library::new("signal");
    let mut command = library.urxe(&["run", "sleep", "60"]);
    let running = Running::start(&mut command);
    let name = format!("/proc/{}/comm", running.id());
    wait_until("urxe is sleep", || {
        fs::read_to_string(&name).unwrap_or_default().trim() == "sleep"
    });
    running.signal(rustix::process::Signal::TERM);
    assert_eq!(running.finish().code, None);
}

#[test]
fn what_cannot_be_run_is_told() {
    let library = Library::new("refusals");
    let ran = run(&mut library.urxe(&["run", "--", "no-such-program-anywhere"]));
    assert_eq!(ran.code, Some(127));
    assert!(
        ran.stderr.contains("no-such-program-anywhere"),
        "{}",
        ran.stderr
    );
    assert_eq!(run(&mut library.urxe(&["run", "/"])).code, Some(126));
    assert_eq!(run(&mut library.urxe(&["run"])).code, Some(2));
    let ran = run(&mut library.urxe(&["run", "--device", "no-such-interface0", "true"]));
    assert_eq!(ran.code, Some(2));
    for (option, value, part) in [
        ("--faults", "drop=2", "a percentage"),
        ("--faults", "lose=2%", "drop=N%"),
        ("--faults", "rate=200", "10k"),
        ("--faults", "queue=1M", "add rate=RATE"),
        ("--mtu", "1500", "1024"),
        ("--speed", "1", "2.5, 10, 20"),
        ("--wire", "copper", "auto, sockets"),
        ("--congestion", "bbr", "auto, none, path"),
        ("--recovery", "none", "go-back-n"),
        ("--shards", "0", "1..=64"),
    ] {
        let ran = run(&mut library.urxe(&["run", option, value, "true"]));
        assert_eq!(ran.code, Some(2), "{option} {value}");
        assert!(ran.stderr.contains(part), "{}", ran.stderr);
    }
    let mut command = library.urxe(&["run", "true"]);
    let ran = run(command.env("URXE_SPEED", "fast"));
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("URXE_SPEED"), "{}", ran.stderr);

    fs::remove_file(library.0.join(FILE)).expect("it was there");
    let ran = run(&mut library.urxe(&["run", "true"]));
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("URXE_LIB_DIR"), "{}", ran.stderr);
}
