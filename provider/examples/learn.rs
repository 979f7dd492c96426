//! The programs of docs/LEARN.md: two adapters in one process, Alice's on 127.0.0.1 and Bob's on 127.0.0.2.
//!
//! `cargo run -p urxe --example learn send`; also `write`, `wrong-key`, `many` and `too-early`.

use std::thread;
use std::time::{Duration, Instant};

use urxe::{Access, ConnectOptions, Context, Cq, Error, Mr, Pd, Qp, RecvWr, RemoteMr, SendWr};

/// Longer than any of these programs has to wait for a completion.
const PATIENCE: Duration = Duration::from_secs(10);

/// An adapter, and what a program needs of it.
struct Side {
    pd: Pd,
    cq: Cq,
    qp: Qp,
}

impl Side {
    fn open(address: &str) -> Result<Side, Error> {
        let context = Context::open(address.parse().expect("an address"))?;
        let (pd, cq) = (context.alloc_pd()?, context.create_cq(256)?);
        let qp = pd.qp(&cq).create()?;
        Ok(Side { pd, cq, qp })
    }

    fn memory(&self, bytes: &[u8], access: Access) -> Result<Mr, Error> {
        self.pd.reg_owned(bytes.to_vec(), access)
    }

    /// Waits for a completion, and says what it is.
    fn complete(&self, name: &str) -> Result<(), Error> {
        match self.cq.poll_timeout(PATIENCE)? {
            Some(wc) if wc.is_success() => println!("{name} completes: {wc}"),
            Some(wc) => println!("{name} fails: {}", self.qp.explain(&wc)?),
            None => println!("{name} does not complete in {PATIENCE:?}"),
        }
        Ok(())
    }
}

fn connected() -> Result<(Side, Side), Error> {
    let (alice, bob) = (Side::open("127.0.0.1")?, Side::open("127.0.0.2")?);
    alice
        .qp
        .connect(&bob.qp.endpoint(), &ConnectOptions::default())?;
    bob.qp
        .connect(&alice.qp.endpoint(), &ConnectOptions::default())?;
    Ok((alice, bob))
}

/// A SEND: Bob says where the next message goes, Alice says what it is.
fn send() -> Result<(), Error> {
    let (alice, bob) = connected()?;
    let inbox = bob.memory(&[0; 32], Access::LOCAL_WRITE)?;
    bob.qp.post_recv(&RecvWr::new(7, &[inbox.sge(..)]))?;
    let message = alice.memory(b"Hello Bob, this is Alice.", Access::NONE)?;
    alice
        .qp
        .post_send(&SendWr::send(1, &[message.sge(..)]).signaled())?;
    alice.complete("Alice's SEND")?;
    bob.complete("Bob's receive")?;
    println!("Bob reads: {}", text(&inbox));
    Ok(())
}

/// A WRITE: Alice says where the bytes go in Bob's memory. Bob sleeps.
fn write() -> Result<(), Error> {
    let (alice, bob) = connected()?;
    let board = bob.memory(&[0; 32], Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    // This text is what programs send each other, by any means.
    let told = board.remote(..).to_string();
    let sleeper = thread::spawn(move || {
        thread::sleep(Duration::from_secs(1));
        println!("Bob wakes up and reads: {}", text(&board));
        bob
    });
    let start = Instant::now();
    let remote: RemoteMr = told.parse().expect("Bob wrote it");
    let message = alice.memory(b"written while you slept", Access::NONE)?;
    let from = [message.sge(..)];
    alice
        .qp
        .post_send(&SendWr::write_to(2, &from, remote).signaled())?;
    alice.complete("Alice's WRITE")?;
    println!("after {} us", start.elapsed().as_micros());
    sleeper.join().expect("it only sleeps and prints");
    Ok(())
}

/// The most frequent mistake: the lkey, the region's key for its owner, where the rkey belongs.
fn wrong_key() -> Result<(), Error> {
    let (alice, bob) = connected()?;
    let board = bob.memory(&[0; 32], Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    let mut remote = board.remote(..);
    remote.rkey.0 = board.lkey().0;
    let message = alice.memory(b"hello, Bob", Access::NONE)?;
    let from = [message.sge(..)];
    alice
        .qp
        .post_send(&SendWr::write_to(3, &from, remote).signaled())?;
    alice.complete("Alice's WRITE")?;
    println!(
        "Bob's side says: {}",
        bob.qp.last_error()?.expect("it refused")
    );
    Ok(())
}

/// A hundred messages of three packets each, in order.
fn many() -> Result<(), Error> {
    const MESSAGES: usize = 100;
    let (alice, bob) = connected()?;
    let inbox = bob.memory(&[0; 10_000], Access::LOCAL_WRITE)?;
    for id in 0..MESSAGES {
        bob.qp
            .post_recv(&RecvWr::new(id as u64, &[inbox.sge(..)]))?;
    }
    let message = alice.memory(&[7; 10_000], Access::NONE)?;
    for id in 0..MESSAGES {
        alice
            .qp
            .post_send(&SendWr::send(id as u64, &[message.sge(..)]))?;
    }
    let mut received = 0;
    while received < MESSAGES {
        let wc = bob.cq.poll_timeout(PATIENCE)?.expect("messages arrive");
        assert_eq!(wc.ok()?.wr_id, received as u64);
        received += 1;
    }
    println!("{received} messages arrived, each once, in order");
    Ok(())
}

/// Works by luck: the buffer is changed while the adapter may still read it.
fn too_early() -> Result<(), Error> {
    let (alice, bob) = connected()?;
    let inbox = bob.memory(&[0; 32], Access::LOCAL_WRITE)?;
    bob.qp.post_recv(&RecvWr::new(7, &[inbox.sge(..)]))?;
    let message = alice.memory(b"the first message", Access::NONE)?;
    alice
        .qp
        .post_send(&SendWr::send(1, &[message.sge(..)]).signaled())?;
    message.write(0, b"the other message");
    alice.complete("Alice's SEND")?;
    bob.complete("Bob's receive")?;
    println!("Bob reads: {}", text(&inbox));
    Ok(())
}

fn text(mr: &Mr) -> String {
    let mut bytes = vec![0; mr.len()];
    mr.read(0, &mut bytes);
    String::from_utf8_lossy(&bytes)
        .trim_end_matches('\0')
        .to_owned()
}

fn main() -> Result<(), Error> {
    match std::env::args().nth(1).as_deref() {
        Some("send") => send(),
        Some("write") => write(),
        Some("wrong-key") => wrong_key(),
        Some("many") => many(),
        Some("too-early") => too_early(),
        _ => {
            eprintln!("learn: one of send, write, wrong-key, many, too-early");
            std::process::exit(2);
        }
    }
}
