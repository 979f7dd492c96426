//! Latency of the floor: one message there and one back, repeatedly.

use std::net::SocketAddr;
use std::time::Duration;

use urxe_udp::{RecvBatch, UdpSocket};

use super::packets::{BatchLimits, Incoming, Outgoing, packets_in_message};
use super::{FloorConfig, FloorLatency, SILENCE_MAX, failed, receive_within};
use crate::error::CliError;

/// Longest message: it must fit into receive buffers, as nothing holds the sender back.
pub const MESSAGE_MAX: usize = 1 << 20;

/// A message that does not come back in this time was lost.
const LOST: Duration = Duration::from_secs(1);

/// Receives one whole message and returns its sender; `None` when nothing comes for a while.
fn receive_message(
    socket: &UdpSocket,
    batch: &mut RecvBatch,
    incoming: &mut Incoming,
    config: &FloorConfig,
    limit: Duration,
) -> Result<Option<SocketAddr>, CliError> {
    let mut missing = packets_in_message(config);
    loop {
        if !receive_within(socket, batch, config.wait, limit)? {
            return Ok(None);
        }
        for datagram in batch.iter() {
            for (_, packet) in datagram.segments() {
                if incoming.take(packet).is_none() {
                    return Err(failed("a packet arrived broken"));
                }
                missing = missing.saturating_sub(1);
            }
            if missing == 0 {
                return Ok(Some(datagram.source));
            }
        }
    }
}

/// Slots for what one message brings: a single packet needs, and should pay for, one.
fn slots(config: &FloorConfig) -> usize {
    match packets_in_message(config) {
        1 => 1,
        _ => RecvBatch::DEFAULT_SLOTS,
    }
}

/// The side that measures.
pub(crate) fn ping(
    socket: &UdpSocket,
    config: &FloorConfig,
    to: SocketAddr,
) -> Result<FloorLatency, CliError> {
    let mut outgoing = Outgoing::new(config, to, BatchLimits::new(socket), config.message);
    let mut incoming = Incoming::new(config, config.message);
    let mut batch = RecvBatch::new(slots(config));
    FloorLatency::measure(config, || {
        outgoing.gather(packets_in_message(config));
        outgoing.send(socket)?;
        let back = receive_message(socket, &mut batch, &mut incoming, config, LOST)?;
        if back.is_none() {
            let text = "a message was lost: something else fills the receive buffer";
            return Err(failed(text));
        }
        Ok(())
    })
}

/// The side that answers, until the other is silent.
pub(crate) fn pong(socket: &UdpSocket, config: &FloorConfig) -> Result<(), CliError> {
    let mut incoming = Incoming::new(config, config.message);
    let mut batch = RecvBatch::new(slots(config));
    let mut outgoing: Option<Outgoing> = None;
    while let Some(source) =
        receive_message(socket, &mut batch, &mut incoming, config, SILENCE_MAX)?
    {
        let outgoing = outgoing.get_or_insert_with(|| {
            Outgoing::new(config, source, BatchLimits::new(socket), config.message)
        });
        outgoing.gather(packets_in_message(config));
        outgoing.send(socket)?;
    }
    Ok(())
}
