//! What the QPs of a host were allowed to send, compared.
//!
//! A QP is backlogged between two looks if it can send at both (it has requests or READ responses, and no window, credit,
//! fence, RNR wait or rate keeps them back), and no turn has ended in between because it could not. How much goes out
//! is then its transport's choice alone: the adapter holds a packet or two, whatever class or destination they are of.

use urxe_core::Sending;

/// Bytes that a QP may lag behind, beside its part: turns are not infinitely short.
const SLACK: u64 = 4 * 4160;
/// Of two, neither gets less than this part of the other.
const LEAST: u64 = 4;

/// What each QP had sent at the last look.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    last: Vec<(u32, Sending)>,
}

impl Shares {
    /// Looks at all QPs of a host, always in the same order, new ones last. Returns the one that gets too little, and the
    /// fault in words.
    pub(crate) fn look(
        &mut self,
        qps: impl Iterator<Item = (u32, Sending)>,
    ) -> Option<(u32, String)> {
        let (mut least, mut most) = (None::<(u64, u32)>, None::<(u64, u32)>);
        let mut count = 0;
        for (place, (qpn, now)) in qps.enumerate() {
            count = place + 1;
            let Some(last) = self.last.get_mut(place) else {
                self.last.push((qpn, now));
                continue;
            };
            let (last_qpn, before) = core::mem::replace(last, (qpn, now));
            let is_backlogged = before.could_send && now.could_send && before.stops == now.stops;
            if last_qpn == qpn && is_backlogged {
                let sent = (u64::from(now.sent.wrapping_sub(before.sent)), qpn);
                least = Some(least.map_or(sent, |least| least.min(sent)));
                most = Some(most.map_or(sent, |most| most.max(sent)));
            }
        }
        self.last.truncate(count);
        let ((least, qpn), (most, other)) = (least?, most?);
        (most > LEAST * (least + SLACK)).then(|| {
            let fault = format!(
                "it could send all the time, and sent {least} bytes while QP {other:#x} sent {most}"
            );
            (qpn, fault)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sending(could_send: bool, sent: u32, stops: u16) -> Sending {
        Sending {
            could_send,
            sent,
            stops,
        }
    }

    /// What is found after a first and a second look at two QPs.
    fn found(first: [Sending; 2], second: [Sending; 2]) -> Option<u32> {
        let mut shares = Shares::default();
        let qps = |s: [Sending; 2]| [(7, s[0]), (9, s[1])].into_iter();
        assert_eq!(shares.look(qps(first)), None);
        shares.look(qps(second)).map(|(qpn, _)| qpn)
    }

    #[test]
    fn a_backlogged_qp_that_gets_nothing_is_found() {
        let before = [sending(true, 5, 0), sending(true, u32::MAX, 3)];
        let after = |a: u32, b: u32| [sending(true, 5 + a, 0), sending(true, b - 1, 3)];
        assert_eq!(found(before, after(0, 1 << 20)), Some(7));
        assert_eq!(found(before, after(1 << 20, 1 << 17)), Some(9));
        assert_eq!(found(before, after(1 << 20, 1 << 18)), None);
        assert_eq!(found(before, after(0, 60_000)), None, "a few turns");
    }

    #[test]
    fn who_could_not_send_all_the_time_is_not_compared() {
        let much = sending(true, 1 << 20, 0);
        for (before, after) in [
            (sending(false, 0, 0), sending(true, 0, 0)),
            (sending(true, 0, 0), sending(false, 0, 0)),
            (sending(true, 0, 0), sending(true, 0, 1)),
        ] {
            assert_eq!(found([before, sending(true, 0, 0)], [after, much]), None);
        }
    }
}
