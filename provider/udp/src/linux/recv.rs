//! Receiving: from system calls to datagrams.
//!
//! Why it is done this way, measured on Linux 6.18, loopback, two cores
//! (`examples/recv_choice.rs`, medians of 5):
//!
//! | slots | 1 | 2 | 4 | 8 | 16 | 32 |
//! |---|---|---|---|---|---|---|
//! | 40 B, trains of 64, Mpkt/s | 33.9 | 34.3 | 35.2 | 35.4 | 34.9 | 34.6 |
//! | 4128 B, trains of 15, Mpkt/s | 1.95 | 1.98 | 1.96 | 2.01 | 2.00 | 1.97 |
//! | 40 B singly, ns to receive one | 356 | 332 | 305 | 289 | 282 | 278 |
//! | 1056 B singly, ns to receive one | 381 | 355 | 328 | 316 | 311 | 308 |
//!
//! Trains that the kernel joined do not care: a train is a system call's worth of work.
//! Lone packets gain a fifth from `recvmmsg` with 8 slots, and from more of them almost
//! nothing. A ping-pong must not prepare 8 slots to receive one packet, so `recvmmsg`
//! waits for the third datagram since the socket was last empty. Half a round trip is
//! then 1.76 us with any number of slots; the same with `UDP_GRO` always on is 1.98.

use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::sync::atomic::Ordering::Relaxed;

use libc::{iovec, mmsghdr, msghdr};

use super::cmsg::RecvControl;
use super::{UdpSocket, sys};
use crate::Dest;
use crate::recv::{Meta, RecvBatch};

/// Datagrams since the socket was last found empty, from which on several are asked for
/// at once. A ping-pong stays below and is spared the preparation of many slots.
const MANY_FROM: u32 = 2;
/// Datagrams since the socket was last found empty that are a burst: time to have the
/// kernel join packets. A first run of 16 packets or more arrives as that many datagrams.
const BURST: u32 = 16;

/// What a [`RecvBatch`] keeps for this backend.
pub(crate) struct RecvState {
    controls: Box<[RecvControl]>,
    /// Datagrams since the socket was last found empty.
    in_a_row: u32,
}

impl RecvState {
    pub(crate) fn new(slots: usize) -> RecvState {
        RecvState {
            controls: vec![RecvControl::new(); slots].into(),
            in_a_row: 0,
        }
    }
}

impl fmt::Debug for RecvState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvState")
            .field("in_a_row", &self.in_a_row)
            .finish_non_exhaustive()
    }
}

impl UdpSocket {
    /// Receives what is there, without waiting, into `batch` (its former contents are
    /// forgotten); returns the number of datagrams, 0 if there is nothing.
    ///
    /// It may leave datagrams in the socket: call it until it returns 0, or wait on the
    /// socket, which stays readable.
    ///
    /// # Errors
    /// Errors that the kernel has noted on the socket. Each is reported once; the socket
    /// and the datagrams in it are none the worse.
    pub fn recv(&self, batch: &mut RecvBatch) -> io::Result<usize> {
        batch.filled = 0;
        let result = loop {
            let result = if batch.linux.in_a_row >= MANY_FROM && batch.slots() > 1 {
                self.recv_many(batch)
            } else {
                self.recv_one(batch).map(|()| 1)
            };
            match result {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        match result {
            Ok(count) => {
                batch.filled = count;
                batch.linux.in_a_row = batch.linux.in_a_row.saturating_add(count as u32);
                if batch.linux.in_a_row >= BURST {
                    self.join_packets();
                }
                Ok(count)
            }
            Err(error) => {
                batch.linux.in_a_row = 0;
                if error.kind() == io::ErrorKind::WouldBlock {
                    Ok(0)
                } else {
                    Err(error)
                }
            }
        }
    }

    #[inline]
    fn recv_one(&self, batch: &mut RecvBatch) -> io::Result<()> {
        if self.plain.load(Relaxed) {
            return self.recv_plain(batch);
        }
        let (meta, control) = (&mut batch.meta[0], &mut batch.linux.controls[0]);
        let slot = &mut batch.buffers[..batch.slot_len];
        let mut slice = iovec {
            iov_base: slot.as_mut_ptr().cast(),
            iov_len: slot.len(),
        };
        let mut header = empty_message(&mut meta.source, &mut slice, control);
        // SAFETY: `header` points to `meta.source`, `slice` and `control`, and `slice` to
        // the first slot: all are writable and outlive the call.
        let len = unsafe { sys::recv_msg(self.as_fd(), &mut header) }?;
        self.note(meta, control, &header, len);
        Ok(())
    }

    /// One datagram about which there is nothing to be told but its source. Without
    /// control messages the kernel has less to read and to write: on loopback some 40 ns
    /// of an empty look, and 80 of a packet.
    #[inline]
    fn recv_plain(&self, batch: &mut RecvBatch) -> io::Result<()> {
        let meta = &mut batch.meta[0];
        let slot = &mut batch.buffers[..batch.slot_len];
        let len = sys::recv_from(self.as_fd(), slot, &mut meta.source)?;
        meta.truncated = len > slot.len();
        let len = len.min(slot.len());
        meta.set_len(len, len as u32);
        meta.dst_ip = self.only_ip;
        meta.tos = 0;
        Ok(())
    }

    // Out of line: its stack shall not burden the path of one packet.
    #[inline(never)]
    fn recv_many(&self, batch: &mut RecvBatch) -> io::Result<usize> {
        let mut slices = [const { MaybeUninit::<iovec>::uninit() }; RecvBatch::SLOTS_MAX];
        let mut headers = [const { MaybeUninit::<mmsghdr>::uninit() }; RecvBatch::SLOTS_MAX];
        let slots = batch.meta.len();
        let each = batch.buffers.chunks_exact_mut(batch.slot_len);
        let each = each.zip(&mut batch.meta).zip(&mut batch.linux.controls);
        for (index, ((slot, meta), control)) in each.enumerate() {
            let slice = iovec {
                iov_base: slot.as_mut_ptr().cast(),
                iov_len: slot.len(),
            };
            let msg_hdr = empty_message(&mut meta.source, slices[index].write(slice), control);
            headers[index].write(mmsghdr {
                msg_hdr,
                msg_len: 0,
            });
        }
        // SAFETY: the first `slots` headers were written just above, one for each slot.
        let headers: &mut [mmsghdr] =
            unsafe { std::slice::from_raw_parts_mut(headers.as_mut_ptr().cast(), slots) };
        // SAFETY: header k points to the source, control messages and buffer of slot k
        // (through `slices[k]`): all are writable, disjoint, and outlive the call.
        let count = unsafe { sys::recv_mmsg(self.as_fd(), headers) }?;
        let each = batch
            .meta
            .iter_mut()
            .zip(&batch.linux.controls)
            .zip(&*headers);
        for ((meta, control), header) in each.take(count) {
            self.note(meta, control, &header.msg_hdr, header.msg_len as usize);
        }
        Ok(count)
    }

    /// Completes the description of a datagram from what the kernel wrote.
    #[inline]
    fn note(&self, meta: &mut Meta, control: &RecvControl, header: &msghdr, len: usize) {
        #[allow(clippy::unnecessary_cast, reason = "a 32-bit type in some C libraries")]
        let facts = control.decode(header.msg_controllen as usize);
        meta.source.set_len(header.msg_namelen);
        meta.set_len(len, facts.segment_size.unwrap_or(len as u32));
        meta.dst_ip = facts.dst_ip.or(self.only_ip);
        meta.tos = facts.tos.unwrap_or(0);
        meta.truncated = header.msg_flags & libc::MSG_TRUNC != 0;
    }
}

/// The header of a message to be received. It points to all three arguments.
#[inline]
fn empty_message(source: &mut Dest, slice: &mut iovec, control: &mut RecvControl) -> msghdr {
    // SAFETY: all zeroes is a valid `msghdr`: null pointers, no lengths.
    let mut header: msghdr = unsafe { std::mem::zeroed() };
    header.msg_name = source.buffer_mut().as_mut_ptr().cast();
    header.msg_namelen = Dest::CAPACITY as libc::socklen_t;
    header.msg_iov = slice;
    header.msg_iovlen = 1;
    header.msg_control = control.buffer_mut().as_mut_ptr().cast();
    header.msg_controllen = RecvControl::CAPACITY as _;
    header
}
