//! Peers that do not take this side's packets, or of which none are taken here: both sides are told, so that no program waits
//! for what never comes. Nothing here is on the path of packets that open.
//!
//! A refusal is told to the sender, which cannot know where that comes from: so it quotes the packet's header, which is known only where
//! packets pass, and is believed only of a peer that was never heard. A refusal of a genuine packet is told in an envelope.

use core::net::IpAddr;

use urxe_core::Time;
use urxe_seal::{HEADER, NOTICE_LEN, Notice, Path, Refusal};

use crate::host::probe::Probe;

/// How often one peer is told.
const TELL_NS: u64 = 100_000_000;
/// Peers that are remembered for that, and what is heard in one go.
const PEERS_MAX: usize = 64;
/// Lines on standard error, at most: strangers may be many.
const LINES_MAX: u32 = 32;
/// How long a peer that was sent to may be silent before its port is looked at, and how long that must be closed.
pub(super) const SILENT_NS: u64 = 100_000_000;
pub(super) const CLOSED_LOOKS: u32 = 5;
pub(super) const LOOKS: u32 = 10;

/// What packets begin with that are for the peer's envelopes. No opcode begins so; the rest of a BTH follows, with QP 1.
pub(super) const CONTROL: [u8; 12] = [0xff, b's', b'e', b'a', 0, 0, 0, 1, 0, 0, 0, 0];
pub(super) const CONTROL_LEN: usize = CONTROL.len() + NOTICE_LEN + 4;

/// True if an opened packet is one of those.
#[inline]
pub(super) fn is_control(packet: &[u8]) -> bool {
    packet.first() == Some(&CONTROL[0])
}

/// What is in the clear of a sealed packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    /// Its header, of whatever version.
    pub(super) quoted: [u8; HEADER],
    /// It is for this side's envelopes, and nothing is answered to it.
    pub(super) is_control: bool,
}

impl Head {
    #[inline]
    pub(super) fn of(sealed: &[u8]) -> Option<Head> {
        Some(Head {
            quoted: *urxe_seal::header(sealed)?,
            is_control: is_control(sealed),
        })
    }
}

/// Something that was heard, and is to be acted upon.
#[derive(Clone, Debug)]
pub(super) enum News {
    /// A packet was refused.
    Refused {
        path: Path,
        refusal: Refusal,
        head: Head,
    },
    /// A peer says that it refuses packets.
    Notice {
        path: Path,
        notice: Notice,
        is_genuine: bool,
    },
}

#[derive(Debug, Default)]
pub(super) struct Peers {
    pub(super) news: Vec<News>,
    /// When each was told last.
    told: Vec<(Path, Time)>,
    /// What was said on standard error.
    said: Vec<(IpAddr, &'static str)>,
    lines: u32,
    /// Paths that packets were sent on for the first time.
    pub(super) silent: Vec<Silent>,
    pub(super) refusing: Vec<Path>,
}

/// A peer that was sent to, and has not answered so far.
#[derive(Debug)]
pub(super) struct Silent {
    pub(super) path: Path,
    pub(super) look_at: Time,
    pub(super) probe: Option<Probe>,
    /// How often its port was looked at, and how often it was found closed.
    pub(super) looks: u32,
    pub(super) closed: u32,
}

impl Peers {
    pub(super) fn hear(&mut self, news: News) {
        if self.news.len() < PEERS_MAX {
            self.news.push(news);
        }
    }

    #[cold]
    pub(super) fn hear_control(&mut self, path: Path, packet: &[u8]) {
        let end = packet.len() - 4;
        let notice = packet.get(CONTROL.len()..end).and_then(Notice::parse);
        if let Some(notice) = notice {
            let is_genuine = true;
            self.hear(News::Notice {
                path,
                notice,
                is_genuine,
            });
        }
    }

    pub(super) fn refuse(&mut self, path: Path, refusal: Refusal, head: Head, now: Time) {
        if !Notice::is_of(refusal) || path.dest.is_multicast() || !self.may_tell(path, now) {
            return;
        }
        self.hear(News::Refused {
            path,
            refusal,
            head,
        });
    }

    fn may_tell(&mut self, path: Path, now: Time) -> bool {
        let known = self.told.iter().position(|(told, _)| *told == path);
        if known.is_some_and(|place| now.since_ns(self.told[place].1) < TELL_NS) {
            return false;
        }
        match known {
            Some(place) => self.told[place].1 = now,
            None if self.told.len() < PEERS_MAX => self.told.push((path, now)),
            None => {
                // So many in all are told within that time.
                let oldest = self.told.iter().enumerate().min_by_key(|(_, told)| told.1);
                let oldest = oldest.map(|(place, told)| (place, told.1));
                match oldest {
                    Some((place, at)) if now.since_ns(at) >= TELL_NS => {
                        self.told[place] = (path, now);
                    }
                    _ => return false,
                }
            }
        }
        true
    }

    /// Packets leave on a path for the first time.
    #[cold]
    pub(super) fn expect(&mut self, path: Path, now: Time) {
        if path.dest.is_multicast() || self.silent.len() >= PEERS_MAX {
            return;
        }
        if !self.silent.iter().any(|silent| silent.path == path) {
            self.silent.push(Silent {
                path,
                look_at: now + SILENT_NS,
                probe: None,
                looks: 0,
                closed: 0,
            });
        }
    }

    /// Says something once of each peer.
    pub(super) fn say(&mut self, peer: IpAddr, what: &'static str, text: &str) {
        let is_new = !self.said.contains(&(peer, what));
        if is_new && self.lines < LINES_MAX {
            self.lines += 1;
            self.said.push((peer, what));
            eprintln!("urxe: {text}");
            if self.lines == LINES_MAX {
                eprintln!("urxe: more of that kind is counted, and not told");
            }
        }
    }
}
