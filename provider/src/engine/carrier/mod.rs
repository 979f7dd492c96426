//! What carries packets between the core and peers: the seam below the engine.
//!
//! The engine has one path, over [`Carrier`]. UDP sockets are one ([`self::udp`]), a [`Network`] of the program's own
//! is another ([`self::network`]), and faults on purpose are one around any of them ([`self::faulty`]). [`open`]
//! is where they are chosen.

pub(super) mod faulty;
pub(super) mod intake;
pub(super) mod multicast;
pub(super) mod network;
pub(super) mod pairs;
pub(super) mod port_watch;
pub(super) mod sockets;
pub(super) mod udp;

use core::fmt::Debug;
use core::net::IpAddr;
use std::sync::Arc;

use urxe_core::mix::SplitMix64;
use urxe_core::qpn_table::QpnChunk;
use urxe_core::transmit::TxBatch;
use urxe_core::{CreateQpError, Time};
use urxe_wire::ROCE_V2_PORT as ROCE_PORT;

use self::faulty::FaultyCarrier;
use self::intake::Intake;
use self::network::NetworkCarrier;
use self::port_watch::PortWatch;
use self::sockets::{Sockets, Which};
use self::udp::SocketCarrier;
use crate::engine::EngineConfig;
use crate::engine::drive::clock::Clock;
use crate::engine::upkeep::counters::EngineCounters;
use crate::engine::upkeep::tap::Tap;
use crate::error::{Error, ErrorKind};
use crate::faults::FaultyPath;
use crate::network::Network;
use crate::share::{JoinError, Joined, Membership};

/// Carries packets. All calls come with the engine's lock held.
pub(in crate::engine) trait Carrier: Debug + Send {
    /// An empty batch of the size and kind that it takes.
    fn batch(&self) -> TxBatch;

    /// Takes the packets out of the batch, or what it left there the last time.
    fn send(&mut self, batch: &mut TxBatch, cx: &mut Sending<'_>) -> Sent;

    /// It has room for a batch. One that has none must come back by itself when it has.
    fn has_room(&self) -> bool {
        true
    }

    /// Fetches packets, with at most so many calls at each place where they arrive; true if there were any. One that
    /// brings packets by itself has nothing to fetch.
    fn receive(&mut self, _which: Which, _calls_max: u32, _intake: &mut Intake<'_>) -> bool {
        false
    }

    /// When a packet leaves that it keeps ([`Sent::Kept`]).
    fn due(&self) -> Option<Time> {
        None
    }

    /// A QP is about to go: the next [`Carrier::send`] takes along whatever is kept. False if nothing is.
    fn settle(&mut self, _now: Time) -> bool {
        false
    }

    /// Hears a multicast group from now on.
    fn join(&mut self, _group: IpAddr) -> Result<(), Error> {
        Err(NO_GROUPS.into())
    }

    /// Leaves the groups that have no members any more.
    fn leave(&mut self, _has_members: &dyn Fn(IpAddr) -> bool) {}

    /// The faults that packets meet on purpose.
    fn faults(&self) -> Option<&FaultyPath> {
        None
    }
}

/// What a carrier has of its surroundings while it sends.
pub(in crate::engine) struct Sending<'a> {
    pub(in crate::engine) now: Time,
    pub(in crate::engine) counters: &'a mut EngineCounters,
    pub(in crate::engine) tap: Option<&'a mut Tap>,
    /// Two packets that leave one after the other may be worth more in one train.
    pub(in crate::engine) expects_pairs: bool,
}

/// What became of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::engine) enum Sent {
    /// The batch is empty, and so is the carrier.
    All,
    /// The batch is empty, but the carrier keeps packets for later: it is to be asked at each turn.
    Kept,
    /// There was no room for all of it: the core must not fill the batch before the rest is gone.
    Full,
}

/// Where there are no groups.
pub(in crate::engine) const NO_GROUPS: ErrorKind =
    ErrorKind::Unsupported("a network that is no sockets has no multicast groups");

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
        sockets: Arc::new(Sockets::none(addrs, config.udp.clone())),
        membership: None,
        chunk: Some(QpnChunk(chunk)),
        port: Arc::new(PortWatch::on_network()),
        // A network captures by itself, in its own time.
        tap: None,
        recv_buffer: BUFFER_ON_NETWORK,
    })
}

fn on_sockets(config: &EngineConfig) -> Result<Opened, Error> {
    let (sockets, membership, chunk) = bind(config)?;
    let sockets = Arc::new(sockets);
    Ok(Opened {
        recv_buffer: u32::try_from(sockets.recv_buffer()).unwrap_or(u32::MAX),
        carrier: Box::new(SocketCarrier::new(sockets.clone())),
        clock: Clock::system(),
        sockets,
        membership,
        chunk,
        tap: config.tap.as_deref().map(Tap::create).transpose()?,
        port: Arc::new(PortWatch::new(config.addresses.iter().copied())),
    })
}

type Bound = (Sockets, Option<Arc<Membership>>, Option<QpnChunk>);

/// Binds the addresses: shared, if that is wanted and possible.
fn bind(config: &EngineConfig) -> Result<Bound, Error> {
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
        let mut numbers = SplitMix64::new(crate::engine::random()?);
        match Membership::join(addrs, ROCE_PORT, &config.udp, || numbers.bits()) {
            Ok(Joined {
                membership,
                sockets,
                chunk,
            }) => {
                let sockets = Sockets::shared(addrs, sockets, config.udp.clone());
                return Ok((sockets, Some(Arc::new(membership)), Some(chunk)));
            }
            Err(JoinError::Bind(addr, error)) => return Err(sockets::explain(addr, error)),
            Err(JoinError::Strangers(addr)) => return Err(ErrorKind::AddrInUse(addr).into()),
            // Without sharing it may be had all the same.
            Err(JoinError::NoRegistry(why)) => {
                let alone = Sockets::bind(addrs, &config.udp);
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
    Ok((Sockets::bind(addrs, &config.udp)?, None, None))
}
