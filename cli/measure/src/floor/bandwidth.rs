//! A stream in one direction, with as many packets under way as the receiver can hold and
//! a small datagram back now and then that says how many came.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use urxe_udp::{Dest, RecvBatch, SendBatch, SendOutcome, Transmit, UdpSocket};

use super::packets::{BatchLimits, Incoming, Outgoing, REGION_LEN, packet_len, packets_in_message};
use super::{FloorBandwidth, FloorConfig, SILENCE_MAX, Wait, failed, receive_within};
use crate::error::CliError;

/// Packets received and bad ones among them, 8 bytes each.
const REPORT_LEN: usize = 16;
/// When nothing was reported for this long, packets were lost: go on without them.
const STALL: Duration = Duration::from_millis(100);

/// Packets that may be under way.
fn window(config: &FloorConfig, batch: usize) -> u64 {
    let packet = packet_len(config.header, config.message.min(config.mtu));
    // Half a megabyte stays in the cache that the two sides share; small packets take
    // more room in the kernel than their length, so they have a limit of their own.
    let packets = if packet < 256 {
        4096
    } else {
        (512 << 10) / packet
    };
    packets.max(2 * batch) as u64
}

/// Packets after which the receiver reports.
fn report_every(window: u64) -> u64 {
    (window / 4).clamp(1, 64)
}

/// What the sender knows of the receiver.
struct Progress {
    received: u64,
    /// Packets that never arrived, found out by stalls.
    lost: u64,
    last_report: Instant,
}

/// The sending side: returns what the receiver confirmed over the time of measurement.
pub(crate) fn send(
    socket: &UdpSocket,
    config: &FloorConfig,
    to: SocketAddr,
) -> Result<FloorBandwidth, CliError> {
    let mut outgoing = Outgoing::new(config, to, BatchLimits::new(socket), REGION_LEN);
    let per_batch = outgoing.batch_packets_max();
    let window = window(config, per_batch);
    let mut reports = RecvBatch::with_slot_len(1, 64);
    let start = Instant::now();
    let from = start + config.duration / 4;
    let until = from + config.duration;
    let mut measured_from = None;
    let mut sent = 0;
    let mut progress = Progress {
        received: 0,
        lost: 0,
        last_report: start,
    };
    loop {
        let now = Instant::now();
        if now >= from && measured_from.is_none() {
            measured_from = Some((now, progress.received));
        }
        if now >= until {
            break;
        }
        read_report(socket, &mut reports, &mut progress)?;
        let under_way = sent - progress.received - progress.lost;
        if under_way + per_batch as u64 <= window {
            outgoing.gather(per_batch);
            outgoing.send(socket)?;
            sent += per_batch as u64;
        } else if now.saturating_duration_since(progress.last_report) > STALL {
            if now.saturating_duration_since(start) > SILENCE_MAX && progress.received == 0 {
                return Err(failed("the receiver does not answer"));
            }
            progress.lost = sent - progress.received;
            progress.last_report = now;
        }
    }
    let (begun, before) = measured_from.unwrap_or((start, 0));
    let packets = (progress.received - before) as f64;
    let messages = packets / packets_in_message(config) as f64;
    Ok(FloorBandwidth::new(
        config,
        messages / begun.elapsed().as_secs_f64(),
    ))
}

fn read_report(
    socket: &UdpSocket,
    reports: &mut RecvBatch,
    progress: &mut Progress,
) -> Result<(), CliError> {
    while socket.recv(reports).map_err(failed)? > 0 {
        for (_, report) in reports.iter().flat_map(|datagram| datagram.segments()) {
            let Some(report) = report.first_chunk::<REPORT_LEN>() else {
                continue;
            };
            let word = |at| u64::from_le_bytes(*report[at..].first_chunk().expect("8 bytes"));
            let (packets, bad) = (word(0), word(8));
            if bad > 0 {
                let text = format!("{bad} of {packets} packets arrived broken");
                return Err(failed(text));
            }
            progress.received = progress.received.max(packets);
            progress.last_report = Instant::now();
        }
    }
    Ok(())
}

/// The receiving side, until the sender is silent.
pub(crate) fn receive(socket: &UdpSocket, config: &FloorConfig) -> Result<(), CliError> {
    let mut batch = RecvBatch::new(RecvBatch::DEFAULT_SLOTS);
    let mut incoming = Incoming::new(config, REGION_LEN);
    let per_batch = {
        let to_self = socket.local_addr();
        Outgoing::new(config, to_self, BatchLimits::new(socket), REGION_LEN).batch_packets_max()
    };
    let every = report_every(window(config, per_batch));
    let mut reported = 0;
    while receive_within(socket, &mut batch, Wait::Spin, SILENCE_MAX)? {
        let mut source = None;
        for datagram in batch.iter() {
            for (_, packet) in datagram.segments() {
                incoming.take(packet);
            }
            source = Some(datagram.source);
        }
        if let Some(source) = source.filter(|_| incoming.packets - reported >= every) {
            reported = incoming.packets;
            report(socket, source, &incoming)?;
        }
    }
    Ok(())
}

fn report(socket: &UdpSocket, to: SocketAddr, incoming: &Incoming) -> Result<(), CliError> {
    let mut bytes = [0; REPORT_LEN];
    bytes[..8].copy_from_slice(&incoming.packets.to_le_bytes());
    bytes[8..].copy_from_slice(&incoming.bad.to_le_bytes());
    let transmits = [Transmit::single(0..REPORT_LEN, Dest::new(to))];
    match socket.send(SendBatch {
        bytes: &bytes,
        transmits: &transmits,
    }) {
        SendOutcome::Failed { error, .. } => Err(failed(error)),
        // A report that does not go now is made up for by the next.
        _ => Ok(()),
    }
}
