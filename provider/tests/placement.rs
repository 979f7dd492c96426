//! ATOMIC WRITE and FLUSH over real sockets.

use std::fs::File;
use std::path::PathBuf;

use crate::common::{self, ALL, End, bytes, connect, pair_with};
use memmap2::MmapMut;
use urxe::{
    Access, ConnectOptions, Context, ErrorKind, Flush, Mr, Placement, Selectivity, SendWr, Wc,
    WcOpcode, WcStatus,
};

const FLUSHABLE: Access = Access(ALL.0 | Access::FLUSH_GLOBAL.0 | Access::FLUSH_PERSISTENT.0);

fn options() -> ConnectOptions {
    ConnectOptions {
        access: FLUSHABLE,
        ..ConnectOptions::default()
    }
}

fn global(length: u32) -> Flush {
    Flush {
        placement: Placement::GLOBAL,
        selectivity: Selectivity::Range,
        length,
    }
}

fn persistent(length: u32) -> Flush {
    Flush {
        placement: Placement::PERSISTENT,
        ..global(length)
    }
}

fn complete(end: &End, wr: SendWr<'_>) -> Wc {
    end.qp.post_send(&wr.signaled()).expect("room");
    end.complete()
}

#[test]
fn words_arrive_whole() {
    let (a, b) = pair_with(&options());
    let to = b.memory(64);
    let from = a.memory(8);
    let at = |offset: u64| to.addr() + offset;
    let wc = complete(&a, SendWr::atomic_write(7, b"8 inline", at(0), to.rkey()));
    assert_eq!((wc.wr_id, wc.opcode), (7, WcOpcode::AtomicWrite));
    assert_eq!(wc.status, WcStatus::Success, "{wc}");
    from.write(0, b"8 in mem");
    let sges = [from.sge(..)];
    let wr = SendWr::atomic_write_sges(8, &sges, at(56), to.rkey());
    assert!(complete(&a, wr).is_success());
    assert_eq!(&bytes(&to, 8), b"8 inline");
    assert_eq!(&bytes(&to, 64)[56..], b"8 in mem");
}

/// A reader that polls the word never sees a mixture.
#[test]
fn a_reader_sees_no_mixture() {
    let (a, b) = pair_with(&options());
    let to = b.memory(64);
    const LAST: u64 = 2000;
    // All bytes of a value are equal, but for the lowest bits of the count.
    let value = |n: u64| (n & 0xffff) * 0x0001_0001_0001_0001;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 1..=LAST {
                let bytes = value(n).to_ne_bytes();
                let wc = complete(&a, SendWr::atomic_write(n, &bytes, to.addr(), to.rkey()));
                assert!(wc.is_success(), "{wc}");
            }
        });
        let mut last = 0;
        common::wait_until("the last value", || {
            let seen = to.load_u64(0);
            let n = seen & 0xffff;
            assert_eq!(seen, value(n), "a mixture");
            assert!(n >= last, "an old value after a new one");
            last = n;
            n == LAST
        });
    });
}

#[test]
fn an_address_that_is_no_multiple_of_8_is_refused() {
    let (a, b) = pair_with(&options());
    let to = b.memory(64);
    let wc = complete(
        &a,
        SendWr::atomic_write(1, &[1; 8], to.addr() + 4, to.rkey()),
    );
    assert_eq!(wc.status, WcStatus::RemInvReqErr, "{wc}");
    assert_eq!(bytes(&to, 64), [0; 64]);
}

#[test]
fn a_global_flush_needs_its_rights_only() {
    let (a, b) = pair_with(&options());
    let to =
        b.pd.reg_owned(vec![0; 64], Access(ALL.0 | Access::FLUSH_GLOBAL.0));
    let to = to.expect("memory");
    let write = SendWr::rdma_write_inline(1, b"hello", to.addr(), to.rkey());
    a.qp.post_send(&write).expect("room");
    let wc = complete(&a, SendWr::flush(2, to.addr(), to.rkey(), global(5)));
    assert_eq!((wc.wr_id, wc.opcode), (2, WcOpcode::Flush));
    assert!(wc.is_success(), "{wc}");
    assert_eq!(&bytes(&to, 5), b"hello");

    let without = b.memory(64);
    let wc = complete(
        &a,
        SendWr::flush(3, without.addr(), without.rkey(), global(5)),
    );
    assert_eq!(wc.status, WcStatus::RemAccessErr, "{wc}");

    // A QP that grants no FLUSH, as by default.
    let (a, b) = (End::open(), End::open());
    connect(&a.qp, &b.qp, &ConnectOptions::default());
    let to = b.pd.reg_owned(vec![0; 64], Access::FLUSH_GLOBAL);
    let to = to.expect("memory");
    let wc = complete(&a, SendWr::flush(3, to.addr(), to.rkey(), global(5)));
    assert_eq!(wc.status, WcStatus::RemInvReqErr, "{wc}");
}

#[test]
fn ordinary_memory_is_not_registered_for_persistence() {
    let context = Context::open(common::address()).expect("opens");
    let pd = context.alloc_pd().expect("a PD");
    let refused = pd.reg_owned(vec![0; 64], FLUSHABLE);
    let error = refused.expect_err("gone when the power is");
    assert_eq!(error.kind(), &ErrorKind::NotPersistent);
    assert_eq!(error.errno(), libc::EINVAL);
    let map = MmapMut::map_anon(8192).expect("memory");
    pd.reg_mapped(map, FLUSHABLE).expect_err("of no file");
    assert!(context.query_device().flush_persistent);
}

/// A file with a mapping, deleted at the end.
struct Mapped {
    path: PathBuf,
    mr: Option<Mr>,
}

impl Mapped {
    /// `None` if the file system is one that a loss of power empties.
    fn new(end: &End, len: u64) -> Option<Mapped> {
        let name = format!("placement-{}", std::process::id());
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        let file = File::options();
        let file = file
            .clone()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path);
        let file = file.expect("a file");
        file.set_len(len).expect("a size");
        // SAFETY: no other code changes the file's length.
        let map = unsafe { MmapMut::map_mut(&file) }.expect("a mapping");
        match end.pd.reg_mapped(map, FLUSHABLE) {
            Ok(mr) => Some(Mapped { path, mr: Some(mr) }),
            Err(error) if error.kind() == &ErrorKind::NotPersistent => {
                println!("skipped: {} is on no disk", path.display());
                drop(std::fs::remove_file(path));
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn mr(&self) -> &Mr {
        self.mr.as_ref().expect("until it is dropped")
    }

    /// Kilobytes of the mapping that are not on the disk yet.
    fn dirty_kb(&self) -> u64 {
        let smaps = std::fs::read_to_string("/proc/self/smaps").expect("readable");
        let name = self.path.to_str().expect("text");
        let lines = smaps.lines().skip_while(|line| !line.ends_with(name));
        let dirty = lines.take(22).filter(|line| line.contains("_Dirty:"));
        let kb = |line: &str| -> u64 {
            let number = line.split_whitespace().nth(1).expect("a number");
            number.parse().expect("a number")
        };
        dirty.map(kb).sum()
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        self.mr = None;
        drop(std::fs::remove_file(&self.path));
    }
}

#[test]
fn a_persistent_flush_brings_a_file_to_its_disk() {
    let (a, b) = pair_with(&options());
    let Some(file) = Mapped::new(&b, 64 << 10) else {
        return;
    };
    let to = file.mr();
    // Two pages; the flush begins and ends inside them.
    let at = to.addr() + 4000;
    let text = common::pattern(1, 1000);
    let from = a.memory(1000);
    from.write(0, &text);
    let sges = [from.sge(..)];
    let write = SendWr::rdma_write(1, &sges, at, to.rkey());
    assert!(complete(&a, write).is_success());
    let dirty = file.dirty_kb();
    let wc = complete(&a, SendWr::flush(2, at, to.rkey(), persistent(1000)));
    assert!(wc.is_success(), "{wc}");
    if dirty == 0 {
        println!("this system's /proc/self/smaps does not tell what is dirty");
    } else {
        assert_eq!(file.dirty_kb(), 0);
    }
    let stored = std::fs::read(&file.path).expect("readable");
    assert!(stored[4000..5000] == text);

    // The whole region, by its key alone.
    let last = to.addr() + to.len() as u64 - 8;
    let word = SendWr::atomic_write(3, b"the last", last, to.rkey());
    assert!(complete(&a, word).is_success());
    let all = Flush {
        selectivity: Selectivity::Region,
        ..persistent(0)
    };
    assert!(complete(&a, SendWr::flush(4, 0, to.rkey(), all)).is_success());
    assert_eq!(file.dirty_kb(), 0);
}
