//! Where programs are run: what urxe cannot reach or use is said, and what can be done without is done without.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::ends::User;
use crate::harness::{addresses, program, run, urxe};

const UTILS: &str = "ibverbs-utils";

/// `urxe run` with these options in front of `ibv_devinfo`, which says no more than that the device did not open.
fn refused(options: &[&str]) -> Option<String> {
    program("ibv_devinfo", UTILS, addresses().0)?;
    let mut command = urxe();
    command.arg("run").args(options).args(["--", "ibv_devinfo"]);
    command.env_remove("URXE_VERBOSE").stdin(Stdio::null());
    let ran = run(command);
    assert_eq!(ran.code, Some(1), "{options:?}: {}", ran.text);
    Some(ran.text)
}

#[test]
fn a_device_that_does_not_open_says_why() {
    let address = addresses().0.to_string();
    for (options, reason) in [
        (
            &["--device", &*address, "--pcap", "/no/such/folder/x.pcapng"][..],
            "capture file",
        ),
        // RFC 5737: of no host.
        (&["--device", "192.0.2.1"], "192.0.2.1"),
    ] {
        let Some(text) = refused(options) else { return };
        assert!(text.contains("urxe: the device is not opened: "), "{text}");
        assert!(text.contains(reason), "{reason}: {text}");
    }
}

/// 64 bytes of ELF header without a program header, so without a dynamic linker. It does nothing, as a shell would
/// say that is asked to run it.
fn static_program() -> PathBuf {
    let mut bytes = [0; 64];
    let order = if cfg!(target_endian = "little") { 1 } else { 2 };
    bytes[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, order]);
    let path = std::env::temp_dir().join(format!("urxe-static-{}", std::process::id()));
    fs::write(&path, bytes).expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is ours");
    path
}

#[test]
fn a_program_that_is_not_reached_gets_a_word() {
    let path = static_program();
    let mut command = urxe();
    command.args(["run", "--device", &addresses().0.to_string(), "--"]);
    command.arg(&path).stdin(Stdio::null());
    let ran = run(command);
    fs::remove_file(&path).expect("it is ours");
    assert!(ran.text.contains("statically linked"), "{}", ran.text);
}

/// The command and the libraries where all users may read them.
pub(crate) fn package() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = std::env::temp_dir().join(format!("urxe-for-all-{}-kit", std::process::id()));
        let mut command = urxe();
        command.arg("package").arg(&folder);
        assert_eq!(run(command).code, Some(0));
        for path in [folder.clone(), folder.join("urxe-lib")] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("it is ours");
        }
        folder
    })
}

/// A shell's command as an ordinary user, which finds `urxe` by `$URXE`. `None`, with the reason printed, if there is
/// none.
fn as_nobody(script: &str) -> Option<Command> {
    let mut command = if rustix::process::getuid().is_root() {
        if !User::Nobody.is_available() {
            return None;
        }
        let mut command = Command::new("setpriv");
        command.args([
            "--reuid",
            "65534",
            "--regid",
            "65534",
            "--clear-groups",
            "sh",
        ]);
        command
    } else {
        Command::new("sh")
    };
    command
        .args(["-c", script])
        .env("URXE", package().join("urxe"));
    command.current_dir("/").stdin(Stdio::null());
    Some(command)
}

/// `su` and `setpriv` keep the variable.
#[test]
fn anothers_runtime_folder_does_not_matter() {
    let Some(mut command) = as_nobody("\"$URXE\" run -- ls /sys/class/infiniband") else {
        return;
    };
    command.env("XDG_RUNTIME_DIR", "/");
    let ran = run(command);
    assert_eq!(ran.code, Some(0), "{}", ran.text);
    assert!(ran.text.contains("urxe0"), "{}", ran.text);
}

/// Inside, the user is called 0, as root is outside; that one's registry is another.
const IN_A_USER_NAMESPACE: &str = r#"
exec unshare --user --map-root-user --net sh -ec '
ip link set lo up
"$URXE" run -- ibv_rc_pingpong -g 0 -n 50 -c -p 19872 &
tries=0
until "$URXE" run -- ibv_rc_pingpong -g 0 -n 50 -c -p 19872 127.0.0.1; do
    tries=$((tries + 1)); [ $tries -lt 50 ]; sleep 0.2
done
wait $!
echo both are done'
"#;

#[test]
fn processes_in_a_user_namespace_share_an_address() {
    if program("ibv_rc_pingpong", UTILS, addresses().0).is_none() {
        return;
    }
    let probe = as_nobody("exec unshare --user --map-root-user --net ip link set lo up");
    let Some(probe) = probe else { return };
    if run(probe).code != Some(0) {
        println!("skipped: no user namespaces here (unshare, ip)");
        return;
    }
    // Root's own, as on a machine where root uses urxe too.
    assert_eq!(run(open_one()).code, Some(0));
    let ran = run(as_nobody(IN_A_USER_NAMESPACE).expect("it was there just now"));
    assert_eq!(ran.code, Some(0), "{}", ran.text);
    assert!(ran.text.contains("both are done"), "{}", ran.text);
}

fn open_one() -> Command {
    let mut command = urxe();
    command.args(["run", "--device", &addresses().0.to_string()]);
    command.args(["--", "ibv_devinfo"]).stdin(Stdio::null());
    command
}
