//! Sending: from transmissions to system calls.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;

use libc::{iovec, mmsghdr, msghdr};

use super::cmsg::SendControl;
use super::{UdpSocket, probe, sys};
use crate::{Caps, Dest, SendBatch, SendOutcome, Transmit};

/// Descriptors in one `sendmmsg`. More gain nothing: at 64 the entry into the kernel is
/// below 1 % of the work.
const DESCRIPTORS_MAX: usize = 64;

impl UdpSocket {
    /// Sends the descriptors of `batch` in order, with as few system calls as can be.
    ///
    /// Call it again for what is left, as [`SendOutcome`] says. One thread sends at a time: the socket's own
    /// segment size, which is that of the last trains, must not change meanwhile.
    ///
    /// # Panics
    /// If a descriptor names bytes that the batch does not have.
    pub fn send(&self, batch: SendBatch<'_>) -> SendOutcome {
        let SendBatch { bytes, transmits } = batch;
        let mut sent = 0;
        while sent < transmits.len() {
            let rest = &transmits[sent..];
            // sendmsg for one descriptor is measurably faster than sendmmsg with one.
            let result = match rest {
                [only] => self.send_one(bytes, only).map(|_| 1),
                _ => self.send_many(bytes, rest),
            };
            match result {
                Ok(count) => sent += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return SendOutcome::WouldBlock { sent };
                }
                // Perhaps for that reason: it is tried again.
                Err(_) if matches!(self.usual_size.take_back(self.as_fd()), Ok(true)) => {}
                Err(error) => return self.explain(&rest[0], sent, error),
            }
        }
        SendOutcome::All { sent }
    }

    #[inline]
    fn send_one(&self, bytes: &[u8], transmit: &Transmit) -> io::Result<usize> {
        let data = &bytes[transmit.range()];
        if self.needs_no_control(transmit) {
            return sys::send_to(self.as_fd(), data, &transmit.dest);
        }
        self.usual_size.take_back(self.as_fd())?;
        let control = self.control(transmit)?;
        let iov = io_slice(data);
        let header = message(&transmit.dest, &iov, &control);
        // SAFETY: `header` points to `transmit.dest`, `iov` and `control`, and `iov` to
        // `data`: all of them outlive the call.
        let sent = unsafe { sys::send_msg(self.as_fd(), &header) }?;
        if transmit.is_run() && self.is_usual(transmit) {
            self.usual_size.note(self.as_fd(), transmit.segment_size);
        }
        Ok(sent)
    }

    /// Sends up to [`DESCRIPTORS_MAX`] descriptors in one call; returns how many went.
    // Out of line: its 12 KiB of stack shall not burden the path of one packet.
    #[inline(never)]
    fn send_many(&self, bytes: &[u8], transmits: &[Transmit]) -> io::Result<usize> {
        let mut controls = [const { MaybeUninit::<SendControl>::uninit() }; DESCRIPTORS_MAX];
        let mut slices = [const { MaybeUninit::<iovec>::uninit() }; DESCRIPTORS_MAX];
        let mut headers = [const { MaybeUninit::<mmsghdr>::uninit() }; DESCRIPTORS_MAX];
        self.usual_size.take_back(self.as_fd())?;
        let mut ready = 0;
        for (index, transmit) in transmits.iter().enumerate().take(DESCRIPTORS_MAX) {
            // What we know will be refused: send what stands before it first.
            let control = match self.control(transmit) {
                Ok(control) => controls[index].write(control),
                Err(_) if index > 0 => break,
                Err(error) => return Err(error),
            };
            let slice = slices[index].write(io_slice(&bytes[transmit.range()]));
            let msg_hdr = message(&transmit.dest, slice, control);
            headers[index].write(mmsghdr {
                msg_hdr,
                msg_len: 0,
            });
            ready += 1;
        }
        // SAFETY: the first `ready` headers were written just above.
        let headers = unsafe { std::slice::from_raw_parts_mut(headers.as_mut_ptr().cast(), ready) };
        // SAFETY: header k points to `transmits[k].dest`, `controls[k]` and `slices[k]`, and
        // that to a checked range of `bytes`: all of them outlive the call.
        unsafe { sys::send_mmsg(self.as_fd(), headers) }
    }

    /// True if no control message would say more than a segment size.
    fn is_usual(&self, transmit: &Transmit) -> bool {
        transmit.tos == self.default_tos && transmit.src_ip.is_none()
    }

    fn needs_no_control(&self, transmit: &Transmit) -> bool {
        let segments_max = self.caps.gso_segments_max();
        self.is_usual(transmit) && self.usual_size.fits(transmit, segments_max)
    }

    /// The control messages of one descriptor, or the error that the kernel would report
    /// for a run that is longer than it takes, or should for a foreign source address.
    #[inline]
    fn control(&self, transmit: &Transmit) -> io::Result<SendControl> {
        let mut control = SendControl::new();
        if transmit.is_run() {
            if transmit.segments() > self.caps.gso_segments_max() {
                return Err(io::Error::from_raw_os_error(libc::EINVAL));
            }
            control.push_segment_size(transmit.segment_size);
        }
        if transmit.tos != self.default_tos {
            control.push_tos(transmit.tos, self.local.is_ipv6());
        }
        if let Some(ip) = transmit.src_ip {
            // The kernel would ignore it and send from another address.
            if ip.is_ipv6() != self.local.is_ipv6() {
                return Err(io::Error::from_raw_os_error(libc::EAFNOSUPPORT));
            }
            control.push_src_ip(ip);
        }
        Ok(control)
    }

    /// What an error means for descriptor number `sent`, and for runs to come.
    #[cold]
    fn explain(&self, transmit: &Transmit, sent: usize, error: io::Error) -> SendOutcome {
        match error.raw_os_error() {
            // The way out cannot cut packets, or cannot sum them up.
            Some(libc::EIO | libc::EOPNOTSUPP) if transmit.is_run() => self.caps.lose_gso(),
            Some(libc::EINVAL) if transmit.is_run() => {
                // The kernel says EINVAL, not EMSGSIZE, for runs of packets that are too
                // long for the path. One by one they would not get there either.
                if probe::path_payload_max(&transmit.dest)
                    .is_ok_and(|max| usize::from(transmit.segment_size) > max)
                {
                    let error = io::Error::from_raw_os_error(libc::EMSGSIZE);
                    return SendOutcome::Failed { sent, error };
                }
                self.reconsider_gso(transmit.segments());
            }
            _ => return SendOutcome::Failed { sent, error },
        }
        SendOutcome::GsoRefused { sent }
    }

    /// A run of `segments` packets was found invalid. That may be for another reason than
    /// its being a run (no such source address, no port): then sending singly will tell,
    /// and segmentation must not be lost to all for one bad descriptor.
    fn reconsider_gso(&self, segments: usize) {
        if segments > Caps::GSO_SEGMENTS_MIN {
            self.caps.lower_gso_segments();
        } else if probe::send_run(segments).is_err() {
            self.caps.lose_gso();
        }
    }
}

/// A slice as the kernel takes it. It is only read, whatever the type says.
pub(super) fn io_slice(data: &[u8]) -> iovec {
    iovec {
        iov_base: data.as_ptr().cast_mut().cast(),
        iov_len: data.len(),
    }
}

/// The header of a message of one slice. It points to all three arguments.
#[inline]
pub(super) fn message(dest: &Dest, slice: &iovec, control: &SendControl) -> msghdr {
    let (name, control) = (dest.as_bytes(), control.as_bytes());
    // SAFETY: all zeroes is a valid `msghdr` (null pointers, no lengths); it has padding
    // and on some systems further fields that cannot be named here.
    let mut header: msghdr = unsafe { std::mem::zeroed() };
    header.msg_name = name.as_ptr().cast_mut().cast();
    header.msg_namelen = name.len() as libc::socklen_t;
    header.msg_iov = ptr::from_ref(slice).cast_mut();
    header.msg_iovlen = 1;
    if !control.is_empty() {
        header.msg_control = control.as_ptr().cast_mut().cast();
        header.msg_controllen = control.len() as _;
    }
    header
}
