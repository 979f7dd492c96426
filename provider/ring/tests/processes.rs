//! A ring as programs have it: its real size, other processes, and what else may be behind a descriptor.

#![cfg(target_os = "linux")]

use std::env;
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Write, pipe};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::{FdFlags, fcntl_getfd};

use urxe_ring::{Consumer, Mark, Pop, Producer, Push, RECORD_MAX};

const MARK: Mark = Mark {
    kind: 0x3f,
    tag: 0xfedc,
    size: 0xba98,
};

fn ring() -> (Producer, Consumer) {
    let (producer, fd) = Producer::create().expect("memory");
    (producer, Consumer::open(fd).expect("a ring"))
}

/// A record that says its number in each word. They have different lengths.
fn numbered(number: u32, record: &mut Vec<u8>) -> Mark {
    record.clear();
    for _ in 0..1 + number.wrapping_mul(2_654_435_761) % 700 {
        record.extend(number.to_ne_bytes());
    }
    Mark {
        tag: number as u16,
        ..MARK
    }
}

#[test]
fn a_long_stream_arrives() {
    let (mut producer, mut consumer) = ring();
    let len = |number: usize| (number * 7919) % (RECORD_MAX + 1);
    let source: Vec<u8> = (0..RECORD_MAX * 2).map(|at| (at % 251) as u8).collect();
    let source = &source;
    let count = 20_000;
    thread::scope(|scope| {
        scope.spawn(move || {
            for number in 0..count {
                let bytes = &source[number % 251..][..len(number)];
                while producer.push(MARK, bytes) == Push::Full {
                    thread::yield_now();
                }
            }
        });
        let mut out = vec![0; RECORD_MAX];
        for number in 0..count {
            let found = loop {
                match consumer.pop(&mut out) {
                    Pop::Empty => thread::yield_now(),
                    Pop::Record { len, mark: MARK } => break len,
                    other => panic!("{other:?} in place of record {number}"),
                }
                consumer.release();
            };
            assert_eq!(out[..found], source[number % 251..][..len(number)]);
        }
    });
    assert_eq!(consumer.pop(&mut []), Pop::Closed);
}

#[test]
fn sides_can_move_to_other_threads() {
    fn is_send<T: Send + std::fmt::Debug>(_: &T) {}
    let (producer, consumer) = ring();
    is_send(&producer);
    is_send(&consumer);
}

/// Tells a process of a test which part to play.
const ROLE: &str = "URXE_TEST_RING_ROLE";

/// A process that does not outlive the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().expect("it can be killed");
        self.0.wait().expect("it was killed");
    }
}

/// This test again, in a process that plays a part; and what it says.
fn process(test: &str, role: &str, stdin: Stdio) -> (Process, BufReader<ChildStdout>) {
    let program = env::current_exe().expect("this test binary");
    let mut command = Command::new(program);
    command.args([test, "--exact", "--nocapture"]);
    command.env(ROLE, role).stdin(stdin).stdout(Stdio::piped());
    let mut child = command.spawn().expect("a process");
    let out = child.stdout.take().expect("piped");
    (Process(child), BufReader::new(out))
}

fn plays(role: &str) -> bool {
    env::var(ROLE).is_ok_and(|it| it == role)
}

/// The rest of the first line that begins with `start`.
fn line(out: &mut impl BufRead, start: &str) -> String {
    let mut line = String::new();
    loop {
        line.clear();
        let len = out.read_line(&mut line).expect("text");
        assert!(len > 0, "the process ended before it said {start}");
        if let Some(rest) = line.trim_end().strip_prefix(start) {
            return rest.to_owned();
        }
    }
}

fn say(text: &str) {
    // Whole, at once: the test harness writes lines of its own.
    writeln!(io::stdout().lock(), "\n{text}").expect("the test listens");
}

#[test]
fn what_a_killed_producer_wrote_is_read_whole() {
    let mut record = Vec::new();
    if plays("producer") {
        let (mut producer, fd) = Producer::create().expect("memory");
        say(&format!("ring {}", fd.as_fd().as_raw_fd()));
        for number in 0.. {
            let mark = numbered(number, &mut record);
            while producer.push(mark, &record) == Push::Full {
                thread::yield_now();
            }
        }
    }
    let test = "what_a_killed_producer_wrote_is_read_whole";
    let (child, mut out) = process(test, "producer", Stdio::null());
    let fd = line(&mut out, "ring ");
    let path = format!("/proc/{}/fd/{fd}", child.0.id());
    let file = File::options().read(true).write(true).open(path);
    let mut consumer = Consumer::open(file.expect("its descriptor").into()).expect("a ring");
    let mut bytes = vec![0; RECORD_MAX];
    let mut number = 0;
    let mut child = Some(child);
    loop {
        match consumer.pop(&mut bytes) {
            Pop::Record { len, mark } => {
                assert_eq!(mark, numbered(number, &mut record), "{number}");
                assert_eq!(bytes[..len], record, "{number}");
                number += 1;
            }
            Pop::Empty if child.is_some() => thread::yield_now(),
            Pop::Empty => break,
            end => panic!("{end:?} at {number}"),
        }
        if number >= 5000 {
            drop(child.take());
        }
    }
}

#[test]
fn a_killed_consumer_leaves_a_ring_that_is_full() {
    let mut record = Vec::new();
    if plays("consumer") {
        let fd = io::stdin().as_fd().try_clone_to_owned();
        let mut consumer = Consumer::open(fd.expect("a descriptor")).expect("a ring");
        let mut bytes = vec![0; RECORD_MAX];
        for number in 0.. {
            let mark = numbered(number, &mut record);
            let len = record.len();
            while consumer.pop(&mut bytes) != (Pop::Record { len, mark }) {
                consumer.release();
                thread::yield_now();
            }
            assert_eq!(bytes[..len], record);
            if number == 5000 {
                say("took many");
            }
        }
    }
    let test = "a_killed_consumer_leaves_a_ring_that_is_full";
    let (mut producer, fd) = Producer::create().expect("memory");
    let (child, mut out) = process(test, "consumer", Stdio::from(fd));
    let listener = thread::spawn(move || {
        line(&mut out, "took many");
        drop(child);
    });
    let mut number = 0;
    loop {
        let is_dead = listener.is_finished();
        let mark = numbered(number, &mut record);
        match producer.push(mark, &record) {
            Push::Done => number += 1,
            Push::Full if is_dead => break,
            Push::Full => thread::yield_now(),
            Push::Closed => panic!("a killed process closes nothing"),
        }
    }
    listener.join().expect("no panic");
    assert!(number > 5000 && !producer.is_drained() && !producer.is_closed());
}

/// A third mapping of the memory writes anything anywhere, while both sides run: nothing panics, nothing faults.
#[test]
fn damage_at_any_time_is_survived() {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let mut ends = [0; 3];
    for _ in 0..150 {
        let (mut producer, fd) = Producer::create().expect("memory");
        let damaged = File::from(fd.try_clone().expect("a descriptor"));
        let mut consumer = Consumer::open(fd).expect("a ring");
        let writer = thread::spawn(move || {
            let mut record = Vec::new();
            for number in 0..3000 {
                let mark = numbered(number, &mut record);
                if producer.push(mark, &record) == Push::Closed {
                    return true;
                }
                producer.must_wake();
            }
            false
        });
        let reader = thread::spawn(move || {
            let mut out = vec![0; RECORD_MAX];
            // Damage can make a circle of chunks that were read before.
            let mut left = 200_000;
            loop {
                match consumer.pop(&mut out) {
                    Pop::Record { .. } if left > 0 => left -= 1,
                    Pop::Empty => {
                        consumer.release();
                        consumer.doze();
                        thread::yield_now();
                    }
                    end => return end,
                }
            }
        });
        while !writer.is_finished() {
            let (which, value) = (random() % 8, random());
            let at = match which {
                0 => [64, 128, 132, 192, 196][random() as usize % 5],
                1..4 => 4096 + random() % 64 * 64,
                4..6 => 4096 + random() % 4096 * 64,
                _ => random() % (256 << 10),
            };
            let value = [value, value % 4096, value << 48, 0][random() as usize % 4];
            let len = [1, 4, 8][random() as usize % 3];
            damaged
                .write_all_at(&value.to_ne_bytes()[..len], at)
                .expect("memory");
            thread::yield_now();
        }
        ends[0] += u32::from(writer.join().expect("no panic"));
        // Whatever it reads, it ends now.
        damaged.write_all_at(&[1], 64).expect("memory");
        match reader.join().expect("no panic") {
            Pop::Broken => ends[1] += 1,
            _ => ends[2] += 1,
        }
    }
    // How many of them see the damage is chance; the scripts of the unit tests see to each kind.
    println!(
        "{} closed, {} broken, {} read to their end",
        ends[0], ends[1], ends[2]
    );
}

#[test]
fn the_descriptor_does_not_survive_exec() {
    let (_producer, fd) = Producer::create().expect("memory");
    let flags = fcntl_getfd(&fd).expect("open");
    assert!(flags.contains(FdFlags::CLOEXEC));
}

#[test]
fn the_memory_keeps_its_size() {
    let (_producer, fd) = Producer::create().expect("memory");
    assert!(ftruncate(&fd, 0).is_err());
    assert!(ftruncate(&fd, 1 << 30).is_err());
    assert!(fcntl_add_seals(&fd, SealFlags::WRITE).is_err());
}

/// Memory of a length with seals, and the first bytes of a ring.
fn forged(like: &OwnedFd, len: u64, seals: SealFlags) -> OwnedFd {
    let fd = memfd_create("forged", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING);
    let file = File::from(fd.expect("memory"));
    let mut magic = [0; 8];
    let like = File::from(like.try_clone().expect("a descriptor"));
    like.read_exact_at(&mut magic, 0).expect("readable");
    file.write_all_at(&magic, 0).expect("writable");
    file.set_len(len).expect("a size");
    fcntl_add_seals(&file, seals).expect("seals");
    file.into()
}

#[track_caller]
fn is_refused(fd: OwnedFd) {
    let error = Consumer::open(fd).expect_err("no ring");
    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
}

#[test]
fn what_is_no_ring_is_refused() -> io::Result<()> {
    let (_producer, fd) = Producer::create()?;
    let size = File::from(fd.try_clone()?).metadata()?.len();
    let both = SealFlags::SHRINK | SealFlags::GROW;

    Consumer::open(forged(&fd, size, both))?;
    Consumer::open(forged(&fd, size, both | SealFlags::SEAL))?;
    is_refused(forged(&fd, size - 1, both));
    is_refused(forged(&fd, size + 4096, both));
    is_refused(forged(&fd, 0, both));
    is_refused(forged(&fd, size, SealFlags::empty()));
    is_refused(forged(&fd, size, SealFlags::SHRINK));
    is_refused(forged(&fd, size, SealFlags::GROW));
    // The system refuses to map it.
    Consumer::open(forged(&fd, size, both | SealFlags::WRITE)).expect_err("read-only");
    Consumer::open(forged(&fd, size, both | SealFlags::FUTURE_WRITE)).expect_err("read-only");

    let version = forged(&fd, size, both);
    File::from(version.try_clone()?).write_all_at(&[0xff], 7)?;
    is_refused(version);

    is_refused(File::open(env::current_exe()?)?.into());
    is_refused(File::open("/dev/zero")?.into());
    let (reader, writer) = pipe()?;
    is_refused(reader.into());
    is_refused(writer.into());
    Ok(())
}
