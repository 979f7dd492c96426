//! What carries packets between the core and peers: the seam below the engine.
//!
//! The engine has one path, over [`seam::Carrier`]. UDP sockets are one ([`self::udp`]), memory that neighbours share is one beside
//! them ([`self::memory`]), a [`Network`] of the program's own is another ([`self::network`]), and faults on purpose are one around
//! any of them ([`self::faulty`]). [`open`] is where they are chosen.

mod direct;
pub(super) mod faulty;
pub(super) mod intake;
pub(super) mod keeper;
pub(super) mod memory;
pub(super) mod multicast;
pub(super) mod network;
pub(super) mod pairs;
pub(super) mod port_watch;
pub(super) mod sealed;
pub(super) mod seam;
pub(super) mod sockets;
pub(super) mod udp;

use std::sync::Arc;

use urxe_core::CreateQpError;
use urxe_core::mix::SplitMix64;
use urxe_core::qpn_table::QpnChunk;
use urxe_ring::RING_BYTES;
use urxe_wire::ROCE_V2_PORT as ROCE_PORT;

use self::faulty::FaultyCarrier;
use self::memory::MemoryCarrier;
use self::network::NetworkCarrier;
use self::port_watch::PortWatch;
use self::sealed::Envelopes;
use self::seam::Carrier;
use self::sockets::Sockets;
use self::udp::SocketCarrier;
use crate::engine::EngineConfig;
use crate::engine::drive::clock::Clock;
use crate::engine::upkeep::tap::Tap;
use crate::error::{Error, ErrorKind};
use crate::faults::FaultyPath;
use crate::network::Network;
use crate::share::{JoinError, Joined, Membership};
use crate::wire::Wire;

/// What an engine is opened on.
#[derive(Debug)]
pub(in crate::engine) struct Opened {
    pub(in crate::engine) carrier: Box<dyn Carrier>,
    pub(in crate::engine) clock: Clock,
    pub(in crate::engine) sockets: Arc<Sockets>,
    /// Others who have the same addresses.
    pub(in crate::engine) membership: Option<Arc<Membership>>,
    /// QPNs that this context may give out, where it does not have all of them.
    pub(in crate::engine) chunk: Option<QpnChunk>,
    pub(in crate::engine) port: Arc<PortWatch>,
    pub(in crate::engine) tap: Option<Tap>,
    /// Bytes that wait at the receiver before some are lost.
    pub(in crate::engine) recv_buffer: u32,
    /// The same of a neighbour's ring, where there may be some.
    pub(in crate::engine) recv_ring: Option<u32>,
}

/// Chooses what carries the packets of a context, and opens it.
pub(in crate::engine) fn open(config: &EngineConfig) -> Result<Opened, Error> {
    let mut opened = match &config.network {
        Some(network) => on_network(network, config)?,
        None => on_sockets(config)?,
    };
    if let Some(spec) = config.faults {
        let path = FaultyPath::new(spec, config.random()?);
        opened.carrier = Box::new(FaultyCarrier::new(path, opened.carrier));
    }
    Ok(opened)
}

/// What the receive buffer of a context on a network counts as: it has none, and what
/// arrives is taken in at once.
const BUFFER_ON_NETWORK: u32 = 1 << 20;

/// Takes the addresses on a network.
fn on_network(network: &Arc<dyn Network>, config: &EngineConfig) -> Result<Opened, Error> {
    let addrs = &config.addresses[..];
    let strange = addrs
        .iter()
        .find(|addr| network.interface_mtu(**addr).is_none());
    if let Some(&addr) = strange {
        return Err(ErrorKind::NoAddress(addr).into());
    }
    let chunk = network.grant_qpns().ok_or(CreateQpError::NoQpn)?;
    Ok(Opened {
        carrier: Box::new(NetworkCarrier::new(network.clone())),
        clock: Clock::Network(network.clone()),
        sockets: Arc::new(Sockets::none(addrs, ROCE_PORT, config.udp.clone())),
        membership: None,
        chunk: Some(QpnChunk(chunk)),
        port: Arc::new(PortWatch::always_up()),
        // A network captures by itself, in its own time.
        tap: None,
        recv_buffer: BUFFER_ON_NETWORK,
        recv_ring: None,
    })
}

fn on_sockets(config: &EngineConfig) -> Result<Opened, Error> {
    let envelopes = config.sealing.as_ref().map(|sealing| {
        let damages = config
            .faults
            .is_some_and(|faults| faults.corrupt.per_million() > 0);
        Envelopes::open(sealing, damages)
    });
    let envelopes = envelopes.transpose()?;
    let key = envelopes.as_ref().map(Envelopes::key_id);
    let (sockets, membership, chunk) = bind(config, key)?;
    let sockets = Arc::new(sockets);
    let tap = config.tap.as_deref().map(|path| {
        let note = envelopes.as_ref().map(Envelopes::note_of_captures);
        Tap::create(path, &note.unwrap_or_default())
    });
    let by_socket = SocketCarrier::new(sockets.clone(), envelopes);
    let by_socket = match (&membership, config.faults) {
        (Some(membership), None) => by_socket.with_direct(membership.direct_port()),
        // A receiver tells less of damage from what leaves by a socket for lone packets.
        _ => by_socket,
    };
    let neighbours = membership.clone().filter(|_| config.wire == Wire::Auto);
    let recv_ring = neighbours.is_some().then_some(RING_BYTES);
    let carrier: Box<dyn Carrier> = match neighbours {
        Some(membership) => Box::new(MemoryCarrier::new(by_socket, membership)),
        None => Box::new(by_socket),
    };
    Ok(Opened {
        recv_buffer: u32::try_from(sockets.recv_buffer()).unwrap_or(u32::MAX),
        recv_ring,
        carrier,
        clock: Clock::system(),
        sockets,
        membership,
        chunk,
        tap: tap.transpose()?,
        port: Arc::new(PortWatch::new(config.addresses.iter().copied())),
    })
}

type Bound = (Sockets, Option<Arc<Membership>>, Option<QpnChunk>);

/// Binds the addresses: shared, if that is wanted and possible. With a key, at the port of sealed packets, and only those who have
/// the same key share.
fn bind(config: &EngineConfig, key: Option<u16>) -> Result<Bound, Error> {
    let port = key.map_or(ROCE_PORT, |_| urxe_seal::PORT);
    let addrs = &config.addresses[..config.addresses.len().min(Sockets::MAX)];
    // The system would take "any address", but peers must know the one.
    if let Some(&addr) = addrs
        .iter()
        .find(|addr| addr.is_unspecified() || addr.is_multicast())
    {
        return Err(ErrorKind::NoAddress(addr).into());
    }
    if config.share {
        // Nonces and chunks: unpredictable by the seed, and all different.
        let mut numbers = SplitMix64::new(crate::host::random::random()?);
        let takes_rings = config.wire == Wire::Auto;
        let random = || numbers.bits();
        match Membership::join(addrs, (port, key), &config.udp, takes_rings, random) {
            Ok(Joined {
                membership,
                sockets,
                chunk,
            }) => {
                let sockets = Sockets::shared(addrs, port, sockets, config.udp.clone());
                return Ok((sockets, Some(Arc::new(membership)), Some(chunk)));
            }
            Err(JoinError::Bind(addr, error)) => return Err(sockets::explain(addr, error)),
            Err(JoinError::Strangers(addr)) => return Err(ErrorKind::AddrInUse(addr).into()),
            // Without sharing it may be had all the same.
            Err(JoinError::NoRegistry(why)) => {
                let alone = Sockets::bind(addrs, port, &config.udp);
                let alone = alone.map_err(|error| match *error.kind() {
                    ErrorKind::AddrInUse(addr) => {
                        ErrorKind::CannotShare(addr, why.to_string()).into()
                    }
                    _ => error,
                });
                return Ok((alone?, None, None));
            }
        }
    }
    Ok((Sockets::bind(addrs, port, &config.udp)?, None, None))
}
