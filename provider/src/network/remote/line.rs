//! The socket between a program's process and its proxy, and the messages on it.
//!
//! A message is its length (4 bytes, without them), its kind (1 byte), and fields in a fixed order, in little-endian order.
//! Both ends are of the same version: the first message says so.

use core::net::{IpAddr, Ipv6Addr};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::net::UnixStream;

use crate::network::Packet;

/// Nothing that is sent is longer.
const LEN_MAX: usize = 1 << 20;

/// A call that the process answers by itself: what time it is, in the network's nanoseconds.
pub const CLOCK: u32 = 0;
/// A call by which a process sleeps: for so many nanoseconds (the first argument).
pub const SLEEP: u32 = 1;

/// Numbers of what comes back from `Kind::Go`.
pub(super) const STOPPED: u64 = 1;
/// How a [`Pause`] is told.
pub(super) const POLL: u64 = 0;
pub(super) const LOOK: u64 = 1;
pub(super) const POST: u64 = 2;
pub(super) const ARM: u64 = 3;
pub(super) const RETURN: u64 = 4;
pub(super) const MEMORY: u64 = 5;
pub(super) const EVENT: u64 = 6;

/// What a message is about. The first are the program's, and `Value`'s and later ones the simulation's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Kind {
    /// The program's version.
    Hello,
    /// Questions; a `Value` comes back.
    Mtu,
    Random,
    Route,
    Join,
    Grant,
    HasRoom,
    /// Nothing comes back.
    Leave,
    Attach,
    Detached,
    Send,
    /// The program gives its turn up; `Go` or `Result` gives it back.
    Pause,
    Call,
    /// It has done what the simulation asked for meanwhile.
    Done,

    Value,
    Go,
    Result,
    /// What is done to a context while the simulation has the turn; `Done` comes back.
    Receive,
    Unowned,
    OnTime,
    Counters,
}

const KINDS: [Kind; 21] = [
    Kind::Hello,
    Kind::Mtu,
    Kind::Random,
    Kind::Route,
    Kind::Join,
    Kind::Grant,
    Kind::HasRoom,
    Kind::Leave,
    Kind::Attach,
    Kind::Detached,
    Kind::Send,
    Kind::Pause,
    Kind::Call,
    Kind::Done,
    Kind::Value,
    Kind::Go,
    Kind::Result,
    Kind::Receive,
    Kind::Unowned,
    Kind::OnTime,
    Kind::Counters,
];

/// One end.
#[derive(Debug)]
pub(super) struct Line {
    stream: BufReader<UnixStream>,
    /// What leaves with the next flush.
    out: Vec<u8>,
}

impl Line {
    pub(super) fn new(stream: UnixStream) -> Line {
        Line {
            stream: BufReader::new(stream),
            out: Vec::new(),
        }
    }

    /// Appends a message to what is sent before the next is read.
    pub(super) fn put(&mut self, kind: Kind, fields: impl FnOnce(&mut Fields<'_>)) {
        let start = self.out.len();
        self.out.extend([0, 0, 0, 0, kind as u8]);
        fields(&mut Fields(&mut self.out));
        let len = (self.out.len() - start - 4) as u32;
        self.out[start..start + 4].copy_from_slice(&len.to_le_bytes());
    }

    /// Sends what was put.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.stream.get_mut().write_all(&self.out)?;
        self.out.clear();
        Ok(())
    }

    /// Sends what was put, and waits for the other's next message. `None` if there will be none.
    pub(super) fn next(&mut self) -> io::Result<Option<Message>> {
        self.flush()?;
        let mut head = [0; 4];
        match self.stream.read_exact(&mut head) {
            Err(error) if is_end(&error) => return Ok(None),
            read => read?,
        }
        let len = u32::from_le_bytes(head) as usize;
        if !(1..=LEN_MAX).contains(&len) {
            return Err(nonsense());
        }
        let mut bytes = vec![0; len];
        self.stream.read_exact(&mut bytes)?;
        let kind = KINDS.get(usize::from(bytes[0])).ok_or_else(nonsense)?;
        Ok(Some(Message {
            kind: *kind,
            bytes,
            at: 1,
        }))
    }
}

/// The process at the other end is gone, perhaps with something unread.
fn is_end(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset
    )
}

/// What the other end sent is no message.
pub(super) fn nonsense() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "the other end does not keep to the protocol",
    )
}

/// The fields of a message that is being made.
pub(super) struct Fields<'a>(&'a mut Vec<u8>);

impl Fields<'_> {
    pub(super) fn number(&mut self, value: u64) {
        self.0.extend(value.to_le_bytes());
    }

    /// 0 is none, and others are one more than they are.
    pub(super) fn option(&mut self, value: Option<u64>) {
        self.number(value.map_or(0, |value| value.saturating_add(1)));
    }

    pub(super) fn addr(&mut self, addr: IpAddr) {
        let addr = match addr {
            IpAddr::V4(addr) => addr.to_ipv6_mapped(),
            IpAddr::V6(addr) => addr,
        };
        self.0.extend(addr.octets());
    }

    /// So many bytes, with their number before them.
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend(bytes);
    }

    pub(super) fn packet(&mut self, packet: &Packet<'_>) {
        self.addr(packet.source);
        self.addr(packet.dest);
        self.number(u64::from(packet.source_port) << 8 | u64::from(packet.tos));
        self.bytes(packet.bytes);
    }

    pub(super) fn counters(&mut self, counters: &[(&'static str, u64)]) {
        self.number(counters.len() as u64);
        for (name, count) in counters {
            self.bytes(name.as_bytes());
            self.number(*count);
        }
    }
}

/// A message that came, read field by field.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) kind: Kind,
    bytes: Vec<u8>,
    at: usize,
}

impl Message {
    fn take(&mut self, len: usize) -> io::Result<&[u8]> {
        let end = self.at.checked_add(len).ok_or_else(nonsense)?;
        let taken = self.bytes.get(self.at..end).ok_or_else(nonsense)?;
        self.at = end;
        Ok(taken)
    }

    pub(super) fn number(&mut self) -> io::Result<u64> {
        let bytes = self.take(8)?.try_into().map_err(|_| nonsense())?;
        Ok(u64::from_le_bytes(bytes))
    }

    pub(super) fn option(&mut self) -> io::Result<Option<u64>> {
        Ok(self.number()?.checked_sub(1))
    }

    pub(super) fn addr(&mut self) -> io::Result<IpAddr> {
        let octets: [u8; 16] = self.take(16)?.try_into().map_err(|_| nonsense())?;
        Ok(IpAddr::V6(Ipv6Addr::from(octets)).to_canonical())
    }

    pub(super) fn bytes(&mut self) -> io::Result<&[u8]> {
        let len = usize::try_from(self.number()?).map_err(|_| nonsense())?;
        self.take(len)
    }

    pub(super) fn packet(&mut self) -> io::Result<Packet<'_>> {
        let (source, dest) = (self.addr()?, self.addr()?);
        let port_tos = self.number()?;
        Ok(Packet {
            source,
            source_port: (port_tos >> 8) as u16,
            dest,
            tos: port_tos as u8,
            bytes: self.bytes()?,
        })
    }

    /// Names of counters, and what was counted.
    pub(super) fn counters(&mut self) -> io::Result<Vec<(String, u64)>> {
        (0..self.number()?)
            .map(|_| {
                let name = String::from_utf8(self.bytes()?.to_vec()).map_err(|_| nonsense())?;
                Ok((name, self.number()?))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Line, Line) {
        let (a, b) = UnixStream::pair().expect("a pair of sockets");
        (Line::new(a), Line::new(b))
    }

    #[test]
    fn kinds_have_the_numbers_of_their_places() {
        for (place, kind) in KINDS.into_iter().enumerate() {
            assert_eq!(kind as usize, place, "{kind:?}");
        }
    }

    #[test]
    fn a_message_comes_as_it_was_put() {
        let (mut a, mut b) = pair();
        let packet = Packet {
            source: "10.0.0.1".parse().expect("an address"),
            source_port: 0xc123,
            dest: "fd00::2".parse().expect("an address"),
            tos: 0x62,
            bytes: b"bytes",
        };
        a.put(Kind::Send, |to| {
            to.packet(&packet);
            to.option(None);
            to.option(Some(7));
        });
        a.put(Kind::Random, |_| ());
        a.flush().expect("it goes out");
        let mut sent = b.next().expect("reads").expect("it came");
        assert_eq!(sent.kind, Kind::Send);
        assert_eq!(sent.packet().expect("a packet"), packet);
        assert_eq!(sent.option().expect("a number"), None);
        assert_eq!(sent.option().expect("a number"), Some(7));
        assert!(sent.number().is_err(), "there is no more");
        let next = b.next().expect("reads").expect("it came");
        assert_eq!(next.kind, Kind::Random);
        drop(a);
        assert!(b.next().expect("reads").is_none());
    }

    #[test]
    fn nonsense_is_no_message() {
        for bytes in [
            &[0, 0, 0, 0][..],
            &[255, 255, 255, 255, 0],
            &[1, 0, 0, 0, 200],
            &[9, 0, 0, 0, 1],
        ] {
            let (mut raw, ours) = UnixStream::pair().expect("a pair of sockets");
            raw.write_all(bytes).expect("it goes out");
            drop(raw);
            assert!(Line::new(ours).next().is_err(), "{bytes:?}");
        }
    }
}
