//! Messages to packets of RoCE's sizes, and back, with the work on each that RDMA has too:
//! headers, payload copied, a checksum like the ICRC.

use std::net::SocketAddr;

use urxe_udp::{Caps, Dest, SendBatch, SendOutcome, Transmit, UdpSocket, wait_for};

use super::{FloorConfig, SILENCE_MAX, failed};
use crate::error::CliError;

/// The packets' headers hold a number (8 bytes) and whether a message begins (1 byte).
pub(crate) const HEADER_MIN: usize = 9;
const FIRST: u8 = 1;
const ICRC_LEN: usize = 4;
/// Bytes of packets after which their checksums are computed: late enough for what was
/// written in small pieces to have left the CPU's store buffer, as reading it in large
/// pieces stalls before (22 ns for a packet of 40 bytes instead of 14); early enough
/// to be in its nearest cache.
const SEAL_BEHIND: usize = 4096;
/// The ICRC covers 8 bytes that stand for the link, and the IPv4 and UDP headers.
const PSEUDO_HEADER: [u8; 36] = [0xff; 36];
/// As much memory as a bandwidth test registers on either side.
pub(crate) const REGION_LEN: usize = 1 << 20;

/// Length of a packet: RoCE fills payload up to a multiple of 4.
pub(crate) fn packet_len(header: usize, payload: usize) -> usize {
    header + payload.next_multiple_of(4) + ICRC_LEN
}

/// Number of packets in a message; an empty message is a packet too.
pub(crate) fn packets_in_message(config: &FloorConfig) -> usize {
    config.message.div_ceil(config.mtu).max(1)
}

/// The checksum, with what is the same in all packets computed once.
struct Icrc {
    begun: crc32fast::Hasher,
}

impl Icrc {
    fn new() -> Icrc {
        let mut begun = crc32fast::Hasher::new();
        begun.update(&PSEUDO_HEADER);
        Icrc { begun }
    }

    #[inline]
    fn of(&self, packet: &[u8]) -> [u8; ICRC_LEN] {
        let mut hasher = self.begun.clone();
        hasher.update(packet);
        hasher.finalize().to_le_bytes()
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchLimits {
    /// Full runs in a batch: more than a few give the receiver nothing to do meanwhile.
    pub(crate) runs: usize,
    /// Packets in a run.
    segments: usize,
}

impl BatchLimits {
    pub(crate) fn new(socket: &UdpSocket) -> BatchLimits {
        // Kernels differ in what they take; 64 all do, and twice that gains nothing.
        let segments = socket.caps().gso_segments_max().min(Caps::GSO_SEGMENTS_MIN);
        BatchLimits { runs: 4, segments }
    }
}

/// An endless sequence of equal messages, cut into packets, gathered into batches.
pub(crate) struct Outgoing {
    config: FloorConfig,
    dest: Dest,
    limits: BatchLimits,
    icrc: Icrc,
    region: Vec<u8>,
    region_len: usize,
    region_at: usize,
    /// Where in its message the next packet begins.
    message_at: usize,
    /// Packets gathered so far, in all batches.
    number: u64,
    bytes: Vec<u8>,
    /// How many of the bytes hold packets.
    used: usize,
    /// How many of them belong to packets with the checksum in place.
    sealed: usize,
    /// Lengths of the packets after those.
    unsealed: Vec<u16>,
    transmits: Vec<Transmit>,
    /// Packets in the last run.
    in_run: usize,
}

impl Outgoing {
    /// Messages to `to`, with payload from a region of `region_len` bytes over and over.
    pub(crate) fn new(
        config: &FloorConfig,
        to: SocketAddr,
        limits: BatchLimits,
        region_len: usize,
    ) -> Outgoing {
        Outgoing {
            config: config.clone(),
            dest: Dest::new(to),
            limits,
            icrc: Icrc::new(),
            region: (0..region_len + config.mtu)
                .map(|k| ((k * 31) >> 3) as u8)
                .collect(),
            region_len,
            region_at: 0,
            message_at: 0,
            number: 0,
            bytes: Vec::new(),
            used: 0,
            sealed: 0,
            unsealed: Vec::new(),
            transmits: Vec::with_capacity(limits.runs * limits.segments),
            in_run: 0,
        }
    }

    /// Most packets that a batch can have.
    pub(crate) fn batch_packets_max(&self) -> usize {
        let packet = packet_len(self.config.header, self.config.mtu.min(self.config.message));
        let in_run = (Caps::PAYLOAD_MAX / packet).clamp(1, self.limits.segments);
        self.limits.runs * in_run
    }

    /// Gathers `count` packets, forgetting those gathered before.
    pub(crate) fn gather(&mut self, count: usize) {
        self.transmits.clear();
        self.used = 0;
        let header = self.config.first_header.max(self.config.header);
        let packet = packet_len(header, self.config.mtu);
        if self.bytes.len() < count * packet {
            self.bytes.resize(count * packet, 0);
        }
        self.sealed = 0;
        for _ in 0..count {
            self.push_packet();
        }
        self.seal();
    }

    #[cfg(test)]
    pub(crate) fn transmits(&self) -> &[Transmit] {
        &self.transmits
    }

    #[cfg(test)]
    pub(crate) fn packets(&self) -> impl Iterator<Item = &[u8]> {
        let singles = self.transmits.iter().copied().flat_map(Transmit::singles);
        singles.map(|single| &self.bytes[single.range()])
    }

    /// Hands the gathered packets to the network.
    pub(crate) fn send(&self, socket: &UdpSocket) -> Result<(), CliError> {
        let mut singles: Vec<Transmit>;
        let mut rest = &self.transmits[..];
        while !rest.is_empty() {
            match socket.send(SendBatch {
                bytes: &self.bytes,
                transmits: rest,
            }) {
                SendOutcome::All { .. } => break,
                SendOutcome::WouldBlock { sent } => {
                    rest = &rest[sent..];
                    let writable = [urxe_udp::Interest::writable(socket.as_fd())];
                    let waited = wait_for(&writable, Some(SILENCE_MAX)).map_err(failed)?;
                    if waited.is_timeout() {
                        return Err(failed("the network takes no more packets"));
                    }
                }
                SendOutcome::GsoRefused { sent } => {
                    let refused = rest[sent..].iter().copied();
                    singles = refused.flat_map(Transmit::singles).collect();
                    rest = &singles;
                }
                SendOutcome::Failed { error, .. } => return Err(failed(error)),
            }
        }
        Ok(())
    }

    #[inline]
    fn push_packet(&mut self) {
        let payload = self.config.mtu.min(self.config.message - self.message_at);
        let is_first = self.message_at == 0;
        let header = self.config.header_of(is_first);
        let len = packet_len(header, payload);
        let start = self.used;
        let packet = &mut self.bytes[start..start + len];
        self.used += len;

        let (covered, _) = packet
            .split_last_chunk_mut::<ICRC_LEN>()
            .expect("has an ICRC");
        let (head, body) = covered.split_at_mut(header);
        head.fill(0);
        head[..8].copy_from_slice(&self.number.to_le_bytes());
        head[8] = if is_first { FIRST } else { 0 };
        let (body, pad) = body.split_at_mut(payload);
        body.copy_from_slice(&self.region[self.region_at..self.region_at + payload]);
        pad.fill(0);

        self.number += 1;
        self.region_at += payload;
        if self.region_at >= self.region_len {
            self.region_at = 0;
        }
        self.message_at += payload;
        if self.message_at == self.config.message {
            self.message_at = 0;
        }
        self.describe(start, len);
        self.unsealed.push(len as u16);
        if self.used - self.sealed >= SEAL_BEHIND {
            self.seal();
        }
    }

    /// Puts the checksums into the packets that have none yet.
    fn seal(&mut self) {
        for len in self.unsealed.drain(..) {
            let packet = &mut self.bytes[self.sealed..self.sealed + usize::from(len)];
            let (covered, check) = packet
                .split_last_chunk_mut::<ICRC_LEN>()
                .expect("has an ICRC");
            *check = self.icrc.of(covered);
            self.sealed += packet.len();
        }
    }

    /// Adds the packet at `start` to the last run, or begins another.
    #[inline]
    fn describe(&mut self, start: usize, len: usize) {
        if let Some(run) = self.transmits.last_mut() {
            let (size, run_len) = (usize::from(run.segment_size), run.len as usize);
            // Equal sizes up to here: a shorter packet may follow, and closes the run.
            if len <= size
                && run_len == size * self.in_run
                && self.in_run < self.limits.segments
                && run_len + len <= Caps::PAYLOAD_MAX
            {
                run.len += len as u32;
                self.in_run += 1;
                return;
            }
        }
        self.transmits
            .push(Transmit::run(start..start + len, len, self.dest));
        self.in_run = 1;
    }
}

/// Where received messages go.
pub(crate) struct Incoming {
    config: FloorConfig,
    icrc: Icrc,
    region: Vec<u8>,
    region_len: usize,
    region_at: usize,
    /// Packets received so far.
    pub(crate) packets: u64,
    /// Those of them that were not as they were sent.
    pub(crate) bad: u64,
}

impl Incoming {
    /// Payload goes into a region of `region_len` bytes, over and over.
    pub(crate) fn new(config: &FloorConfig, region_len: usize) -> Incoming {
        Incoming {
            config: config.clone(),
            // Written, not merely asked for: the first pass shall not pay for page faults.
            region: vec![1; region_len + config.mtu],
            icrc: Icrc::new(),
            region_len,
            region_at: 0,
            packets: 0,
            bad: 0,
        }
    }

    /// Checks a packet and copies its payload; returns its number, or `None` if it is bad.
    #[inline]
    pub(crate) fn take(&mut self, packet: &[u8]) -> Option<u64> {
        self.packets += 1;
        let number = self.try_take(packet);
        self.bad += u64::from(number.is_none());
        number
    }

    fn try_take(&mut self, packet: &[u8]) -> Option<u64> {
        let (covered, check) = packet.split_last_chunk::<ICRC_LEN>()?;
        let is_first = *covered.get(8)? == FIRST;
        let payload = covered.get(self.config.header_of(is_first)..)?;
        if payload.len() > self.config.mtu.next_multiple_of(4) || self.icrc.of(covered) != *check {
            return None;
        }
        let payload = &payload[..payload.len().min(self.config.mtu)];
        self.region[self.region_at..self.region_at + payload.len()].copy_from_slice(payload);
        self.region_at += payload.len();
        if self.region_at >= self.region_len {
            self.region_at = 0;
        }
        Some(u64::from_le_bytes(*covered.first_chunk()?))
    }
}
