//! What is done about what was heard of peers ([`super::peers`]): they are told, the user is, and connections fail.

use urxe_core::Time;
use urxe_seal::{Envelope, NOTICE_LEN, Notice, OVERHEAD, Path, Refusal, VERSION};
use urxe_udp::{Dest, SendBatch, Transmit};

use super::Envelopes;
use super::peers::{CLOSED_LOOKS, CONTROL, CONTROL_LEN, Head, LOOKS, News, SILENT_NS};
use crate::engine::carrier::intake::Intake;
use crate::engine::carrier::sockets::Sockets;
use crate::host::probe::Probe;

impl Envelopes {
    /// Acts upon what was heard.
    #[inline]
    pub(in crate::engine::carrier) fn act(&mut self, sockets: &Sockets, intake: &mut Intake<'_>) {
        if !self.peers.news.is_empty() {
            self.act_on_news(sockets, intake);
        }
        if !self.strays.is_empty() {
            self.strays.pass_on(intake);
        }
    }

    #[cold]
    fn act_on_news(&mut self, sockets: &Sockets, intake: &mut Intake<'_>) {
        for news in std::mem::take(&mut self.peers.news) {
            let failed = match news {
                News::Refused {
                    path,
                    refusal,
                    head,
                } => self.on_refused(path, refusal, head, sockets),
                News::Notice {
                    path,
                    notice,
                    is_genuine,
                } => self.on_notice(path, notice, is_genuine).inspect(|_| {
                    intake.counters.seal_refused_by_peer += 1;
                }),
            };
            if let Some(path) = failed {
                let ends = (path.source, path.dest);
                intake.parts.with(|shard, env| shard.fail_peer(ends, env));
            }
        }
    }

    /// Tells the peer, and this side's user. Returns the way to the peer, if no connection to it can be.
    fn on_refused(
        &mut self,
        path: Path,
        refusal: Refusal,
        head: Head,
        sockets: &Sockets,
    ) -> Option<Path> {
        let (own, mode_min) = (self.key_id(), self.opener.mode_min());
        let notice = Notice::new(head.quoted, own, mode_min);
        let is_stranger = !self.opener.has_heard(&path);
        let (peer, back) = (path.source, reverse(path));
        if let Refusal::TooWeak(mode) = refusal {
            self.send_control(back, &notice.emit(), sockets);
            let text = format!(
                "packets of {peer} are refused: their mode is {mode}, and this process requires {mode_min} (URXE_SECURITY)"
            );
            self.peers.say(peer, "mode", &text);
            // The packet may be an old one, or of another process there than that of the connections.
            return is_stranger.then_some(back);
        }
        send(sockets, back, &notice.emit());
        if is_stranger {
            let (what, why) = match refusal {
                Refusal::OtherVersion(version) => (
                    "version",
                    format!(
                        "they are sealed by version {version}, and this process has version {VERSION}: both need the same version of urxe"
                    ),
                ),
                Refusal::OtherKey(key) => (
                    "key",
                    format!("they are sealed under key {key:04x}, and this process has {own:04x}"),
                ),
                Refusal::Forged => (
                    "secret",
                    format!(
                        "their tags are wrong: they were made without the secrets of key {own:04x}"
                    ),
                ),
                refusal => ("epoch", refusal.to_string()),
            };
            let text =
                format!("packets of {peer} are refused: {why} (`urxe key show-id`, URXE_KEY_FILE)");
            self.peers.say(peer, what, &text);
            // A peer that refuses this side's packets as well says so when it gets one.
            if !head.is_control {
                self.send_control(back, &[0; NOTICE_LEN], sockets);
            }
        }
        None
    }

    /// A peer refuses this side's packets. Returns the way to it, if that is believed.
    fn on_notice(&mut self, path: Path, notice: Notice, is_genuine: bool) -> Option<Path> {
        let back = reverse(path);
        let quoted = Envelope::parse(&notice.quoted);
        let is_believed = quoted.is_some_and(|it| self.sealer.has_sent(&back, &it))
            && (is_genuine || !self.opener.has_heard(&path));
        if !is_believed {
            return None;
        }
        let (peer, own, mode) = (path.source, self.key_id(), self.mode());
        let text = if notice.version != VERSION {
            let theirs = notice.version;
            format!(
                "{peer} refuses packets of this process: it seals by version {theirs}, and this process by version {VERSION}: both need the same version of urxe"
            )
        } else if notice.key_id != own {
            let theirs = notice.key_id;
            format!(
                "{peer} refuses packets of this process: its key is {theirs:04x}, and this process has {own:04x} (`urxe key show-id`, URXE_KEY_FILE)"
            )
        } else if notice.mode_min > mode {
            let wanted = notice.mode_min;
            format!(
                "{peer} refuses packets of this process: it requires mode {wanted}, and they have {mode} (URXE_SECURITY)"
            )
        } else {
            format!(
                "{peer} refuses packets of this process: its key file has other epochs or secrets than that of this process, though both are key {own:04x}, or its clock is far off"
            )
        };
        self.peers.say(peer, "refuses", &text);
        Some(back)
    }

    fn send_control(&mut self, path: Path, body: &[u8; NOTICE_LEN], sockets: &Sockets) {
        let mut packet = [0; CONTROL_LEN];
        packet[..CONTROL.len()].copy_from_slice(&CONTROL);
        packet[CONTROL.len()..][..NOTICE_LEN].copy_from_slice(body);
        let mut sealed = [0; CONTROL_LEN + OVERHEAD];
        self.sealer.on(path).seal(&packet, &mut sealed);
        send(sockets, path, &sealed);
    }

    /// Looks at peers that are silent: perhaps no program has their port of sealed packets. Returns when to look again.
    pub(in crate::engine::carrier) fn look_at_silent(&mut self, now: Time) -> Option<Time> {
        let mut silent = std::mem::take(&mut self.peers.silent);
        silent.retain_mut(|silent| {
            if silent.look_at > now {
                return true;
            }
            if self.opener.has_heard(&reverse(silent.path)) {
                return false;
            }
            silent.look_at = now + SILENT_NS;
            let (from, to) = (silent.path.source, silent.path.dest);
            if silent.probe.is_none() {
                silent.probe = Probe::new(from, (to, urxe_seal::PORT)).ok();
            }
            let Some(probe) = &silent.probe else {
                return false;
            };
            silent.looks += 1;
            silent.closed += u32::from(probe.is_refused());
            if silent.closed < CLOSED_LOOKS {
                return silent.looks < LOOKS;
            }
            let text = format!(
                "no program at {to} has UDP port {}, where sealed packets go: is its URXE_SECURITY off, or the program not running?",
                urxe_seal::PORT
            );
            self.peers.say(to, "closed", &text);
            self.peers.refusing.push(silent.path);
            false
        });
        let due = silent.iter().map(|silent| silent.look_at).min();
        self.peers.silent = silent;
        due
    }
}

fn reverse(path: Path) -> Path {
    Path {
        source: path.dest,
        dest: path.source,
    }
}

/// One that cannot be sent is lost, as any.
fn send(sockets: &Sockets, path: Path, bytes: &[u8]) {
    let to = Dest::new((path.dest, urxe_seal::PORT).into());
    if let Some(socket) = sockets.of(path.source) {
        let _ = socket.send(SendBatch {
            bytes,
            transmits: &[Transmit::single(0..bytes.len(), to)],
        });
    }
}
