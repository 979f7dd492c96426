//! What the rest of the engine asks of the envelopes that packets are in.

use core::net::IpAddr;

use urxe_core::Time;
use urxe_core::cm::HelloBytes;
use urxe_seal::{Envelope, Initiator, Pair, PairEnds, Path, Refusal};
use urxe_wire::Qpn;

use crate::engine::upkeep::counters::EngineCounters;
use crate::error::Error;

/// Keeps envelopes, and the keys that the two ends of a connection agree on.
pub(in crate::engine) trait Keeper {
    /// Another process of this address opened a packet that is for this one, and hands it over. Refused if it was received before, or is
    /// under keys that its QP does not take.
    fn note_opened(
        &mut self,
        path: &Path,
        envelope: &Envelope,
        packet: &[u8],
        now: Time,
    ) -> Result<(), Refusal>;

    /// A peer that takes no packets of this side, as was found out by [`super::seam::Carrier::upkeep`].
    fn poll_refusing(&mut self) -> Option<Path>;

    /// Connections have keys of their own, and those that have none are refused.
    fn has_pairs(&self) -> bool;

    /// Begins a handshake.
    fn begin_pair(&self, ends: &PairEnds, now: Time) -> Result<(Initiator, HelloBytes), Error>;

    /// Answers a handshake that a peer begins.
    fn answer_pair(
        &self,
        ends: &PairEnds,
        hello: &HelloBytes,
        now: Time,
    ) -> Result<Result<(Pair, HelloBytes), Refusal>, Error>;

    /// Keeps the secrets of a pair out of core dumps.
    fn hide(&self, pair: &Pair);

    /// From now on packets of a QP and its peer are under the keys of their pair, and no others are taken. False if that cannot be.
    fn bind_pair(&mut self, pair: &Pair, addrs: (IpAddr, IpAddr), qpns: (Qpn, Qpn)) -> bool;

    /// A QP is gone, or another connection's: the keys of its pair are overwritten.
    fn unbind_pair(&mut self, own: Qpn);

    /// Gives back the memory of the keys of many pairs that are gone.
    fn shrink(&mut self);

    /// Opens a packet that another process of this address handed over as it came.
    fn open_handed(
        &mut self,
        path: &Path,
        packet: &[u8],
        now: Time,
        counters: &mut EngineCounters,
    ) -> Option<Vec<u8>>;

    /// Tells the user, once of each peer.
    fn say_of_pairs(&mut self, peer: IpAddr, text: &str);
}
