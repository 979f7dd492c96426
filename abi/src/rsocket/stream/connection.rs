//! A connection: rings, credits and messages, without waiting.

#[cfg(feature = "fuzzing")]
#[path = "../../../../fuzz/abi/targets/hostile.rs"]
pub(crate) mod hostile;

use std::collections::VecDeque;

use urxe::{Access, CompChannel, Cq, Fault, Mr, Pd, Qp, RecvWr, SendWr, Sge, Wc, WcStatus};

use super::super::settings::{SEND_LOW, Settings};
use super::super::wire::{ConnData, IOMAP_LEN, Message, SGE_LEN, Span, TARGETS};
use super::iomap::Maps;
use crate::errno::Errno;

/// Messages about credits and the end that may be under way: they need no credit, so they are few.
const CONTROLS: u32 = 4;
/// What a send request was for, in its number; the low 32 bits are its bytes in the send ring.
const CREDIT: u64 = 1 << 32;
const CONTROL: u64 = 2 << 32;
const RECV: u64 = 1 << 63;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum Link {
    Up,
    /// One side has ended it.
    Down,
    /// Something failed.
    Broken(Errno),
}

/// The state of the data phase.
pub(in super::super) struct Connection {
    pub(super) qp: Qp,
    pub(super) cq: Cq,
    pub(super) events: CompChannel,
    sizes: Settings,
    pub(super) link: Link,
    /// This side reads, and writes.
    pub(super) reads: bool,
    pub(super) writes: bool,
    /// An event was asked for and did not come.
    pub(super) is_armed: bool,
    /// Messages that came, and the end; how often there was no room to send. They only grow: to compare,
    /// and see that something happened.
    pub(super) news: u32,
    pub(super) stalls: u32,

    /// Our data on its way, a ring; behind it room for control messages.
    send_ring: Mr,
    send_at: usize,
    send_free: usize,
    requests_free: u32,
    controls: u32,
    controls_sent: usize,
    /// Messages sent, and how many we may send.
    sent: u16,
    limit: u16,
    /// The parts of the peer's ring that are free, which it writes here; then the peer's map.
    pub(super) target: Mr,
    target_at: usize,

    /// The peer's data, a ring of two halves.
    recv_ring: Mr,
    recv_at: usize,
    /// Messages that arrived, by their bytes, and their sum.
    arrived: VecDeque<u32>,
    arrived_bytes: usize,
    /// Bytes that were read, from `shown_at` on, and that the peer does not know to be free.
    freed: usize,
    shown_at: usize,
    /// Messages that were read; at how many the peer is to be told.
    taken: u16,
    tell_at: u16,
    pub(super) peer: ConnData,
    peer_entry: u32,
    pub(super) maps: Maps,
}

impl Connection {
    /// Everything that a connection needs, before it is made. Receives are posted.
    pub(super) fn new(pd: &Pd, wanted: &Settings) -> Result<Connection, Errno> {
        let sizes = wanted.bounded();
        let context = pd.context();
        let events = context.create_comp_channel()?;
        let depth = sizes.send_depth + sizes.recv_depth;
        let cq = context.cq(depth as usize).channel(&events).create()?;
        let qp = pd
            .qp(&cq)
            .max_send_wr(sizes.send_depth)
            .max_recv_wr(sizes.recv_depth)
            .max_sge(2)
            .signal_all()
            .create()?;
        let memory = |len: usize, access| pd.reg_owned(vec![0; len], access);
        let open = Access(Access::LOCAL_WRITE.0 | Access::REMOTE_WRITE.0);
        let (send_bytes, recv_bytes) = (sizes.send_bytes as usize, sizes.recv_bytes as usize);
        let table = TARGETS * SGE_LEN + usize::from(sizes.iomap_size) * IOMAP_LEN;
        Ok(Connection {
            send_ring: memory(
                send_bytes + CONTROLS as usize * SGE_LEN,
                Access::LOCAL_WRITE,
            )?,
            recv_ring: memory(recv_bytes, open)?,
            target: memory(table, open)?,
            qp,
            cq,
            events,
            link: Link::Up,
            reads: true,
            writes: true,
            is_armed: false,
            news: 0,
            stalls: 0,
            send_at: 0,
            send_free: send_bytes,
            requests_free: sizes.send_depth - CONTROLS,
            controls: 0,
            controls_sent: 0,
            sent: 0,
            limit: 0,
            target_at: 0,
            recv_at: 0,
            arrived: VecDeque::new(),
            arrived_bytes: 0,
            // The peer learns of the first half as it connects.
            freed: recv_bytes / 2,
            shown_at: recv_bytes / 2,
            taken: 0,
            tell_at: (sizes.recv_depth / 2) as u16,
            peer: ConnData::default(),
            peer_entry: 0,
            maps: Maps::default(),
            sizes,
        })
    }

    /// Posts the receives. The QP has to be in INIT at least.
    pub(super) fn post_receives(&self) -> Result<(), Errno> {
        self.post(self.sizes.recv_depth)
    }

    fn post(&self, count: u32) -> Result<(), Errno> {
        let receives = (0..count).map(|_| RecvWr::new(RECV, &[]));
        let posted = self.qp.post_recv_iter(receives);
        posted.map_err(|bad| Errno::from(bad.error))
    }

    /// What the peer is told when the connection is made.
    pub(super) fn introduction(&self) -> ConnData {
        ConnData {
            is_big_endian: cfg!(target_endian = "big"),
            has_iomap: true,
            credits: self.sizes.recv_depth as u16,
            iomap_size: self.sizes.iomap_size,
            target_list: Span {
                addr: self.target.addr(),
                key: self.target.rkey().0,
                length: TARGETS as u32,
            },
            buffer: Span {
                addr: self.recv_ring.addr(),
                key: self.recv_ring.rkey().0,
                length: self.sizes.recv_bytes / 2,
            },
        }
    }

    /// Takes the peer's private data: where its rings are.
    pub(super) fn meet(&mut self, peer: ConnData) {
        self.peer = peer;
        self.limit = peer.credits;
        // The first entry of its list it got from us as we introduced ourselves.
        self.peer_entry = 1 % peer.target_list.length;
        self.store_target(peer.buffer);
        self.maps.size(peer.iomap_size);
    }

    fn target_span(&self) -> Span {
        let at = self.target_at * SGE_LEN;
        // The second word has the length and is written last: when it is there, all is.
        let second = self.target.load_u64(at + 8);
        Span::from_words(self.target.load_u64(at), second)
    }

    fn store_target(&self, span: Span) {
        let at = self.target_at * SGE_LEN;
        self.target.store_u64(at, span.addr);
        self.target.store_u64(at + 8, span.second_word());
    }

    /// Room in both rings, a request and a credit.
    pub(super) fn can_send(&self) -> bool {
        self.has_request() && self.sent != self.limit && self.target_span().length != 0
    }

    fn has_request(&self) -> bool {
        self.link == Link::Up && self.requests_free > 0 && self.send_free >= SEND_LOW as usize
    }

    pub(super) fn has_data(&self) -> bool {
        !self.arrived.is_empty()
    }

    /// Nothing of ours is under way any more, or it never will arrive.
    pub(super) fn is_idle(&self) -> bool {
        let all = !self.has_data_under_way() && self.controls == 0;
        all || self.link != Link::Up
    }

    fn has_data_under_way(&self) -> bool {
        self.requests_free < self.sizes.send_depth - CONTROLS
    }

    pub(super) fn can_control(&self) -> bool {
        self.controls < CONTROLS || self.link != Link::Up
    }

    /// Sends at most `most` of the bytes; how many. [`Connection::can_send`] has to hold.
    pub(super) fn send(&mut self, bytes: &[u8], most: usize) -> Result<usize, Errno> {
        let target = self.target_span();
        let len = bytes
            .len()
            .min(most)
            .min(self.send_free)
            .min(target.length as usize);
        let message = Message::Data(len as u32);
        self.sent = self.sent.wrapping_add(1);
        // Before it is sent: the peer may write the entry anew as soon as it has the data.
        // Addresses are the peer's, which may name any: what it has no memory at, it refuses.
        self.store_target(Span {
            addr: target.addr.wrapping_add(len as u64),
            length: target.length - len as u32,
            ..target
        });
        if target.length as usize == len {
            self.target_at = (self.target_at + 1) % TARGETS;
        }
        self.write(&bytes[..len], target.addr, target.key, Some(message))?;
        Ok(len)
    }

    /// A message beside the data that takes a credit: an entry of the peer's map.
    pub(super) fn send_entry(&mut self, index: u32, entry: &[u8; IOMAP_LEN]) -> Result<(), Errno> {
        let list = self.peer.target_list;
        let before = u64::from(list.length) * SGE_LEN as u64 + u64::from(index) * IOMAP_LEN as u64;
        let addr = list.addr.wrapping_add(before);
        self.sent = self.sent.wrapping_add(1);
        self.write(entry, addr, list.key, Some(Message::Iomap(index)))
    }

    /// Bytes straight to where the program wants them; how many. No message tells of them.
    pub(super) fn send_direct(
        &mut self,
        bytes: &[u8],
        most: usize,
        addr: u64,
        key: u32,
    ) -> Result<usize, Errno> {
        let len = bytes.len().min(most).min(self.send_free);
        self.write(&bytes[..len], addr, key, None)?;
        Ok(len)
    }

    /// Copies into the ring, and posts.
    fn write(
        &mut self,
        bytes: &[u8],
        addr: u64,
        key: u32,
        message: Option<Message>,
    ) -> Result<(), Errno> {
        let size = self.sizes.send_bytes as usize;
        let (start, len) = (self.send_at, bytes.len());
        let first = len.min(size - start);
        self.send_ring.write(start, &bytes[..first]);
        let mut sges = [self.send_ring.sge(start..start + first); 2];
        let mut count = 1;
        if first < len {
            self.send_ring.write(0, &bytes[first..]);
            sges[1] = self.send_ring.sge(0..len - first);
            count = 2;
        }
        self.send_at = (start + len) % size;
        self.send_free -= len;
        self.requests_free -= 1;
        self.post_write(len as u64, &sges[..count], addr, key, message)
    }

    fn post_write(
        &mut self,
        number: u64,
        sges: &[Sge],
        addr: u64,
        key: u32,
        message: Option<Message>,
    ) -> Result<(), Errno> {
        let key = urxe::Rkey(key);
        let request = match message {
            Some(message) => SendWr::rdma_write_with_imm(number, sges, addr, key, message.to_imm()),
            None => SendWr::rdma_write(number, sges, addr, key),
        };
        if self.qp.post_send(&request).is_err() {
            // The QP is in the error state: the connection is over.
            self.fail(Link::Down);
            return Err(Errno(libc::ECONNRESET));
        }
        Ok(())
    }

    /// The end of what this side sends, or of all; or a sign of life. [`Connection::can_control`] has to hold.
    pub(super) fn send_control(&mut self, message: Message) -> Result<(), Errno> {
        self.controls += 1;
        self.controls_sent += 1;
        let number = match message {
            Message::Disconnect => CONTROL | 1,
            _ => CONTROL,
        };
        self.post_write(number, &[], 0, 0, Some(message))
    }

    fn fail(&mut self, link: Link) {
        if self.link == Link::Up {
            self.link = link;
            self.news = self.news.wrapping_add(1);
        }
    }

    /// Tells the peer what it may send, once that is worth a message.
    fn give_credits(&mut self) {
        let half = self.sizes.recv_bytes as usize / 2;
        let has_room = self.freed >= half;
        let is_due = self.taken.wrapping_sub(self.tell_at).cast_signed() >= 0;
        if self.link != Link::Up || self.controls >= CONTROLS || !(has_room || is_due) {
            return;
        }
        let depth = self.sizes.recv_depth as u16;
        self.tell_at = self.taken.wrapping_add(depth / 2);
        let message = Some(Message::Credit(self.taken.wrapping_add(depth)));
        let slot = self.controls_sent % CONTROLS as usize;
        self.controls += 1;
        self.controls_sent += 1;
        if !has_room {
            // What failed is seen in `link`.
            let _ = self.post_write(CREDIT, &[], 0, 0, message);
            return;
        }
        let entry = Span {
            addr: self.recv_ring.addr() + self.shown_at as u64,
            key: self.recv_ring.rkey().0,
            length: half as u32,
        };
        let at = self.sizes.send_bytes as usize + slot * SGE_LEN;
        let entry = entry.to_entry(self.peer.is_big_endian);
        self.send_ring.write(at, &entry);
        let sges = [self.send_ring.sge(at..at + SGE_LEN)];
        let list = self.peer.target_list;
        let addr = list
            .addr
            .wrapping_add(u64::from(self.peer_entry) * SGE_LEN as u64);
        self.freed -= half;
        self.shown_at = (self.shown_at + half) % (2 * half);
        self.peer_entry = (self.peer_entry + 1) % list.length;
        let _ = self.post_write(CREDIT, &sges, addr, list.key, message);
    }

    /// Takes what is complete, and sees to credits.
    pub(super) fn progress(&mut self) {
        self.give_credits();
        let mut wcs = [Wc::default(); 32];
        loop {
            let Ok(count) = self.cq.poll(&mut wcs) else {
                return self.fail(Link::Broken(Errno(libc::EIO)));
            };
            let mut received = 0;
            for wc in &wcs[..count] {
                if wc.wr_id & RECV != 0 {
                    received += u32::from(wc.is_success());
                    self.received(wc);
                } else {
                    self.completed(wc);
                }
            }
            if received > 0 && self.link == Link::Up && self.post(received).is_err() {
                self.fail(Link::Down);
            }
            if count < wcs.len() {
                break;
            }
        }
        self.give_credits();
    }

    fn completed(&mut self, wc: &Wc) {
        let has_lost_data = self.has_data_under_way();
        let bytes = wc.wr_id as u32 as usize;
        match wc.wr_id & !u64::from(u32::MAX) {
            CREDIT => self.controls -= 1,
            CONTROL => {
                self.controls -= 1;
                if bytes != 0 {
                    self.fail(Link::Down);
                }
            }
            _ => {
                self.requests_free += 1;
                self.send_free += bytes;
            }
        }
        match wc.status {
            WcStatus::Success => {}
            WcStatus::WrFlushErr => self.fail(Link::Down),
            // Its process was killed. Credits that it did not take are no loss: the program has what it would read after an end.
            _ if wc.fault() == Fault::PeerGone && !has_lost_data => self.fail(Link::Down),
            _ if wc.fault() == Fault::PeerGone => {
                self.fail(Link::Broken(Errno(libc::ECONNRESET)));
            }
            WcStatus::RetryExcErr => self.fail(Link::Broken(Errno(libc::ETIMEDOUT))),
            _ => self.fail(Link::Broken(Errno(libc::EIO))),
        }
    }

    fn received(&mut self, wc: &Wc) {
        if !wc.is_success() {
            // The connection manager ended the connection, or the QP failed.
            return self.fail(Link::Down);
        }
        self.news = self.news.wrapping_add(1);
        match wc.imm_data.and_then(Message::from_imm) {
            Some(Message::Data(0)) => self.taken = self.taken.wrapping_add(1),
            Some(Message::Data(len)) => {
                let arrived = self.arrived_bytes + len as usize;
                if arrived > self.sizes.recv_bytes as usize {
                    // More than it was shown room for.
                    return self.fail(Link::Broken(Errno(libc::EPROTO)));
                }
                self.arrived_bytes = arrived;
                self.arrived.push_back(len);
            }
            Some(Message::Credit(limit)) => self.limit = limit,
            Some(Message::Iomap(_)) => self.taken = self.taken.wrapping_add(1),
            Some(Message::Disconnect) => self.fail(Link::Down),
            Some(Message::Shutdown) if self.writes => self.reads = false,
            Some(Message::Shutdown) => self.fail(Link::Down),
            Some(Message::KeepAlive) | None => {}
        }
    }

    /// Reads what has arrived, up to the length of `out`; how much. With `peek` it stays.
    pub(super) fn recv(&mut self, out: &mut [u8], peek: bool) -> usize {
        if peek {
            return self.copy_out(out);
        }
        let copied = self.copy_out(out);
        let mut left = copied;
        while let Some(first) = self.arrived.front_mut() {
            if (*first as usize) > left {
                *first -= left as u32;
                break;
            }
            left -= *first as usize;
            self.arrived.pop_front();
            self.taken = self.taken.wrapping_add(1);
        }
        self.arrived_bytes -= copied;
        self.freed += copied;
        self.recv_at = (self.recv_at + copied) % self.sizes.recv_bytes as usize;
        copied
    }

    fn copy_out(&self, out: &mut [u8]) -> usize {
        let len = out.len().min(self.arrived_bytes);
        let first = len.min(self.sizes.recv_bytes as usize - self.recv_at);
        let (begin, rest) = out[..len].split_at_mut(first);
        self.recv_ring.read(self.recv_at, begin);
        if !rest.is_empty() {
            self.recv_ring.read(0, rest);
        }
        len
    }

    /// Asks for an event at the next completion.
    pub(super) fn arm(&mut self) -> Result<(), Errno> {
        if !self.is_armed {
            self.cq.req_notify(false)?;
            self.is_armed = true;
        }
        Ok(())
    }
}
