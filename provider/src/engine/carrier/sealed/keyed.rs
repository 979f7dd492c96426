//! Keys of pairs: those that the two ends of a connection agreed on, and no other process has.

use core::net::IpAddr;

use urxe_core::Time;
use urxe_core::cm::HelloBytes;
use urxe_seal::{Envelope, Initiator, Pair, PairEnds, PairRandom, Path, Refusal, respond};
use urxe_wire::Qpn;
use zeroize::Zeroizing;

use super::{Envelopes, HIDE};
use crate::engine::carrier::keeper::Keeper;
use crate::engine::upkeep::counters::EngineCounters;
use crate::error::Error;
use crate::host::random::random;

impl Keeper for Envelopes {
    fn note_opened(
        &mut self,
        path: &Path,
        envelope: &Envelope,
        packet: &[u8],
        now: Time,
    ) -> Result<(), Refusal> {
        let seconds = self.clock.seconds(now);
        self.opener.note(path, envelope, packet, seconds)
    }

    fn poll_refusing(&mut self) -> Option<Path> {
        self.peers.refusing.pop()
    }

    fn has_pairs(&self) -> bool {
        self.sealing.has_pairs
    }

    fn begin_pair(&self, ends: &PairEnds, now: Time) -> Result<(Initiator, HelloBytes), Error> {
        let seconds = self.clock.seconds(now);
        let keys = self.opener.keys();
        Ok(Initiator::new(keys, seconds, ends, *pair_random()?))
    }

    fn answer_pair(
        &self,
        ends: &PairEnds,
        hello: &HelloBytes,
        now: Time,
    ) -> Result<Result<(Pair, HelloBytes), Refusal>, Error> {
        let seconds = self.clock.seconds(now);
        let keys = self.opener.keys();
        let answered = respond(keys, seconds, ends, hello, *pair_random()?);
        if let Ok((pair, _)) = &answered {
            pair.hide(HIDE);
        }
        Ok(answered)
    }

    fn bind_pair(
        &mut self,
        pair: &Pair,
        (local, remote): (IpAddr, IpAddr),
        (own, peer): (Qpn, Qpn),
    ) -> bool {
        let (own, peer) = (own.get(), peer.get());
        self.unbind_pair(Qpn::new(own));
        let out = Path {
            source: local,
            dest: remote,
        };
        let back = Path {
            source: remote,
            dest: local,
        };
        if !self.opener.bind(pair, back, own) {
            return false;
        }
        let number = self.sealer.bind(pair, out, peer);
        self.bound.insert(own, (out, peer, number));
        true
    }

    fn unbind_pair(&mut self, own: Qpn) {
        if let Some((path, peer, number)) = self.bound.remove(&own.get()) {
            self.opener.unbind(own.get());
            self.sealer.unbind(path, peer, number);
        }
    }

    fn shrink(&mut self) {
        self.opener.shrink();
        self.sealer.shrink();
        self.bound.shrink_to_fit();
    }

    #[cold]
    fn open_handed(
        &mut self,
        path: &Path,
        packet: &[u8],
        now: Time,
        counters: &mut EngineCounters,
    ) -> Option<Vec<u8>> {
        let mut bytes = packet.to_vec();
        let (seconds, all) = (self.clock.seconds(now), 0..packet.len());
        match self.opener.open(path, seconds, &mut bytes, all, 0) {
            Ok(opened) => {
                counters.seal_opened += 1;
                bytes.truncate(opened.len);
                Some(bytes)
            }
            Err(refusal) => {
                counters.count_refusal(refusal);
                None
            }
        }
    }

    fn hide(&self, pair: &Pair) {
        pair.hide(HIDE);
    }

    fn say_of_pairs(&mut self, peer: IpAddr, text: &str) {
        self.peers.say(peer, "pairs", text);
    }
}

fn pair_random() -> Result<Zeroizing<PairRandom>, Error> {
    let mut bytes = Zeroizing::new([0; size_of::<PairRandom>()]);
    for part in bytes.chunks_mut(8) {
        part.copy_from_slice(&random()?.to_ne_bytes()[..part.len()]);
    }
    Ok(bytes)
}
