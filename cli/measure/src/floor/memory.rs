//! The floor of packets that go through memory: the same messages, copied into a ring that two processes share and out of
//! it again. No packets are made, and nothing is checked.
//!
//! Each side makes the ring that it writes, and tells the other by a datagram where the system shows it.

use std::fs::File;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use urxe_ring::{Consumer, Mark, Pop, Producer, Push};

use super::{FloorBandwidth, FloorConfig, FloorLatency, SILENCE_MAX, Wait, failed, look_until};
use crate::error::CliError;

/// Bytes of a record: as many as urxe puts into one.
const RECORD_LEN: usize = 16 << 10;
/// A short message takes as much with its headers.
const MESSAGE_MIN: usize = 48;
/// Bytes between two looks at the clock.
const STRETCH_LEN: usize = 64 << 10;

const MARK: Mark = Mark {
    kind: 0,
    tag: 0,
    size: 0,
};

/// One side: the ring that it writes, and the one that it reads.
pub(crate) struct Ends {
    producer: Producer,
    consumer: Consumer,
    /// Datagrams wake the other side.
    socket: UdpSocket,
    wait: Wait,
    outbox: Vec<u8>,
    inbox: Vec<u8>,
    /// The other side opens it by the way that it was told.
    _memory: OwnedFd,
}

impl Ends {
    /// Of the side that knows the other's address.
    pub(crate) fn at_sender(config: &FloorConfig, to: SocketAddr) -> Result<Ends, CliError> {
        let make = || {
            let socket = UdpSocket::bind((config.sender, 0))?;
            socket.connect(to)?;
            let (producer, memory) = Producer::create()?;
            socket.send(place_of(&memory).as_bytes())?;
            let consumer = open_told(&socket)?;
            Ends::new(config, socket, (producer, memory), consumer)
        };
        make().map_err(failed)
    }

    /// Of the other: its socket is known.
    pub(crate) fn at_receiver(config: &FloorConfig, socket: UdpSocket) -> Result<Ends, CliError> {
        let make = || {
            let (_, from) = socket.peek_from(&mut [])?;
            socket.connect(from)?;
            let consumer = open_told(&socket)?;
            let (producer, memory) = Producer::create()?;
            socket.send(place_of(&memory).as_bytes())?;
            Ends::new(config, socket, (producer, memory), consumer)
        };
        make().map_err(failed)
    }

    #[cfg(test)]
    pub(crate) fn received_what_was_sent(&self) -> bool {
        self.inbox == self.outbox
    }

    fn new(
        config: &FloorConfig,
        socket: UdpSocket,
        (producer, memory): (Producer, OwnedFd),
        consumer: Consumer,
    ) -> io::Result<Ends> {
        socket.set_nonblocking(true)?;
        let len = config.message.max(MESSAGE_MIN);
        Ok(Ends {
            producer,
            consumer,
            socket,
            wait: config.wait,
            outbox: (0..len).map(|k| ((k * 31) >> 3) as u8).collect(),
            // Written, not merely asked for: the first pass shall not pay for page faults.
            inbox: vec![1; len],
            _memory: memory,
        })
    }

    /// Copies a message into the ring, waiting for room where there is none.
    #[inline]
    pub(crate) fn send(&mut self) -> Result<(), CliError> {
        for record in self.outbox.chunks(RECORD_LEN) {
            match self.producer.push(MARK, record) {
                Push::Done => {}
                Push::Full => until(&mut self.producer, |producer| {
                    Ok(producer.push(MARK, record) == Push::Done)
                })?,
                Push::Closed => return Err(failed("the receiver is gone")),
            }
            if self.wait == Wait::Block && self.producer.must_wake() {
                self.socket.send(&[0]).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Copies the next message out; false when the other side is gone, or silent.
    #[inline]
    pub(crate) fn receive(&mut self) -> Result<bool, CliError> {
        let Ends {
            consumer,
            inbox,
            socket,
            wait,
            ..
        } = self;
        let mut at = 0;
        while at < inbox.len() {
            let mut is_over = false;
            let look = |consumer: &mut Consumer| {
                match consumer.pop(&mut inbox[at..]) {
                    Pop::Record { len, .. } => at += len,
                    Pop::Closed => is_over = true,
                    Pop::Broken => return Err(failed("the ring is broken")),
                    Pop::Empty => {
                        // The sender's clock stops when it hears of the last.
                        consumer.release();
                        return Ok(false);
                    }
                }
                Ok(true)
            };
            let sleep = |consumer: &mut Consumer, left| sleep(consumer, socket, *wait, left);
            if !look_until(consumer, (*wait, SILENCE_MAX), look, sleep)? || is_over {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Sends for so long, and returns the number of messages when all were taken.
    fn stream(&mut self, duration: Duration) -> Result<u64, CliError> {
        let stretch = (STRETCH_LEN / self.outbox.len()).max(1) as u64;
        let start = Instant::now();
        let mut sent = 0;
        while start.elapsed() < duration {
            for _ in 0..stretch {
                self.send()?;
            }
            sent += stretch;
        }
        until(&mut self.producer, |producer| Ok(producer.is_drained()))?;
        Ok(sent)
    }
}

/// The sending side of a stream.
pub(crate) fn send(config: &FloorConfig, to: SocketAddr) -> Result<FloorBandwidth, CliError> {
    let mut ends = Ends::at_sender(config, to)?;
    ends.stream(config.duration / 4)?;
    let start = Instant::now();
    let messages = ends.stream(config.duration)? as f64;
    Ok(FloorBandwidth::new(
        config,
        messages / start.elapsed().as_secs_f64(),
    ))
}

/// The receiving side of it, until the sender is gone.
pub(crate) fn receive(config: &FloorConfig, socket: UdpSocket) -> Result<(), CliError> {
    let mut ends = Ends::at_receiver(config, socket)?;
    while ends.receive()? {}
    Ok(())
}

/// The side of a ping-pong that measures.
pub(crate) fn ping(config: &FloorConfig, to: SocketAddr) -> Result<FloorLatency, CliError> {
    let mut ends = Ends::at_sender(config, to)?;
    FloorLatency::measure(config, || {
        ends.send()?;
        if ends.receive()? {
            return Ok(());
        }
        Err(failed("the receiver is gone"))
    })
}

/// The side that answers, until the other is gone.
pub(crate) fn pong(config: &FloorConfig, socket: UdpSocket) -> Result<(), CliError> {
    let mut ends = Ends::at_receiver(config, socket)?;
    while ends.receive()? {
        ends.send()?;
    }
    Ok(())
}

/// Where another process of the user finds memory of this one.
fn place_of(memory: &OwnedFd) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), memory.as_raw_fd())
}

/// Opens the ring that the other side tells of.
fn open_told(socket: &UdpSocket) -> io::Result<Consumer> {
    socket.set_read_timeout(Some(SILENCE_MAX))?;
    let mut place = [0; 64];
    let len = socket.recv(&mut place)?;
    let place = str::from_utf8(&place[..len]).map_err(io::Error::other)?;
    let file = File::options().read(true).write(true).open(place)?;
    Consumer::open(file.into())
}

/// Waits until the other side has read enough.
fn until(
    producer: &mut Producer,
    look: impl FnMut(&mut Producer) -> Result<bool, CliError>,
) -> Result<(), CliError> {
    let rest = |_: &mut Producer, _| {
        std::thread::yield_now();
        Ok(())
    };
    if look_until(producer, (Wait::Spin, SILENCE_MAX), look, rest)? {
        return Ok(());
    }
    Err(failed("the receiver reads nothing"))
}

/// What a receiver does that has found nothing: without wake-ups it lets others have the CPU.
fn sleep(
    consumer: &mut Consumer,
    socket: &UdpSocket,
    wait: Wait,
    limit: Duration,
) -> Result<(), CliError> {
    if wait == Wait::Spin {
        std::thread::yield_now();
    } else if consumer.doze() {
        urxe_udp::wait(&[socket.as_fd()], Some(limit)).map_err(failed)?;
        while socket.recv(&mut [0; 8]).is_ok() {}
        consumer.rouse();
    }
    Ok(())
}
