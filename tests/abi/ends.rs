//! Server and client of a program as two processes on one address, as the user that runs the tests or as an ordinary user.

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::harness::{Ran, addresses, library, pair_of, port, program};

/// The user that runs the programs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum User {
    /// The user that runs the tests: root, on most machines that test.
    Myself,
    /// A user without any rights.
    Nobody,
}

/// The user and the group of `nobody`, in numbers.
const NOBODY: &str = "65534";

impl User {
    /// True if programs can be run as this user. Says why not.
    pub(crate) fn is_available(self) -> bool {
        if self == User::Myself {
            return true;
        }
        if !rustix::process::geteuid().is_root() {
            println!("skipped: only root can run a program as somebody else");
            return false;
        }
        let setpriv = Command::new("setpriv").arg("--version").output();
        if setpriv.is_err() {
            println!("skipped: setpriv is missing (apt-get install util-linux)");
            return false;
        }
        true
    }

    /// Where its programs meet.
    pub(crate) fn address(self) -> Ipv4Addr {
        static BOTH: OnceLock<(Ipv4Addr, Ipv4Addr)> = OnceLock::new();
        let (mine, nobodys) = *BOTH.get_or_init(addresses);
        match self {
            User::Myself => mine,
            User::Nobody => nobodys,
        }
    }

    /// The command, as this user.
    pub(crate) fn run(self, command: Command) -> Command {
        if self == User::Myself {
            return command;
        }
        let mut other = Command::new("setpriv");
        other
            .args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"])
            .arg("--no-new-privs")
            .arg(command.get_program())
            .args(command.get_args())
            .envs(command.get_envs().filter_map(|(k, v)| Some((k, v?))))
            .env("LD_LIBRARY_PATH", library_for_all())
            // Another user's.
            .env_remove("XDG_RUNTIME_DIR")
            .stdin(std::process::Stdio::null());
        other
    }
}

/// How folders for copies of the library begin; the process's number follows.
const FOR_ALL: &str = "urxe-for-all-";

/// Nothing runs at the end of a test process: the next one removes what it left.
fn remove_leftovers() {
    let all = fs::read_dir(std::env::temp_dir()).expect("it can be listed");
    for entry in all.flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.strip_prefix(FOR_ALL)) else {
            continue;
        };
        // `PID`, or `PID-` and what it is.
        let pid = pid.split('-').next().unwrap_or(pid);
        let is_mine = name == *format!("{FOR_ALL}{}", std::process::id());
        if is_mine || !Path::new("/proc").join(pid).exists() {
            // Another user's stays.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// A copy of the library that all users may read, which the target folder need not be.
fn library_for_all() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        remove_leftovers();
        let folder = std::env::temp_dir().join(format!("{FOR_ALL}{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).expect("it is ours");
        let file = folder.join("liburxe_verbs.so");
        fs::copy(library().join("libibverbs.so.1"), &file).expect("a copy");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("it is ours");
        for name in ["libibverbs.so.1", "librdmacm.so.1"] {
            symlink("liburxe_verbs.so", folder.join(name)).expect("a link");
        }
        folder
    })
}

/// One pair at a time: they poll, and share few processors with each other.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static BUSY: Mutex<()> = Mutex::new(());
    BUSY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// For tests that use 127.0.0.1 or ::1 in RDMA: these cannot be had by two users at once.
pub(crate) fn loopback() -> MutexGuard<'static, ()> {
    static BUSY: Mutex<()> = Mutex::new(());
    BUSY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs both ends, which must end well; `None` if the program is missing. Returns what the server and the client
/// printed.
pub(crate) fn both_ends(
    user: User,
    package: &str,
    name: &str,
    args: &[&str],
    gid_option: &str,
) -> Option<(String, String)> {
    let ends = run_both_ends(user, package, name, args, gid_option)?;
    Some(ended_well(name, args, ends))
}

/// Runs both ends, however they end; `None` if the program is missing.
pub(crate) fn run_both_ends(
    user: User,
    package: &str,
    name: &str,
    args: &[&str],
    gid_option: &str,
) -> Option<(Ran, Ran)> {
    let _alone = alone();
    let address = user.address();
    let port = port();
    let start = || {
        let mut command = program(name, package, address)?;
        command.args([gid_option, "0", "-p", &port]).args(args);
        Some(user.run(command))
    };
    pair_of(start, &port)
}

/// What the server and the client printed, which must have ended well.
pub(crate) fn ended_well(
    name: &str,
    args: &[&str],
    (server, client): (Ran, Ran),
) -> (String, String) {
    // The end that says nothing useful is often the one that was left alone.
    assert!(
        [&server, &client].iter().all(|end| end.code == Some(0)),
        "{name} {}:\nserver ({:?}): {}\nclient ({:?}): {}",
        args.join(" "),
        server.code,
        server.text,
        client.code,
        client.text
    );
    (server.text, client.text)
}
