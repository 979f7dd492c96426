//! What this kernel can do, found out by trying.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;

use super::cmsg::SendControl;
use super::send::message;
use super::sys;
use crate::{Caps, Dest};

/// More packets in a run than this no known kernel takes (128 since Linux 6.9; 64 before).
const GSO_SEGMENTS_MAX: usize = 128;

/// Packets that the kernel cuts from one run; `None` if it cannot do that.
pub(crate) fn gso_segments_max(fd: BorrowedFd<'_>) -> Option<usize> {
    // Size 0 turns segmentation by default off, which it is: no effect but the answer.
    sys::set_option(fd, libc::SOL_UDP, libc::UDP_SEGMENT, 0).ok()?;
    static MAX: OnceLock<usize> = OnceLock::new();
    Some(*MAX.get_or_init(|| match send_run(GSO_SEGMENTS_MAX) {
        Ok(()) => GSO_SEGMENTS_MAX,
        // Also where loopback is down and nothing can be tried.
        Err(_) => Caps::GSO_SEGMENTS_MIN,
    }))
}

/// Sends a run of `segments` packets of one byte to a socket of our own.
pub(crate) fn send_run(segments: usize) -> io::Result<()> {
    let own = sys::udp_socket(false)?;
    rustix::net::bind(&own, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
    let dest = Dest::new(sys::local_addr(own.as_fd())?);
    let mut control = SendControl::new();
    control.push_segment_size(1);
    let iov = super::send::io_slice(&[0; GSO_SEGMENTS_MAX][..segments.min(GSO_SEGMENTS_MAX)]);
    let header = message(&dest, &iov, &control);
    // SAFETY: `header` points to `dest`, `iov` and `control`, which live on, and `iov` to
    // a constant.
    unsafe { sys::send_msg(own.as_fd(), &header) }.map(drop)
}

/// Longest UDP payload that a packet to `dest` may have where it leaves this host.
pub(crate) fn path_payload_max(dest: &Dest) -> io::Result<usize> {
    let ipv6 = dest.addr().is_ipv6();
    let (level, name, headers) = if ipv6 {
        (libc::IPPROTO_IPV6, libc::IPV6_MTU, 48)
    } else {
        (libc::IPPROTO_IP, libc::IP_MTU, 28)
    };
    let socket = sys::udp_socket(ipv6)?;
    rustix::net::connect(&socket, &dest.addr())?;
    let [mtu] = sys::option(socket.as_fd(), level, name)?;
    Ok(usize::try_from(mtu).unwrap_or(0).saturating_sub(headers))
}
