//! System calls to datagrams.

use std::fmt;
use std::io;
use std::mem::MaybeUninit;

use libc::{iovec, mmsghdr, msghdr};

use super::cmsg::RecvControl;
use super::{UdpSocket, sys};
use crate::Dest;
use crate::recv::{Meta, RecvBatch};

/// What a [`RecvBatch`] keeps for this backend.
pub(crate) struct RecvState {
    controls: Box<[RecvControl]>,
    /// Datagrams came in the last two receives: there may be a queue of them.
    streak: bool,
}

impl RecvState {
    pub(crate) fn new(slots: usize) -> RecvState {
        RecvState {
            controls: vec![RecvControl::new(); slots].into(),
            streak: false,
        }
    }
}

impl fmt::Debug for RecvState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvState")
            .field("streak", &self.streak)
            .finish_non_exhaustive()
    }
}

impl UdpSocket {
    /// Receives what is there, without waiting, into `batch` (whose former contents are
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
            let result = if batch.linux.streak && batch.slots() > 1 {
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
                batch.linux.streak = true;
                batch.filled = count;
                Ok(count)
            }
            Err(error) => {
                batch.linux.streak = false;
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
        meta.len = len as u32;
        meta.segment_size = facts.segment_size.unwrap_or(len as u32);
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
