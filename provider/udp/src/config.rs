//! Settings of a socket.

/// Settings of a [`UdpSocket`](crate::UdpSocket). The default suits bulk transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpConfig {
    /// Bytes of receive buffer to ask for. The kernel may grant less
    /// (`net.core.rmem_max`); [`Caps::recv_buffer`](crate::Caps::recv_buffer) tells.
    pub recv_buffer: usize,
    /// Bytes of send buffer to ask for: at least one batch, or batches go out in parts.
    pub send_buffer: usize,
    /// Let the kernel cut runs of equal-sized packets (`UDP_SEGMENT`), if it can.
    pub gso: bool,
    /// Let the kernel join packets of one sender into one datagram (`UDP_GRO`), if it can.
    pub gro: bool,
    /// Turn joining on at the first burst, not at once. A socket that joins takes 0.12 us
    /// longer over every lone packet (on Linux; 7 % of half a round trip on loopback), so
    /// a conversation of single packets should not pay for what it never uses.
    pub gro_on_demand: bool,
    /// Let other sockets with the same setting bind the same address and port
    /// (`SO_REUSEPORT`).
    pub reuse_port: bool,
    /// Report the traffic class (DSCP and ECN) of what is received.
    pub recv_tos: bool,
    /// Traffic class of packets by default. A [`Transmit`](crate::Transmit) with this
    /// very value needs no control message and so leaves a little faster.
    pub tos: u8,
}

impl Default for UdpConfig {
    fn default() -> UdpConfig {
        UdpConfig {
            // Absorbs 1 ms at 32 Gbit/s: a receiver that loses its core for that long
            // loses no packet. It is also what unprivileged processes are commonly granted.
            recv_buffer: 4 << 20,
            // Sixty-four full runs.
            send_buffer: 4 << 20,
            gso: true,
            gro: true,
            gro_on_demand: true,
            reuse_port: false,
            recv_tos: true,
            tos: 0,
        }
    }
}
