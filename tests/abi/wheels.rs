//! Programs from the Python package index, as they come: `tests/wheels FOLDER` installs them, and `URXE_WHEELS` names the folder.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use crate::harness::{LIMIT, Ran, addresses, port, run_within, urxe};

const VARIABLE: &str = "URXE_WHEELS";

/// A program of the virtual environment on the library; `None`, with the reason printed, where there is none.
fn program(options: &[&str], name: &str) -> Option<Command> {
    let folder = env::var_os(VARIABLE).filter(|folder| !folder.is_empty());
    let Some(folder) = folder.map(PathBuf::from) else {
        println!("skipped: {VARIABLE} names no folder that tests/wheels has made");
        return None;
    };
    let path = folder.join("bin").join(name);
    assert!(path.is_file(), "{VARIABLE}: there is no {}", path.display());
    let mut command = urxe();
    command.arg("run").args(options).arg("--").arg(path);
    command.stdin(Stdio::null());
    // Of this test's libraries the programs' own are not to know.
    command.env_remove("LD_LIBRARY_PATH");
    Some(command)
}

fn script(name: &str) -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.join("abi/wheels").join(name)
}

/// Both sides of a transfer, which meet in a folder and compare every byte.
fn transfer(options: &[&str], name: &str, more: &str) -> Option<[Ran; 2]> {
    let folder = format!("urxe-wheels-{name}-{}", std::process::id());
    let folder = env::temp_dir().join(folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    let sides = ["target", "initiator"].map(|role| {
        let mut command = program(options, "python")?;
        command.arg(script(name)).arg(role).arg(&folder).arg(more);
        Some(thread::spawn(move || run_within(command, 2 * LIMIT)))
    });
    let ran = sides.map(|side| Some(side?.join().expect("it does not panic")));
    std::fs::remove_dir_all(&folder).expect("it is ours");
    let [target, initiator] = ran;
    Some([target?, initiator?])
}

fn check(name: &str, sides: Option<[Ran; 2]>) {
    for ran in sides.into_iter().flatten() {
        assert_eq!(ran.code, Some(0), "{name}: {}", ran.text);
        assert!(ran.text.contains("bytes compared"), "{name}: {}", ran.text);
        // UCX, where a device or a socket is not as it expects.
        assert!(!ran.text.contains("UCX  ERROR"), "{name}: {}", ran.text);
    }
}

/// It brings a libibverbs of its own, under another name.
#[test]
fn nixl_reads_and_writes() {
    check("NIXL", transfer(&["--device", "lo"], "nixl.py", ""));
}

/// With all devices of the host, any two of which it connects.
#[test]
fn mooncake_reads_and_writes() {
    let sides = transfer(&[], "moon.py", "127.0.0.1");
    for ran in sides.iter().flatten() {
        // What it prints of a rail that it gives up for a time.
        assert!(!ran.text.contains("Process failed"), "{}", ran.text);
    }
    check("Mooncake", sides);
}

#[test]
fn dlslime_reads_writes_and_sends() {
    check("DLSlime", transfer(&["--device", "lo"], "slime.py", ""));
}

/// A cache of pages: the one process stores, the other fetches.
#[test]
fn peercache_reads_and_writes() {
    let meeting = format!("127.0.0.1:{}", port());
    let sides = transfer(&["--device", "lo"], "cache.py", &meeting);
    check("PeerCache", sides);
}

/// MPICH 5 over UCX and over libfabric, each of its own making.
#[test]
fn mpich_sends_round_a_ring() {
    let address = addresses().0.to_string();
    for (network, variables) in [
        (
            "ucx",
            [
                ("UCX_TLS", "rc_verbs,ud_verbs:aux,self"),
                ("UCX_NET_DEVICES", "urxe0:1"),
            ],
        ),
        (
            "ofi",
            [
                ("FI_PROVIDER", "verbs"),
                ("MPIR_CVAR_OFI_USE_PROVIDER", "verbs;ofi_rxm"),
            ],
        ),
    ] {
        // libfabric connects over no loopback address.
        if network == "ofi" && ethernet().is_none() {
            println!("skipped: MPICH over libfabric: the host has loopback alone");
            continue;
        }
        let device = match network {
            "ofi" => ethernet().unwrap_or_default(),
            _ => address.clone(),
        };
        let Some(mut command) = program(&["--device", &device], "mpirun") else {
            return;
        };
        command.envs(variables).env("MPIR_CVAR_CH4_NETMOD", network);
        // Else processes of one host use memory that they share.
        command.env("MPIR_CVAR_NOLOCAL", "1");
        let python = Path::new(command.get_args().last().expect("mpirun")).with_file_name("python");
        command.args(["-n", "2"]).arg(python).arg(script("ring.py"));
        let ran = run_within(command, 2 * LIMIT);
        assert_eq!(ran.code, Some(0), "{network}: {}", ran.text);
        assert!(
            ran.text.contains("all sums are right"),
            "{network}: {}",
            ran.text
        );
    }
}

/// An interface with an address of the host's own.
pub(crate) fn ethernet() -> Option<String> {
    let devices = urxe::devices().ok()?;
    let mut usable = devices.iter().filter(|device| device.is_up());
    let is_own = |device: &&urxe::Device| {
        let mut addresses = device.addresses().iter();
        addresses.any(|address| address.is_ipv4() && !address.is_loopback())
    };
    let found = usable.find(is_own)?;
    Some(found.interface().to_owned())
}
