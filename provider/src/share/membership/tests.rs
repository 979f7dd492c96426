//! A participant beside files that something else has written to.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use super::super::tables::{LEN, MAGIC};
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
        Registry::open_in(self.0.clone(), 7).expect("a file")
    }

    fn join(&self, addr: IpAddr, random: &mut Random) -> Result<Joined, JoinError> {
        let config = UdpConfig::default();
        Membership::join_by(self.registry(), &[addr], PORT, &config, || random.next())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // What is left in the system's folder for such things harms nobody.
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

/// What the one who is there, and one who comes, do.
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
            source: addr,
            source_port: 4791,
            local: addr,
            place: 0,
            tos: 0,
            packet: &packet,
        };
        membership.take_foreign(&handed, Time(n * HOLDERS_NS));
    }
    let name = PortName {
        space: 0x106,
        addr,
        port: 33_000 + (random.next() % 100) as u16,
        v6_only: false,
    };
    let results = [
        membership.repair(sockets.iter(), || ()),
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

#[test]
fn damaged_files_of_the_registry_are_an_error_in_words_and_heal_when_all_are_gone() {
    let place = Place::new("damaged");
    let addr = crate::testing::address().into();
    let mut refused = 0;
    for seed in 1..=2000_u64 {
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
