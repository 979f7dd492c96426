//! fio's engine for RDMA: one job offers its memory or receives, the other moves 256 MiB.
//!
//! `--thread` keeps a job in the process that the test waits for; otherwise it is a child in a session of its own.

use crate::cm_ends::cm_ends;
use crate::ends::User;

/// Blocks of 1 MiB; the server has as many buffers as the whole transfer has blocks. fio connects with an RNR retry
/// count of 0: a message that finds no receive posted would end the job, on any adapter.
fn fio(user: User, verb: &str, server: &str, client: &str) -> Option<(String, String)> {
    let job = "--thread --ioengine=rdma --port=PORT --bs=1m --size=256m --verify_state_save=0";
    cm_ends(
        user,
        "fio",
        &format!("fio --name=server {job} --rw=read --iodepth=256 {server}"),
        &format!(
            "fio --name=client {job} --hostname=ADDR --verb={verb} --rw=write --iodepth=16 {client}"
        ),
    )
}

/// WRITE and READ: the server only lends its memory, and counts nothing.
#[test]
fn write_and_read_move_256_mib() {
    for verb in ["write", "read"] {
        let Some((_, client)) = fio(User::Myself, verb, "", "") else {
            return;
        };
        assert!(client.contains("io=256MiB"), "{verb}: {client}");
        assert!(client.contains("total=0,256,0,0"), "{verb}: {client}");
    }
}

/// The client writes a header and a checksum into each block, and the server checks what it received.
fn verified(user: User) {
    let Some((server, client)) = fio(
        user,
        "send",
        "--verify=crc32c",
        "--verify=crc32c --do_verify=0",
    ) else {
        return;
    };
    for ran in [server, client] {
        assert!(ran.contains("io=256MiB"), "{ran}");
        assert!(!ran.contains("verify: bad"), "{ran}");
    }
}

#[test]
fn send_moves_256_mib_with_checksums() {
    verified(User::Myself);
}

#[test]
fn as_an_ordinary_user() {
    if User::Nobody.is_available() {
        verified(User::Nobody);
    }
}
