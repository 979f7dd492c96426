//! Messages to packets of RoCE's sizes, and back, with the work on each that RDMA has too:
//! headers, payload copied, a checksum like the ICRC.

use std::net::SocketAddr;

use urxe_udp::{Caps, Dest, SendBatch, SendOutcome, Transmit, UdpSocket, wait_for};

use super::{FloorConfig, SILENCE_MAX, failed};
use crate::error::CliError;

/// The packets' headers hold a number (8 bytes) and whether a message begins (1 byte).
pub(super) const HEADER_MIN: usize = 9;
const FIRST: u8 = 1;
const ICRC_LEN: usize = 4;
/// The ICRC covers 8 bytes that stand for the link, and the IPv4 and UDP headers.
const PSEUDO_HEADER: [u8; 36] = [0xff; 36];
/// Payload is taken from, and put into, a region of this size, over and over: as large
/// as a buffer that a bandwidth test registers.
const REGION_LEN: usize = 1 << 20;

/// Length of a packet: RoCE fills payload up to a multiple of 4.
pub(super) fn packet_len(header: usize, payload: usize) -> usize {
    header + payload.next_multiple_of(4) + ICRC_LEN
}

/// Number of packets in a message; an empty message is a packet too.
pub(super) fn packets_in_message(config: &FloorConfig) -> usize {
    config.message.div_ceil(config.mtu).max(1)
}

fn icrc(packet: &[u8]) -> [u8; ICRC_LEN] {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&PSEUDO_HEADER);
    hasher.update(packet);
    hasher.finalize().to_le_bytes()
}

/// Limits of a batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchLimits {
    /// Full runs in a batch: more than a few give the receiver nothing to do meanwhile.
    pub(super) runs: usize,
    /// Packets in a run.
    segments: usize,
}

impl BatchLimits {
    pub(super) fn new(socket: &UdpSocket) -> BatchLimits {
        // Kernels differ in what they take; 64 all do, and twice that gains nothing.
        let segments = socket.caps().gso_segments_max().min(Caps::GSO_SEGMENTS_MIN);
        BatchLimits { runs: 4, segments }
    }
}

/// An endless sequence of equal messages, cut into packets, gathered into batches.
pub(super) struct Outgoing {
    config: FloorConfig,
    dest: Dest,
    limits: BatchLimits,
    region: Vec<u8>,
    region_at: usize,
    /// Where in its message the next packet begins.
    message_at: usize,
    /// Packets gathered so far, in all batches.
    number: u64,
    bytes: Vec<u8>,
    transmits: Vec<Transmit>,
}

impl Outgoing {
    pub(super) fn new(config: &FloorConfig, to: SocketAddr, limits: BatchLimits) -> Outgoing {
        Outgoing {
            config: config.clone(),
            dest: Dest::new(to),
            limits,
            region: (0..REGION_LEN + config.mtu).map(|k| ((k * 31) >> 3) as u8).collect(),
            region_at: 0,
            message_at: 0,
            number: 0,
            bytes: Vec::with_capacity(limits.runs * Caps::PAYLOAD_MAX),
            transmits: Vec::with_capacity(limits.runs * limits.segments),
        }
    }

    /// Most packets that a batch can have.
    pub(super) fn batch_packets_max(&self) -> usize {
        let packet = packet_len(self.config.header, self.config.mtu.min(self.config.message));
        let in_run = (Caps::PAYLOAD_MAX / packet).clamp(1, self.limits.segments);
        self.limits.runs * in_run
    }

    /// Gathers `count` packets, forgetting those gathered before.
    pub(super) fn gather(&mut self, count: usize) {
        self.bytes.clear();
        self.transmits.clear();
        for _ in 0..count {
            self.push_packet();
        }
    }

    /// Hands the gathered packets to the network.
    pub(super) fn send(&self, socket: &UdpSocket) -> Result<(), CliError> {
        let mut singles = Vec::new();
        let mut rest = &self.transmits[..];
        while !rest.is_empty() {
            match socket.send(SendBatch { bytes: &self.bytes, transmits: rest }) {
                SendOutcome::All { .. } => break,
                SendOutcome::WouldBlock { sent } => {
                    rest = &rest[sent..];
                    let writable = [urxe_udp::Interest::writable(socket.as_fd())];
                    if wait_for(&writable, Some(SILENCE_MAX)).map_err(failed)?.is_timeout() {
                        return Err(failed("the network takes no more packets"));
                    }
                }
                SendOutcome::GsoRefused { sent } => {
                    singles = rest[sent..].iter().copied().flat_map(Transmit::singles).collect();
                    rest = &singles;
                }
                SendOutcome::Failed { error, .. } => return Err(failed(error)),
            }
        }
        drop(singles);
        Ok(())
    }

    fn push_packet(&mut self) {
        let payload = self.config.mtu.min(self.config.message - self.message_at);
        let is_first = self.message_at == 0;
        let header = if is_first { self.config.first_header } else { self.config.header };
        let start = self.bytes.len();
        self.bytes.resize(start + header, 0);
        self.bytes[start..start + 8].copy_from_slice(&self.number.to_le_bytes());
        self.bytes[start + 8] = if is_first { FIRST } else { 0 };
        let data = &self.region[self.region_at..self.region_at + payload];
        self.bytes.extend_from_slice(data);
        self.bytes.resize(start + header + payload.next_multiple_of(4), 0);
        let icrc = icrc(&self.bytes[start..]);
        self.bytes.extend_from_slice(&icrc);

        self.number += 1;
        self.region_at = (self.region_at + payload) % REGION_LEN;
        self.message_at += payload;
        if self.message_at == self.config.message {
            self.message_at = 0;
        }
        self.describe(start, self.bytes.len() - start);
    }

    /// Adds the packet at `start` to the last run, or begins another.
    fn describe(&mut self, start: usize, len: usize) {
        if let Some(run) = self.transmits.last_mut() {
            let size = usize::from(run.segment_size);
            let run_len = run.len as usize;
            if len <= size
                && run_len.is_multiple_of(size)
                && run_len / size < self.limits.segments
                && run_len + len <= Caps::PAYLOAD_MAX
            {
                run.len += len as u32;
                return;
            }
        }
        self.transmits.push(Transmit::run(start..start + len, len, self.dest));
    }
}

/// Where received messages go.
pub(super) struct Incoming {
    config: FloorConfig,
    region: Vec<u8>,
    region_at: usize,
    /// Packets received so far.
    pub(super) packets: u64,
    /// Those of them that were not as they were sent.
    pub(super) bad: u64,
}

impl Incoming {
    pub(super) fn new(config: &FloorConfig) -> Incoming {
        Incoming {
            config: config.clone(),
            // Written, not merely asked for: the first pass shall not pay for page faults.
            region: vec![1; REGION_LEN + config.mtu],
            region_at: 0,
            packets: 0,
            bad: 0,
        }
    }

    /// Checks a packet and copies its payload; returns its number, or `None` if it is bad.
    #[inline]
    pub(super) fn take(&mut self, packet: &[u8]) -> Option<u64> {
        self.packets += 1;
        let number = self.try_take(packet);
        self.bad += u64::from(number.is_none());
        number
    }

    fn try_take(&mut self, packet: &[u8]) -> Option<u64> {
        let (covered, check) = packet.split_last_chunk::<ICRC_LEN>()?;
        let is_first = *covered.get(8)? == FIRST;
        let header = if is_first { self.config.first_header } else { self.config.header };
        let payload = covered.get(header..)?;
        if payload.len() > self.config.mtu.next_multiple_of(4) || icrc(covered) != *check {
            return None;
        }
        let payload = &payload[..payload.len().min(self.config.mtu)];
        self.region[self.region_at..self.region_at + payload.len()].copy_from_slice(payload);
        self.region_at = (self.region_at + payload.len()) % REGION_LEN;
        Some(u64::from_le_bytes(*covered.first_chunk()?))
    }
}
