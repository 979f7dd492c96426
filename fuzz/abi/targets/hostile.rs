//! A peer that says and writes whatever it likes to a connection: the body of a fuzz target. The bytes are a script.

use urxe::{Access, ConnectOptions, Cq, Mr, Pd, Qp, RecvWr, Rkey, SendWr, Wc};

use super::{CONTROLS, Connection, Link};
use crate::fuzzing::Script;
use crate::rsocket::settings::Settings;
use crate::rsocket::wire::{CONN_DATA_LEN, ConnData, Message, SGE_LEN, Span};

/// Bytes of the peer's memory: a ring, and lists behind it.
const MEMORY: usize = 16 << 10;
const RING: usize = 8 << 10;
/// The longest piece that either side sends at a time.
const PIECE: usize = 3000;

/// Runs a script: a connection in `ours`, the peer in `theirs`. `deliver` has the network do its work; of a number
/// above 0 it may make what it likes. Panics if the connection does what it must never do. Returns the number of bytes
/// that it read, and that it sent.
pub fn run(ours: &Pd, theirs: &Pd, script: &[u8], deliver: &mut dyn FnMut(u8)) -> (usize, usize) {
    let mut script = Script(script);
    let settings = Settings {
        send_bytes: 4096 + 512 * u32::from(script.byte() % 8),
        recv_bytes: 4096 + 512 * u32::from(script.byte() % 8),
        send_depth: 16,
        recv_depth: 16 + u32::from(script.byte() % 8),
        iomap_size: 2,
        ..Settings::default()
    };
    let connection = Connection::new(ours, &settings).expect("there is room");
    let peer = Peer::new(theirs, connection.qp.endpoint());
    let options = ConnectOptions::default();
    let connected = connection.qp.connect(&peer.qp.endpoint(), &options);
    connected.expect("it is new");
    connection.post_receives().expect("there is room");
    let mut run = Run {
        connection,
        peer,
        read: 0,
        sent: 0,
    };
    let introduction = run.peer.introduction(&mut script);
    if let Some(introduction) = introduction {
        run.connection.meet(introduction);
        while !script.is_over() {
            run.step(&mut script, deliver);
            run.check();
        }
    }
    (run.read, run.sent)
}

/// The other side: a queue pair and memory.
struct Peer {
    qp: Qp,
    cq: Cq,
    memory: Mr,
}

impl Peer {
    fn new(pd: &Pd, remote: urxe::Endpoint) -> Peer {
        let cq = pd.context().create_cq(1000).expect("there is room");
        let qp = pd.qp(&cq).max_send_wr(200).max_recv_wr(200).create();
        let qp = qp.expect("there is room");
        let open = Access(Access::LOCAL_WRITE.0 | Access::REMOTE_WRITE.0);
        let memory = pd.reg_owned(vec![0; MEMORY], open);
        let memory = memory.expect("there is room");
        qp.connect(&remote, &ConnectOptions::default())
            .expect("it is new");
        Peer { qp, cq, memory }
    }

    /// An honest one, or one in which some bytes are others; `None` if no rsocket would read it.
    fn introduction(&self, script: &mut Script<'_>) -> Option<ConnData> {
        let span = |at: usize, length: u32| Span {
            addr: self.memory.addr() + at as u64,
            key: self.memory.rkey().0,
            length,
        };
        let honest = ConnData {
            is_big_endian: false,
            has_iomap: true,
            credits: 16,
            iomap_size: 2,
            target_list: span(RING, 2),
            buffer: span(0, RING as u32 / 2),
        };
        let mut bytes: [u8; CONN_DATA_LEN] = honest.to_bytes();
        for _ in 0..script.byte() % 16 {
            let at = usize::from(script.byte()) % CONN_DATA_LEN;
            bytes[at] = script.byte();
        }
        let read = ConnData::parse(&bytes)?;
        // What it means is what is written.
        assert_eq!(ConnData::parse(&read.to_bytes()), Some(read));
        Some(read)
    }

    /// Bytes to the connection's memory, and a message with them.
    fn write(&self, addr: u64, key: Rkey, len: usize, message: Option<u32>) {
        let sges = [self.memory.sge(..len)];
        let sges = if len == 0 { &sges[..0] } else { &sges };
        let request = match message {
            Some(imm) => SendWr::rdma_write_with_imm(0, sges, addr, key, imm),
            None => SendWr::rdma_write(0, sges, addr, key),
        };
        // When its queue is full or in error, nothing is said.
        let _ = self.qp.post_send(&request);
    }

    fn expect(&self, count: u8) {
        for _ in 0..count {
            let _ = self.qp.post_recv(&RecvWr::new(0, &[]));
        }
    }

    fn poll(&self) {
        let mut wcs = [Wc::default(); 32];
        while self.cq.poll(&mut wcs).is_ok_and(|count| count == wcs.len()) {}
    }
}

struct Run {
    connection: Connection,
    peer: Peer,
    read: usize,
    sent: usize,
}

impl Run {
    fn step(&mut self, script: &mut Script<'_>, deliver: &mut dyn FnMut(u8)) {
        match script.byte() % 12 {
            0 => self.connection.progress(),
            1 => {
                let mut part = vec![0; script.number() % PIECE];
                let is_peek = part.len().is_multiple_of(5);
                let len = self.connection.recv(&mut part, is_peek);
                self.read += if is_peek { 0 } else { len };
            }
            2 => {
                let bytes = vec![7; script.number() % PIECE];
                if self.connection.can_send() {
                    self.sent += self.connection.send(&bytes, PIECE).unwrap_or(0);
                }
            }
            3 => self.say(None, u32::from_be_bytes(script.array())),
            4 => {
                let len = script.number() % PIECE;
                self.say(Some(script.number()), Message::Data(len as u32).to_imm());
            }
            5 => self.tell_credits(script),
            6 => self.scribble(script),
            7 => self.peer.expect(script.byte() % 32),
            8 => {
                self.peer.poll();
                deliver(script.byte());
            }
            9 if self.connection.can_control() && self.connection.link == Link::Up => {
                let bye = [Message::Shutdown, Message::Disconnect][script.number() % 2];
                // It says no when the connection is over.
                let _ = self.connection.send_control(bye);
                self.connection.writes = false;
            }
            10 => self.map(script),
            _ => self.write_mapped(script),
        }
    }

    /// Data into the ring, at any place, and a message.
    fn say(&self, offset: Option<usize>, imm: u32) {
        let ring = &self.connection.recv_ring;
        let len = if offset.is_some() { imm as usize } else { 0 };
        let at = offset.unwrap_or(0) % ring.len();
        let len = len.min(PIECE).min(ring.len() - at);
        self.peer
            .write(ring.addr() + at as u64, ring.rkey(), len, Some(imm));
    }

    /// A part of the ring that is free, or what the peer calls so, and a limit.
    fn tell_credits(&self, script: &mut Script<'_>) {
        let honest = Span {
            addr: self.peer.memory.addr() + (script.number() % RING) as u64,
            key: self.peer.memory.rkey().0,
            length: script.number() as u32 % (RING as u32),
        };
        let mut entry = honest.to_entry(cfg!(target_endian = "big"));
        for _ in 0..script.byte() % 4 {
            entry[usize::from(script.byte()) % SGE_LEN] = script.byte();
        }
        self.peer.memory.write(0, &entry);
        let list = &self.connection.target;
        let at = list.addr() + (SGE_LEN * (script.number() % 2)) as u64;
        let credit = Message::Credit(script.number() as u16).to_imm();
        self.peer.write(at, list.rkey(), SGE_LEN, Some(credit));
    }

    /// Any bytes at any place of the lists.
    fn scribble(&self, script: &mut Script<'_>) {
        let list = &self.connection.target;
        let at = script.number() % list.len();
        let bytes: [u8; 24] = script.array();
        self.peer.memory.write(0, &bytes);
        let len = bytes.len().min(list.len() - at);
        self.peer
            .write(list.addr() + at as u64, list.rkey(), len, None);
    }

    fn map(&mut self, script: &mut Script<'_>) {
        let for_peer = script.byte().is_multiple_of(2);
        let offset = script.number() as u64;
        // A place in memory that stays: the connection does not look at it.
        static MAPPED: [core::sync::atomic::AtomicU64; 16] =
            [const { core::sync::atomic::AtomicU64::new(0) }; 16];
        let place = (
            MAPPED.as_ptr().cast::<u8>().cast_mut(),
            size_of_val(&MAPPED),
        );
        if script.byte().is_multiple_of(3) {
            let _ = self.connection.unmap(place.0.addr(), place.1);
            return;
        }
        // SAFETY: it is never freed, and may be written to.
        let _ = unsafe { self.connection.map(place, for_peer, offset) };
        if self.connection.maps.has_untold() && self.connection.can_send() {
            let _ = self.connection.tell_map();
        }
    }

    /// To where the peer's map says that an offset is.
    fn write_mapped(&mut self, script: &mut Script<'_>) {
        let offset = u64::from_be_bytes(script.array());
        let offset = offset >> (script.byte() % 64);
        let Some((addr, room, key)) = self.connection.find_map(offset) else {
            return;
        };
        assert!(room > 0);
        if self.connection.can_send() {
            let bytes = [9; 100];
            let sent = self.connection.send_direct(&bytes, room, addr, key);
            assert!(sent.is_ok_and(|sent| sent <= room) || self.connection.link != Link::Up);
        }
    }

    /// What holds whatever the peer does.
    fn check(&self) {
        let it = &self.connection;
        let arrived: usize = it.arrived.iter().map(|len| *len as usize).sum();
        assert_eq!(arrived, it.arrived_bytes);
        assert!(it.arrived.iter().all(|len| *len > 0));
        let (send, recv) = (it.sizes.send_bytes as usize, it.sizes.recv_bytes as usize);
        assert!(it.arrived_bytes <= recv && it.recv_at < recv && it.shown_at < recv);
        assert!(it.send_free <= send && it.send_at < send);
        assert!(it.requests_free <= it.sizes.send_depth - CONTROLS);
        assert!(it.controls <= CONTROLS);
        assert!(it.peer_entry < it.peer.target_list.length);
        if it.link == Link::Up {
            let under_way = it.sizes.send_depth - CONTROLS - it.requests_free;
            assert!(
                under_way > 0 || it.send_free == send,
                "bytes that nobody sends"
            );
        }
    }
}
