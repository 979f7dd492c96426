//! A participant beside files that something else has written to.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use urxe_wire::cm::{CmMessage, Dreq};
use urxe_wire::{Bth, Deth, MAD_LEN, Opcode, PacketWriter, Psn, Qkey, packet_len};

use super::super::tables::{LEN, MAGIC};
use super::super::{fuzzing, lock};
use super::*;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// A directory as a user's own, with the files of one test.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let directory = std::env::temp_dir().join(format!("urxe-{name}-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("the tests may write there");
        Place(directory)
    }

    fn registry(&self) -> Registry {
        Registry::open_in(self.0.clone(), "7").expect("a file")
    }

    fn join(&self, addr: IpAddr, random: &mut Random) -> Result<Joined, JoinError> {
        let config = UdpConfig::default();
        Membership::join_by(self.registry(), &[addr], PORT, &config, true, || {
            random.next()
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // What is left in the system's folder for such things does no harm.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// No context's.
const PORT: u16 = 4799;

/// Writes what is not random everywhere: rows that there are and rows that there are not.
fn damage(file: &File, len: usize, random: &mut Random) {
    for _ in 0..1 + random.next() % 40 {
        let at = MAGIC.len() as u64 + random.next() % (len - MAGIC.len()) as u64;
        // The places of entries, more often than not.
        let at = if random.next().is_multiple_of(4) {
            at
        } else {
            at & !7
        };
        let mut bytes = random.next().to_le_bytes();
        if random.next().is_multiple_of(2) {
            bytes[..2].copy_from_slice(&((random.next() % 600) as u16).to_le_bytes());
        }
        let count = 1 + random.next() as usize % 8;
        file.write_all_at(&bytes[..count], at).expect("room");
    }
}

/// What the participant that is there, and one that joins, do.
fn live_on(place: &Place, resident: &Joined, addr: IpAddr, random: &mut Random) {
    let Joined {
        membership,
        sockets,
        ..
    } = resident;
    let mut packet = [0; 64];
    for n in 0..64_u64 {
        packet[..8].copy_from_slice(&random.next().to_le_bytes());
        let handed = Handed {
            envelope: None,
            is_sealed: false,
            source: addr,
            source_port: 4791,
            local: addr,
            place: 0,
            tos: 0,
            packet: &packet,
        };
        let [.., a, b, c] = random.next().to_le_bytes();
        let chunk = QpnChunk::of(Qpn::new(u32::from_be_bytes([0, a, b, c])));
        membership.take_foreign(&handed, Foreign::Qp(chunk), Time(n * HOLDERS_NS));
    }
    let name = PortName {
        space: 0x106,
        addr,
        port: 33_000 + (random.next() % 100) as u16,
        v6_only: false,
    };
    let results = [
        membership
            .repair(Time::ZERO, sockets.iter(), || ())
            .map(|_| ()),
        membership.grant(random.next(), sockets.iter()).map(|_| ()),
        membership.bind_port(name, false).map(|_| ()),
        membership.take_port_block(0x106, random.next()).map(|_| ()),
        membership.note_listening(name),
        membership.release_port(name, true),
    ];
    let newcomer = place.join(addr, random);
    let refused = match newcomer {
        Ok(Joined {
            membership,
            sockets,
            ..
        }) => membership.leave(sockets.iter()).err(),
        Err(JoinError::NoRegistry(error)) => Some(error),
        // Sockets that are not there were counted.
        Err(_) => None,
    };
    for error in results.into_iter().filter_map(Result::err).chain(refused) {
        let text = error.to_string();
        let says_why = text.contains("damaged") && text.contains("qpns-7");
        assert!(
            says_why || error.kind() == io::ErrorKind::StorageFull,
            "{text}"
        );
    }
}

/// Takes what is in the inbox, which is this packet each time: how often.
fn fetch(membership: &Membership, expected: &Handed<'_>) -> usize {
    let mut count = 0;
    membership.drain_inbox(|got| {
        assert!(matches!(got, Arrived::Packet(got) if got == *expected));
        count += 1;
    });
    count
}

#[test]
fn damaged_contents_are_read_without_a_panic() {
    for seed in 1..=5000_u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut bytes = vec![0; LEN];
        for _ in 0..random.next() % 200 {
            let at = (random.next() as usize % (LEN - 8)) & !1;
            let word = (random.next() % 514) as u16;
            bytes[at..at + 2].copy_from_slice(&word.to_le_bytes());
        }
        let len = bytes.len() - random.next() as usize % 200;
        let read = std::panic::catch_unwind(|| {
            fuzzing::registry(&bytes);
            fuzzing::ports(&bytes[..len]);
            fuzzing::handed(&bytes[..len % 100]);
        });
        assert!(read.is_ok(), "it panicked: seed {seed}");
    }
}

#[test]
fn damaged_files_of_the_registry_are_an_error_in_words_and_heal_when_all_are_gone() {
    let place = Place::new("damaged");
    let addr = crate::testing::address().into();
    let mut refused = 0;
    for seed in 1..=300_u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let at_work = std::panic::AssertUnwindSafe(|| {
            let resident = place.join(addr, &mut random).expect("nobody is there");
            let registry = resident.membership.registry.path();
            let ports = resident.membership.registry.ports_path();
            for (path, len) in [(registry, LEN), (ports, 1 << 13)] {
                let mut options = OpenOptions::new();
                let options = options.write(true).create(true).truncate(false);
                let file = options.open(path).expect("it is ours");
                damage(&file, len, &mut random);
            }
            live_on(&place, &resident, addr, &mut random);
            let left = resident.membership.leave(resident.sockets.iter());
            u32::from(left.is_err())
        });
        let done = std::panic::catch_unwind(at_work);
        refused += done.unwrap_or_else(|_| panic!("it panicked: seed {seed}"));
    }
    assert!(refused > 0, "no damage was noticed");
}

/// A DREQ for the owner of this chunk, in its packet.
fn dreq(chunk: QpnChunk) -> Vec<u8> {
    let message = CmMessage::Dreq(Dreq {
        local_comm_id: 1,
        remote_comm_id: u32::from(chunk.0) << 20,
        remote_qpn: Qpn::new(2),
        reserved11: 0,
        private_data: [0; 220],
    });
    let gsi = Qpn::new(1);
    let info = Opcode::UD_SEND_ONLY.info().expect("an opcode of the table");
    let mut bytes = vec![0; packet_len(info, MAD_LEN)];
    let bth = Bth::new(Opcode::UD_SEND_ONLY, gsi, Psn::new(0));
    let mut writer = PacketWriter::new(&mut bytes, &bth);
    writer.deth(&Deth {
        qkey: Qkey::GSI,
        reserved: 0,
        src_qp: gsi,
    });
    let mad = message.emit_mad(1);
    writer.payload_mut(MAD_LEN).copy_from_slice(&mad);
    // It is routed before the ICRC is checked.
    let _ = writer;
    bytes
}

/// A message for the owner of a chunk.
fn take(resident: &Joined, handed: &Handed<'_>, owner: QpnChunk, now: Time) -> Shared {
    let foreign = Foreign::Message(Destination::Owner(owner));
    resident.membership.take_foreign(handed, foreign, now)
}

/// How often this thread gave the processor away to wait for something.
fn waits() -> u64 {
    let status = fs::read_to_string("/proc/thread-self/status").expect("Linux has it");
    let mut words = status.lines().filter_map(|line| {
        let count = line.strip_prefix("voluntary_ctxt_switches:")?;
        count.trim().parse().ok()
    });
    words.next().expect("it is listed")
}

/// More than the kernel holds, for a neighbour that fetches them late: none is lost.
#[test]
fn messages_for_a_full_inbox_arrive_when_its_owner_fetches_what_it_has() {
    let place = Place::new("busy");
    let addr = crate::testing::address().into();
    let mut random = Random(7);
    let [resident, busy] = [(); 2].map(|()| place.join(addr, &mut random).expect("shared"));
    let packet = dreq(busy.chunk);
    let handed = Handed {
        envelope: None,
        is_sealed: false,
        source: addr,
        source_port: 4791,
        local: addr,
        place: 0,
        tos: 0,
        packet: &packet,
    };
    let (mut fetched, mut kept) = (0, 0);
    for n in 0..500_u64 {
        let now = Time(1 + n * 1_000_000);
        match take(&resident, &handed, busy.chunk, now) {
            Shared::HandedOver => {}
            Shared::Waits => kept += 1,
            other => panic!("{other:?}"),
        }
        let retried = resident.membership.hand_over_waiting(now);
        assert_eq!(retried.lost, 0);
        // It had no processor for twenty milliseconds.
        if n % 20 == 19 {
            fetched += fetch(&busy.membership, &handed);
            let soon = Time(now.0 + 1_000_000);
            assert_eq!(resident.membership.hand_over_waiting(soon).lost, 0);
            fetched += fetch(&busy.membership, &handed);
        }
    }
    assert!(kept > 0, "the inbox was full");
    assert_eq!(fetched, 500, "{kept} were kept");
}

#[test]
fn whoever_receives_for_neighbours_that_fetch_nothing_does_not_wait() {
    let place = Place::new("stopped");
    let addr = crate::testing::address().into();
    let mut random = Random(7);
    let resident = place.join(addr, &mut random).expect("nobody is there");
    // Their inboxes are not drained.
    let stopped: Vec<Joined> = (0..20)
        .map(|_| place.join(addr, &mut random).expect("shared"))
        .collect();
    let packets: Vec<Vec<u8>> = stopped.iter().map(|one| dreq(one.chunk)).collect();
    let mut outcomes = [0; 3];
    let before = waits();
    for ms in 0..5000_u64 {
        let now = Time(1 + ms * 1_000_000);
        for (packet, one) in packets.iter().zip(&stopped) {
            let handed = Handed {
                envelope: None,
                is_sealed: false,
                source: addr,
                source_port: 4791,
                local: addr,
                place: 0,
                tos: 0,
                packet,
            };
            match take(&resident, &handed, one.chunk, now) {
                Shared::HandedOver => outcomes[0] += 1,
                Shared::Waits => outcomes[1] += 1,
                Shared::Lost => outcomes[2] += 1,
                other => panic!("{other:?}"),
            }
        }
        resident.membership.hand_over_waiting(now);
    }
    let waited = waits() - before;
    println!("{outcomes:?} (handed over, kept, lost), {waited} waits");
    assert!(outcomes.iter().all(|&count| count > 0), "{outcomes:?}");
    // Reading the list of holders may do so, seldom.
    assert!(waited < 20, "{waited} waits for 100,000 messages");
}

/// Says to this test binary, started again, which file it is to lock.
const LOCK: &str = "URXE_TEST_LOCK";

/// Not a test by itself: locks a file and keeps it.
#[test]
fn holder_process() {
    let Some(path) = std::env::var_os(LOCK) else {
        println!("skipped: this is what another test starts");
        return;
    };
    let file = File::open(path).expect("it is there");
    assert!(lock::try_acquire(&file).expect("a lock"), "nobody has it");
    println!("\nlocked");
    io::stdin().read_line(&mut String::new()).expect("a pipe");
}

#[test]
fn a_process_that_is_stopped_with_the_registry_locked_stops_nobody_for_long() {
    let place = Place::new("locked");
    let addr = crate::testing::address().into();
    let mut random = Random(7);
    let mut join = || {
        let mut registry = place.registry();
        registry.patience = Duration::from_millis(200);
        let config = UdpConfig::default();
        Membership::join_by(registry, &[addr], PORT, &config, true, || random.next())
    };
    let [stays, leaves] = [(); 2].map(|()| join().expect("free or shared"));
    let name = PortName {
        space: 0x106,
        addr,
        port: 33_001,
        v6_only: false,
    };
    assert!(stays.membership.bind_port(name, false).expect("a registry"));

    let program = std::env::current_exe().expect("this test binary");
    let test = "share::membership::tests::holder_process";
    let mut holder = Command::new(program)
        .args([test, "--exact", "--nocapture", "--quiet"])
        .env(LOCK, stays.membership.registry.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let output = BufReader::new(holder.stdout.take().expect("piped"));
    let mut lines = output.lines().map_while(Result::ok);
    assert!(lines.any(|line| line == "locked"), "it has the lock");
    let pid = Pid::from_child(&holder);
    kill_process(pid, Signal::STOP).expect("ours");

    let joined = join().map(|_| ()).expect_err("it is locked");
    let JoinError::NoRegistry(joined) = joined else {
        panic!("{joined:?}")
    };
    let granted = stays.membership.grant(1, stays.sockets.iter());
    let listened = stays.membership.note_listening(name);
    for error in [
        joined,
        granted.expect_err("locked"),
        listened.expect_err("locked"),
    ] {
        let text = error.to_string();
        let who = format!("locked by process {}", holder.id());
        assert!(text.contains(&who) && text.contains("qpns-7"), "{text}");
    }
    stays
        .membership
        .release_port(name, false)
        .expect_err("locked");
    assert!(
        !stays
            .membership
            .repair(Time::ZERO, stays.sockets.iter(), || ())
            .expect("no error")
    );
    leaves
        .membership
        .leave(leaves.sockets.iter())
        .expect_err("locked");
    let chunk = leaves.chunk;
    drop(leaves);

    kill_process(pid, Signal::CONT).expect("ours");
    drop(holder.stdin.take());
    assert!(holder.wait().expect("ours").success());
    // What could not be given back then, is free now.
    let joined = join().expect("shared");
    let other = joined
        .membership
        .bind_port(name, false)
        .expect("a registry");
    assert!(
        !other,
        "it is another's until that looks at the ports again"
    );
    stays.membership.note_listening(name).expect("a registry");
    stays
        .membership
        .release_port(name, true)
        .expect("a registry");
    assert!(
        joined
            .membership
            .bind_port(name, false)
            .expect("a registry")
    );
    assert_eq!(stays.membership.registry.holder_of(chunk), None);
    for one in [joined, stays] {
        one.membership
            .leave(one.sockets.iter())
            .expect("a registry");
    }
}

/// The lock of a row is let go with the file, after the row: one that joins in between takes another.
#[test]
fn a_place_that_is_just_left_is_not_taken() {
    let place = Place::new("leaving");
    let registries = [place.registry(), place.registry(), place.registry()];
    let add = |registry: &Registry, nonce| {
        let mut locked = registry.lock(None).expect("free");
        let row = locked.add(nonce).expect("room").expect("a row");
        drop(locked);
        row
    };
    let [leaving, joins, later] = &registries;
    let left = add(leaving, 1);
    let mut locked = leaving.lock(Some(left)).expect("free");
    locked.remove(left).expect("it is there");
    drop(locked);
    let taken = add(joins, 2);
    assert_ne!(taken, left);
    drop(place.registry());
    assert!(joins.has_row(taken, 2) && !joins.has_row(left, 1));
    assert!(![left, taken].contains(&add(later, 3)));
}

#[test]
fn a_full_registry_says_how_many_there_are() {
    let place = Place::new("full");
    let addr = crate::testing::address().into();
    // One open file has the locks of all rows.
    let others = place.registry();
    let mut locked = others.lock(None).expect("a registry");
    for n in 1..=ROWS as u64 {
        assert!(locked.add(n).expect("a lock").is_some());
    }
    drop(locked);
    let refused = place.join(addr, &mut Random(7));
    let Err(JoinError::NoRegistry(error)) = refused.map(|_| ()) else {
        panic!("there is no room")
    };
    assert!(
        error.to_string().contains("512 contexts of this user"),
        "{error}"
    );
}
