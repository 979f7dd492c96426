//! Another user can neither open a ring nor have one used.

use std::os::unix::process::CommandExt;
use std::process::Command;

use urxe::ConnectOptions;

use super::peer::{Peer, ping};
use super::{end, records};
use crate::common::address;

/// The folders of a user that no other test has. They are removed in the end.
struct Folders(u32);

impl Drop for Folders {
    fn drop(&mut self) {
        for place in ["/dev/shm", "/tmp"] {
            let _ = std::fs::remove_dir_all(format!("{place}/urxe-{}", self.0));
        }
    }
}

#[test]
fn another_user_neither_opens_a_ring_nor_has_one_used() {
    if !rustix::process::getuid().is_root() {
        println!("skipped: only root can start processes of other users");
        return;
    }
    let folders = Folders(4_000_000 + std::process::id());
    let user = folders.0;
    let mut neighbour = Peer::start();
    let a = end();
    neighbour.connect(&a.qp, &ConnectOptions::default());
    ping(&a, 1);
    assert!(records(&a)[0] > 0);

    // All that leads to a ring: the mapping, and the inbox by which it is offered.
    let me = std::process::id();
    let script = format!(
        "for f in /proc/{me}/map_files/* /proc/{me}/maps /proc/{me}/mem /dev/shm/urxe-0/*; do \
           if (exec 3<\"$f\") 2>/dev/null; then echo \"opened $f\"; fi; \
         done; ls /dev/shm/urxe-0 >/dev/null 2>&1 && echo listed; true"
    );
    let mut shell = Command::new("sh");
    shell
        .args(["-c", &script])
        .current_dir("/")
        .uid(user)
        .gid(user);
    let output = shell.output().expect("a shell");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");

    // A context of that user, in the same network: the QPs are connected, and stay with the sockets.
    let mut command = Peer::command();
    command.current_dir("/").uid(user).gid(user);
    let can_run = Command::new(command.get_program())
        .arg("--list")
        .current_dir("/")
        .uid(user)
        .gid(user)
        .output();
    if !can_run.is_ok_and(|output| output.status.success()) {
        println!("skipped: the other user cannot run this test binary");
        return;
    }
    let mut stranger = Peer::start_by(&mut command, address());
    let b = end();
    stranger.connect(&b.qp, &ConnectOptions::default());
    (0..20).for_each(|number| ping(&b, number));
    assert_eq!((records(&b), stranger.count("tx_records")), ([0; 2], 0));
}
