//! `urxe run` with the real libraries: how programs end, which devices they see, what is made for them and goes.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{addresses, library, program, run, urxe};

const UTILS: &str = "ibverbs-utils";

/// `urxe run` with a device on an address of the test's own, in front of a shell's command.
pub(crate) fn shell(script: &str) -> Command {
    let (address, _) = addresses();
    let mut command = urxe();
    command.args([
        "run",
        "--device",
        &address.to_string(),
        "--",
        "sh",
        "-c",
        script,
    ]);
    command.stdin(Stdio::null());
    command
}

#[test]
fn the_program_ends_as_it_would_without() {
    for (script, code, signal) in [
        ("exit 0", Some(0), None),
        ("exit 77", Some(77), None),
        ("kill -TERM $$", None, Some(15)),
        ("kill -SEGV $$", None, Some(11)),
    ] {
        let status = shell(script).status().expect("it starts");
        assert_eq!((status.code(), status.signal()), (code, signal), "{script}");
    }
}

/// Starts a program that prints its tree and waits; returns it with the tree.
fn waiting() -> (std::process::Child, PathBuf) {
    let (address, _) = addresses();
    let mut command = urxe();
    command.args(["run", "--device", &address.to_string(), "--", "bash", "-c"]);
    // Bash ends as most programs do, by `exit`; some other shells by `_exit`, at which nothing can be cleaned up.
    command.arg("echo $URXE_ROOT; read line; exit 5");
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let mut line = String::new();
    let out = child.stdout.as_mut().expect("a pipe");
    BufReader::new(out).read_line(&mut line).expect("a line");
    let root = PathBuf::from(line.trim());
    assert!(root.join("dev/infiniband/uverbs0").exists(), "{root:?}");
    (child, root)
}

#[test]
fn device_files_go_with_the_program() {
    let (mut child, root) = waiting();
    drop(child.stdin.take());
    assert_eq!(child.wait().expect("it ends").code(), Some(5));
    assert!(!root.exists(), "{root:?} is left");
}

#[test]
fn device_files_of_a_killed_program_go_with_the_next() {
    let (mut child, root) = waiting();
    let pid = Pid::from_raw(child.id().cast_signed()).expect("a child's id is not 0");
    kill_process(pid, Signal::KILL).expect("it runs");
    assert_eq!(child.wait().expect("it ends").signal(), Some(9));
    assert!(shell("true").status().expect("it starts").success());
    assert!(!root.exists(), "{root:?} is left");
}

#[test]
fn device_files_of_a_program_stay_when_another_pid_namespace_makes_its_own() {
    if !rustix::process::getuid().is_root() {
        println!("skipped: only root can make a PID namespace");
        return;
    }
    let (mut child, root) = waiting();
    // There no process has the first program's number.
    let mut other = Command::new("unshare");
    other.args(["--pid", "--fork", "--mount-proc"]);
    let command = urxe();
    other.arg(command.get_program());
    other.envs(command.get_envs().filter_map(|(k, v)| Some((k, v?))));
    let script =
        "test $$ = 1; echo $?; echo $URXE_ROOT; test -e $URXE_ROOT/dev/infiniband/uverbs0; echo $?";
    let (code, text) = run_command(other.args(["run", "--", "bash", "-c", script]));
    assert_eq!(code, Some(0), "{text}");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines[0], lines[2]), ("0", "0"), "{text}");
    assert_ne!(Path::new(lines[1]), root);
    assert!(
        root.join("dev/infiniband/uverbs0").exists(),
        "{root:?} is gone"
    );
    drop(child.stdin.take());
    assert_eq!(child.wait().expect("it ends").code(), Some(5));
    assert!(!root.exists(), "{root:?} is left");
}

#[test]
fn programs_that_look_for_device_files_find_them() {
    let mut command = shell(
        "cat /sys/class/infiniband/urxe0/ports/1/gid_attrs/types/0 && ls /sys/class/infiniband/ && \
         ls /sys/class/infiniband/urxe0/device/net && test -c /dev/infiniband/uverbs0 && test -w /dev/infiniband/uverbs0",
    );
    let ran = run_command(&mut command);
    assert_eq!(ran, (Some(0), "RoCE v2\nurxe0\nlo\n".to_owned()));
}

/// What programs ask the kernel's RDMA subsystem for, of which kernels without it have no socket: Debian's `rdma`.
#[test]
fn the_rdma_tool_shows_the_devices() {
    let (address, _) = addresses();
    if program("rdma", "iproute2", address).is_none() {
        return;
    }
    let mut command = urxe();
    command.args(["run", "--device", "lo", "--device"]);
    command.args([&format!("other={address}"), "--", "sh", "-c"]);
    command.arg("rdma link show -j; rdma dev show other; rdma system; rdma resource show qp");
    let (_, text) = run_command(&mut command);
    for part in [
        r#"{"ifindex":0,"ifname":"urxe0","port":1,"state":"ACTIVE","physical_state":"LINK_UP","netdev":"lo","#,
        r#""ifname":"other""#,
        "1: other: node_type ca",
        "netns shared",
        // What there is no answer to, fails as in an old kernel.
        "Operation not supported",
    ] {
        assert!(text.contains(part), "no {part}: {text}");
    }
}

fn run_command(command: &mut Command) -> (Option<i32>, String) {
    let output = command.output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    (output.status.code(), text.into_owned())
}

#[test]
fn device_files_can_be_left_out() {
    for (option, preloaded) in [("--no-sysfs", &*library_file()), ("--no-preload", "")] {
        let mut command = urxe();
        command.args(["run", option, "--", "sh", "-c"]);
        command.arg("echo \"$URXE_ROOT|$LD_PRELOAD\"");
        command.env_remove("LD_PRELOAD");
        let wanted = format!("|{preloaded}\n");
        assert_eq!(run_command(&mut command), (Some(0), wanted), "{option}");
    }
}

/// As the command names it, which knows its own place without links.
fn library_file() -> String {
    let folder = library().canonicalize().expect("it is there");
    folder.join("libibverbs.so.1").display().to_string()
}

#[test]
fn devices_have_the_names_that_they_are_given() {
    let (first, second) = addresses();
    if program("ibv_devices", UTILS, first).is_none() {
        return;
    }
    let mut command = urxe();
    let (a, b) = (format!("mlx5_0={first}"), second.to_string());
    command.args(["run", "--device", &a, "--device", &b, "--device", "six=::1"]);
    command.args(["--", "ibv_devices"]);
    let ran = run(command);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for name in ["mlx5_0", "urxe1", "six"] {
        assert!(ran.text.contains(name), "no {name}: {ran:?}");
    }
}

/// In a network of its own: loopback and a cable, with an IPv4 and an IPv6 address.
const TWO_INTERFACES: &str = r#"
set -e
ip link set lo up
ip link add v0 type veth peer name v1
ip addr add 10.99.0.1/24 dev v0
ip -6 addr add fd99::1/64 dev v0 nodad
ip link set v0 up
ip link set v1 up
"$URXE" run -- ibv_devinfo -v
for gid in 0 1; do
    "$URXE" run --device v0 -- ibv_rc_pingpong -g $gid -n 50 -c -p 19871 &
    server=$!
    tries=0
    until "$URXE" run --device v0 -- ibv_rc_pingpong -g $gid -n 50 -c -p 19871 127.0.0.1; do
        tries=$((tries + 1)); [ $tries -lt 50 ]; sleep 0.2
    done
    wait $server
    echo "gid $gid is done"
done
"#;

#[test]
fn each_interface_is_a_device_with_its_addresses() {
    let (address, _) = addresses();
    if program("ibv_rc_pingpong", UTILS, address).is_none() {
        return;
    }
    // Root needs no user namespace; others can have a network only inside one.
    let kinds: &[&str] = if rustix::process::getuid().is_root() {
        &["--net"]
    } else {
        &["--user", "--map-root-user", "--net"]
    };
    let unshared = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(kinds).args(["sh", "-c", script]);
        command
            .env("URXE", urxe().get_program())
            .stdin(Stdio::null());
        command
    };
    let can = unshared("ip link add v0 type veth peer name v1").output();
    if !can.is_ok_and(|output| output.status.success()) {
        println!("skipped: no network of its own for this test (unshare, ip)");
        return;
    }
    let ran = run(unshared(TWO_INTERFACES));
    assert_eq!(ran.code, Some(0), "{}", ran.text);
    for part in [
        "hca_id:\turxe0",
        "hca_id:\turxe1",
        "::ffff:127.0.0.1, RoCE v2",
        "::ffff:10.99.0.1, RoCE v2",
        "fd99::1, RoCE v2",
        "gid 0 is done",
        "gid 1 is done",
    ] {
        assert!(ran.text.contains(part), "no {part}: {}", ran.text);
    }
    // A program may connect the two: they say what both can carry.
    assert_eq!(
        ran.text.matches("active_mtu:\t\t1024").count(),
        2,
        "{}",
        ran.text
    );
}

/// What `urxe package` makes works elsewhere, without what cargo left.
#[test]
fn a_package_works_where_it_is_copied_to() {
    let (address, _) = addresses();
    let folder = std::env::temp_dir().join(format!("urxe-moved-{}", std::process::id()));
    let (made, moved) = (folder.join("made"), folder.join("moved"));
    fs::create_dir_all(&folder).expect("a folder");
    let mut command = urxe();
    command.arg("package").arg(&made);
    assert_eq!(run(command).code, Some(0));
    let status = Command::new("cp").arg("-a").args([&made, &moved]).status();
    assert!(status.expect("cp").success());
    fs::remove_dir_all(&made).expect("it is ours");

    let inside = |args: &[&str]| {
        let mut command = Command::new(moved.join("urxe"));
        command
            .args(["run", "--device", &address.to_string(), "--"])
            .args(args);
        run(command)
    };
    let ran = inside(&["sh", "-c", "echo $LD_LIBRARY_PATH; ls /dev/infiniband"]);
    let place = moved.canonicalize().expect("it is there").join("urxe-lib");
    assert!(ran.text.contains(&*place.to_string_lossy()), "{ran:?}");
    assert!(ran.text.contains("uverbs0"), "{ran:?}");
    if program("ibv_devinfo", UTILS, address).is_some() {
        let ran = inside(&["ibv_devinfo", "-v"]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(ran.text.contains(&format!("::ffff:{address}")), "{ran:?}");
    }
    fs::remove_dir_all(&folder).expect("it is ours");
}

/// The workflow that docs/CI.md shows, run here: its steps after the installation.
#[test]
fn the_example_for_ci_works() {
    let (address, _) = addresses();
    if program("ibv_rc_pingpong", UTILS, address).is_none() {
        return;
    }
    let text = include_str!("../../docs/CI.md");
    let start = text
        .find("          set -e\n")
        .expect("the script of the last step");
    let script = text[start..]
        .split("```")
        .next()
        .expect("a code block ends");
    let script: String = script
        .lines()
        .map(|line| format!("{}\n", line.trim_start()))
        .collect();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let own: &Path = library().parent().expect("beside the command");
    let folders = std::iter::once(own.to_owned()).chain(std::env::split_paths(&path));
    let mut command = Command::new("bash");
    command
        .args(["-c", &script])
        .env("PATH", std::env::join_paths(folders).expect("folders"))
        .env("DEVICE", address.to_string())
        .stdin(Stdio::null());
    let ran = run(command);
    assert_eq!(ran.code, Some(0), "{}", ran.text);
    assert!(ran.text.contains("iters in"), "{}", ran.text);
}
