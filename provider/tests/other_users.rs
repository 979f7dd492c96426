//! What another user of the host puts into the directories that all may write to.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Instant;

use crate::common::{self, PATIENCE, address};
use urxe::Context;
use urxe::stat_file::read_all;

/// Says to this test binary, started again, that it is the victim's program.
const VICTIM: &str = "URXE_TEST_VICTIM_AT";

/// Two unused user numbers: of this test process and the `n`th test.
fn users(n: u32) -> (u32, u32) {
    let first = 3_000_000 + std::process::id() % 100_000 * 10 + 2 * n;
    (first, first + 1)
}

/// What processes of two users leave in the directories that all may write to. It is removed in the end, however the
/// test ends.
struct Traces(u32, u32);

impl Traces {
    fn find(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let places = ["/dev/shm".into(), "/tmp".into(), std::env::temp_dir()];
        for place in places {
            for entry in fs::read_dir(place).into_iter().flatten().flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                let is_of = |uid: u32| {
                    let rest = name.strip_prefix("urxe").and_then(|rest| {
                        let rest = rest.strip_prefix("-treasure").unwrap_or(rest);
                        rest[1.min(rest.len())..].strip_prefix(&uid.to_string())
                    });
                    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
                };
                if is_of(self.0) || is_of(self.1) {
                    found.push(entry.path());
                }
            }
        }
        found.sort();
        found.dedup();
        found
    }
}

impl Drop for Traces {
    fn drop(&mut self) {
        for path in self.find() {
            // A link is removed, not what it leads to. What is gone already is gone.
            let is_dir = fs::symlink_metadata(&path).is_ok_and(|found| found.is_dir());
            let _ = match is_dir {
                true => fs::remove_dir_all(&path),
                false => fs::remove_file(&path),
            };
        }
    }
}

fn is_root() -> bool {
    let is_root = rustix::process::getuid().is_root();
    if !is_root {
        println!("skipped: only root can start processes of other users");
    }
    is_root
}

/// Runs a line of shell as a user.
fn as_user(uid: u32, line: &str) {
    let mut shell = Command::new("sh");
    let status = shell.args(["-c", line]).current_dir("/").uid(uid).gid(uid);
    let status = status.status().expect("a shell");
    assert!(status.success(), "{line}");
}

/// The victim's program.
struct Victim {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Victim {
    /// `None` if another user cannot run this test binary.
    fn start(uid: u32) -> Option<Victim> {
        let program = std::env::current_exe().expect("this test binary");
        let mut process = Command::new(&program)
            .args([
                "other_users::victim_process",
                "--exact",
                "--nocapture",
                "--quiet",
            ])
            .env(VICTIM, address().to_string())
            // Services, cron and containers have none.
            .env_remove("XDG_RUNTIME_DIR")
            .current_dir("/")
            .uid(uid)
            .gid(uid)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| println!("skipped: {uid} cannot run {}: {error}", program.display()))
            .ok()?;
        let output = BufReader::new(process.stdout.take().expect("piped"));
        Some(Victim { process, output })
    }

    /// The next line that is meant for us.
    fn line(&mut self) -> String {
        loop {
            let mut line = String::new();
            let len = self.output.read_line(&mut line).expect("a pipe");
            assert!(len > 0, "it ended early");
            if let Some((_, said)) = line.split_once("victim: ") {
                return said.trim().to_owned();
            }
        }
    }

    /// Lets it go on, and waits for its end. Returns what it said last.
    fn finish(mut self) -> String {
        let mut input = self.process.stdin.take().expect("piped");
        input.write_all(b"go\n").expect("it reads");
        let patience = Instant::now() + PATIENCE;
        while self.process.try_wait().expect("ours").is_none() {
            if Instant::now() > patience {
                self.process.kill().expect("ours");
                panic!("it hangs");
            }
            std::thread::yield_now();
        }
        let mut said = String::new();
        self.output.read_to_string(&mut said).expect("a pipe");
        said
    }
}

/// Not a test by itself: opens a context, looks at all contexts of its user, and closes.
#[test]
fn victim_process() {
    let Ok(addr) = std::env::var(VICTIM) else {
        println!("skipped: this is what other tests start");
        return;
    };
    println!("\nvictim: {}", std::process::id());
    std::io::stdin()
        .read_line(&mut String::new())
        .expect("a pipe");
    let context = Context::open(addr.parse().expect("an address")).expect("opens");
    let place = urxe::user_directory();
    println!("\nvictim: place {place:?}");
    match read_all() {
        Err(error) => println!("\nvictim: no contexts: {error}"),
        Ok(_) => {
            let mut found = Vec::new();
            common::wait_until("its own counters are there", || {
                found = read_all().expect("readable");
                found
                    .iter()
                    .any(|entry| entry.addresses == [context.address()])
            });
            for entry in found {
                println!("\nvictim: sees {:?}", entry.program);
                if entry.pid == std::process::id() {
                    entry.qps().expect("this process answers");
                }
            }
        }
    }
    drop(context);
    println!("\nvictim: closed");
}

/// A folder of the victim's with a file that is dear to it.
fn treasure(uid: u32) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("urxe-treasure-{uid}"));
    let path = folder.display();
    as_user(
        uid,
        &format!("umask 077; mkdir {path} && echo precious > {path}/file"),
    );
    folder
}

#[test]
fn names_that_another_user_takes_in_a_common_directory_are_not_used() {
    if !is_root() {
        return;
    }
    let (victim, attacker) = users(0);
    let _traces = Traces(victim, attacker);
    let Some(mut running) = Victim::start(victim) else {
        return;
    };
    let pid = running.line();
    let treasure = treasure(victim);
    let name = format!("/dev/shm/urxe.{victim}");
    let text = "urxe-counters 1 1\\nprogram \\033[31mINJECTED\\naddresses\\nend 1\\n";
    // A pipe waits for a writer; a device has no end; a link leads to the victim's file; a text has escape sequences.
    as_user(attacker, &format!("mkfifo -m 666 {name}.999999999.0"));
    as_user(attacker, &format!("ln -s /dev/zero {name}.1.0"));
    as_user(attacker, &format!("printf '{text}' > {name}.1.1"));
    for n in 0..3 {
        let file = treasure.join("file");
        let link = format!("ln -s {} {name}.{pid}.{n}.new", file.display());
        as_user(attacker, &link);
    }
    let said = running.finish();
    assert!(said.contains("victim: closed"), "{said}");
    assert!(!said.contains("INJECTED"), "{said}");
    let kept = fs::read_to_string(treasure.join("file")).expect("it is there");
    assert_eq!(kept, "precious\n");
}

#[test]
fn a_directory_that_another_user_made_first_is_not_used() {
    if !is_root() {
        return;
    }
    let (victim, attacker) = users(1);
    let _traces = Traces(victim, attacker);
    let Some(mut running) = Victim::start(victim) else {
        return;
    };
    running.line();
    let shm = format!("/dev/shm/urxe-{victim}");
    as_user(
        attacker,
        &format!("umask 0; mkdir {shm} && mkfifo {shm}/stat.1.0 {shm}/qpns-0"),
    );
    let said = running.finish();
    assert!(said.contains("victim: closed"), "{said}");
    assert!(
        said.contains(&format!("place Ok(\"/tmp/urxe-{victim}\")")),
        "{said}"
    );

    // The other place too: no context shares then, and why is said.
    let Some(mut running) = Victim::start(victim) else {
        return;
    };
    running.line();
    let tmp = format!("/tmp/urxe-{victim}");
    fs::remove_dir_all(&tmp).expect("we are root");
    as_user(attacker, &format!("umask 0; mkdir {tmp}"));
    let said = running.finish();
    assert!(said.contains("no contexts: /dev/shm/urxe-"), "{said}");
    assert!(
        said.contains("does not belong") || said.contains("this user alone"),
        "{said}"
    );
    assert!(said.contains("victim: closed"), "{said}");
}

#[test]
fn a_test_leaves_nothing_of_its_users_behind_even_if_it_fails() {
    if !is_root() {
        return;
    }
    let (one, other) = users(2);
    let failed = std::panic::catch_unwind(|| {
        let traces = Traces(one, other);
        treasure(one);
        let line = format!("mkdir /dev/shm/urxe-{one}; ln -s / /dev/shm/urxe.{other}.1.0.new");
        as_user(other, &line);
        assert_eq!(traces.find().len(), 3, "{:?}", traces.find());
        panic!("on purpose");
    });
    assert!(failed.is_err());
    assert_eq!(Traces(one, other).find(), Vec::<PathBuf>::new());
}
