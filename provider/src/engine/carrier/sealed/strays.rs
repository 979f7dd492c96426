//! Packets of pairs that are not known here, where they may be another process's of this address, which has the keys.

use urxe_seal::Path;
use urxe_udp::Datagram;

use crate::engine::carrier::intake::Intake;
use crate::share::Handed;

/// Those of the datagrams that were received last.
#[derive(Debug, Default)]
pub(super) struct Strays {
    bytes: Vec<u8>,
    /// Where each ends, and what is told of it.
    packets: Vec<(usize, Stray)>,
}

#[derive(Clone, Copy, Debug)]
struct Stray {
    path: Path,
    source_port: u16,
    tos: u8,
}

impl Strays {
    /// Keeps a packet as it came.
    #[cold]
    pub(super) fn keep(&mut self, path: Path, about: &Datagram<'_>, packet: &[u8]) {
        self.bytes.extend_from_slice(packet);
        let stray = Stray {
            path,
            source_port: about.source.port(),
            tos: about.tos,
        };
        self.packets.push((self.bytes.len(), stray));
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Hands them to the owners of their QPs, if there are others.
    #[cold]
    pub(super) fn pass_on(&mut self, intake: &mut Intake<'_>) {
        let mut start = 0;
        for (end, stray) in self.packets.drain(..) {
            let handed = Handed {
                source: stray.path.source,
                source_port: stray.source_port,
                local: stray.path.dest,
                place: 0,
                tos: stray.tos,
                envelope: None,
                is_sealed: true,
                packet: &self.bytes[start..end],
            };
            if !intake.pass_on_sealed(&handed) {
                intake.counters.seal_refused_pair += 1;
            }
            start = end;
        }
        self.bytes.clear();
    }
}
