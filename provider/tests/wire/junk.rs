//! What another process of the same user can put into the inbox of a context: anything.

use std::fs::File;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, sendmsg_addr,
};
use urxe::ConnectOptions;
use urxe_ring::{Mark, Producer};

use super::process::{descriptors, rings};
use super::{Dice, end_of_one_shard, records, seed};
use crate::common::{alone, connect, exchange, wait_until};

/// Bytes of a ring's memory.
const RING: u64 = (4 << 20) + 4096;

/// A context of this process, as others find it in the folder of the registry.
struct Place {
    inbox: PathBuf,
    row: u16,
    nonce: u64,
}

/// All contexts of this process, in the order of their rows.
fn places() -> Vec<Place> {
    let table = std::fs::read_to_string("/proc/net/unix").expect("a table");
    let own = descriptors();
    let mut inboxes: Vec<(u16, PathBuf)> = Vec::new();
    for line in table.lines() {
        let mut words = line.split_whitespace().skip(6);
        let (Some(inode), Some(path)) = (words.next(), words.next()) else {
            continue;
        };
        if path.contains("/hand-over-") && own.contains(&format!("socket:[{inode}]")) {
            let (_, row) = path.rsplit_once('-').expect("its row is last");
            inboxes.push((row.parse().expect("a number"), path.into()));
        }
    }
    inboxes.sort();
    let (_, first) = inboxes.first().expect("a context is open");
    let name = first.file_name().expect("a file").to_string_lossy();
    let namespace = name.split('-').nth(2).expect("hand-over-NAMESPACE-ROW");
    let registry = first.with_file_name(format!("qpns-{namespace}"));
    let mut bytes = vec![0; 16 << 10];
    let file = File::open(registry).expect("readable");
    let len = file.read_at(&mut bytes, 0).expect("readable");
    // Rows are a nonce, the process, and its namespace.
    let pid = std::process::id().to_le_bytes();
    let rows = bytes[..len].as_chunks::<16>().0.iter();
    let nonces = rows.filter(|row| row[8..12] == pid).map(|row| {
        let nonce = row[..8].try_into().expect("eight bytes");
        u64::from_le_bytes(nonce)
    });
    let places = inboxes.into_iter().zip(nonces);
    let places = places.map(|((row, inbox), nonce)| Place { inbox, row, nonce });
    places.collect()
}

/// Puts bytes into an inbox, and a descriptor with them.
fn put(to: &Place, bytes: &[u8], fd: Option<BorrowedFd<'_>>) {
    let socket = UnixDatagram::unbound().expect("a socket");
    let fds: Vec<BorrowedFd<'_>> = fd.into_iter().collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&fds));
    }
    let path = SocketAddrUnix::new(&to.inbox).expect("a short path");
    // It waits while the inbox is full.
    let bytes = [IoSlice::new(bytes)];
    sendmsg_addr(&socket, &path, &bytes, &mut control, SendFlags::empty()).expect("it is there");
}

/// What a neighbour says of memory: an offer, or that it does not read what it was offered.
fn say(what: &[u8; 8], from: (u16, u64)) -> Vec<u8> {
    let (row, nonce) = from;
    [&what[..], &nonce.to_be_bytes(), &row.to_be_bytes()].concat()
}

/// Memory of a ring's size, which cannot shrink, with nothing in it.
fn sealed() -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memory = memfd_create("junk", flags).expect("memory");
    ftruncate(&memory, RING).expect("it can be so long");
    fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW).expect("it takes seals");
    memory
}

/// A ring with records that mean nothing, or with damage.
fn nonsense(dice: &mut Dice) -> (Producer, OwnedFd) {
    let (mut producer, memory) = Producer::create().expect("memory");
    for _ in 0..dice.below(40) {
        let mark = Mark {
            kind: dice.below(5) as u8,
            tag: dice.below(3) as u16,
            size: dice.below(100) as u16,
        };
        let len = [0, 35, dice.below(3000)][dice.below(3) as usize];
        let bytes: Vec<u8> = (0..len).map(|_| dice.below(256) as u8).collect();
        producer.push(mark, &bytes);
    }
    if dice.below(2) == 0 {
        let file = File::from(memory.try_clone().expect("a descriptor"));
        for _ in 0..20 {
            let at = 4096 + 64 * dice.below(100);
            let word =
                [dice.below(u64::MAX), 0xff | dice.below(1 << 40) << 8][dice.below(2) as usize];
            file.write_all_at(&word.to_le_bytes(), at)
                .expect("it is memory");
        }
    }
    (producer, memory)
}

#[test]
fn junk_in_an_inbox_disturbs_nothing() {
    alone("wire::junk::junk_in_an_inbox_disturbs_nothing", || {
        let mut dice = seed(11);
        let (a, b) = (end_of_one_shard(), end_of_one_shard());
        connect(&a.qp, &b.qp, &ConnectOptions::default());
        exchange(&a, &b, 1);
        let before = descriptors();
        let [first, second] = &places()[..] else {
            panic!("there are two contexts");
        };
        let mut kept = Vec::new();
        for _ in 0..300 {
            let (to, other) = [(first, second), (second, first)][dice.below(2) as usize];
            let live = (other.row, other.nonce);
            let stranger = (dice.below(512) as u16, dice.below(u64::MAX));
            let from = [live, live, stranger][dice.below(3) as usize];
            let what = [b"urxering", b"urxering", b"urxenone", b"whatever"][dice.below(4) as usize];
            let said = say(what, from);
            match dice.below(6) {
                0 => put(to, &said, None),
                1 => put(
                    to,
                    &said,
                    Some(File::open("/dev/null").expect("it is there").as_fd()),
                ),
                2 => put(to, &said, Some(sealed().as_fd())),
                3 => {
                    let len = dice.below(100);
                    let bytes: Vec<u8> = (0..len).map(|_| dice.below(256) as u8).collect();
                    put(to, &bytes, Some(sealed().as_fd()));
                }
                _ => {
                    let (producer, memory) = nonsense(&mut dice);
                    put(to, &said, Some(memory.as_fd()));
                    // One that is kept does not end its ring.
                    if dice.below(4) == 0 {
                        kept.push(producer);
                    }
                }
            }
        }
        exchange(&a, &b, 100);
        let [count] = [records(&a)[0]];
        (0..50).for_each(|round| exchange(&a, &b, round));
        assert!(records(&a)[0] > count, "they use memory still");
        let broken = a.counter("rings_broken") + b.counter("rings_broken");
        let wrong = a.counter("rx_errors") + b.counter("rx_errors");
        assert!(broken > 0 && wrong > 0, "{broken} and {wrong}");
        // What was not kept is gone, each side's own.
        let most = 4 + 2 * kept.len();
        wait_until("the rings are unmapped", || rings() <= most);
        drop(kept);
        wait_until("the rings are unmapped", || rings() == 4);
        assert_eq!(descriptors(), before);
    });
}
