//! Detects programs that wait by looking at their memory.
//!
//! Such a program calls nothing until a WRITE of its peer has changed a byte. It polls a
//! completion queue now and then, so it looks like one that drives the engine by itself;
//! but what arrives while it looks at its memory is the progress thread's to fetch, and a
//! tick is a thousand times what the wire takes. So the thread takes note of packets
//! that lay waiting while the program was silent, and then watches the sockets for a while
//! although the program drove a moment ago.

/// A program that polls comes back within a microsecond or two, or, where the thread itself
/// took its processor for a wake-up, within some ten. After this long it is doing something
/// else. (With less the thread takes its own disturbance for the program's silence.)
pub(in crate::engine) const SILENT_NS: u64 = 30_000;
/// At a tick: a program that looks at its memory has been silent since it answered what the tick before fetched. With 30 us
/// the small messages of `urxe bench fairness` have a p99 of 10 to 20 times what they have alone, in place of 2.5.
pub(in crate::engine) const SILENT_AT_TICK_NS: u64 = 300_000;
/// Wake-ups for nothing in a row until the thread believes that the program polls. Each of
/// a program's messages may bring one, for the answer that it does poll for. So many are lost where a program that polls was
/// scheduled out at a tick: `urxe bench send --lat` shows nothing of them. With 4, `ib_write_lat -n 4000` with each side on one CPU
/// (`taskset`) beside other load takes 1.1 ms a message, as without any vigilance, and with 16 half of that.
const CREDIT: u8 = 16;
/// Turns in a row in which the program polled and could not drive. One that polls now and then is in fewer. A stream never ends the
/// thread's watch: without this both look at it by turns.
const ASKED_TURNS: u8 = 16;

/// What the progress thread has seen of the program.
#[derive(Debug, Default)]
pub(in crate::engine) struct Vigilance {
    /// Wake-ups for nothing that are still allowed; 0 while it is off.
    credit: u8,
    /// Turns of this thread in a row in which the program wanted to drive.
    asked_turns: u8,
}

impl Vigilance {
    /// True if the sockets are to be watched although the program drives.
    pub(in crate::engine) fn is_on(&self) -> bool {
        self.credit > 0
    }

    /// A tick, at which packets lay there that the program was too silent to fetch, or not.
    pub(in crate::engine) fn on_tick(&mut self, found: bool) {
        // The first time already: if the program had to be found so three times in a row, the same `ib_write_lat` would take
        // 0.58 ms a message in place of 0.05.
        if found {
            self.credit = CREDIT;
        }
    }

    /// The thread had a turn, in which a thread of the program polled and could not drive, or not. True if that is so time and again: the
    /// program does nothing else, and the thread leaves the engine to it.
    pub(in crate::engine) fn on_turn(&mut self, is_asked: bool) -> bool {
        self.asked_turns = if is_asked { self.asked_turns + 1 } else { 0 };
        let leaves = self.asked_turns == ASKED_TURNS;
        if leaves {
            *self = Vigilance::default();
        }
        leaves
    }

    /// The thread watched the sockets, and found packets that the program did not fetch, or not.
    pub(in crate::engine) fn on_watch(&mut self, found: bool) {
        if !self.is_on() {
            return;
        }
        self.credit = if found {
            (self.credit + 1).min(CREDIT)
        } else {
            self.credit - 1
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_polls_and_was_scheduled_out_is_soon_alone() {
        let mut vigilance = Vigilance::default();
        vigilance.on_tick(false);
        assert!(!vigilance.is_on());
        vigilance.on_tick(true);
        let wakes = (0..100).take_while(|_| {
            vigilance.on_watch(false);
            vigilance.is_on()
        });
        assert_eq!(wakes.count() + 1, usize::from(CREDIT));
    }

    #[test]
    fn a_program_that_looks_at_its_memory_is_watched_for_as_long_as_it_does() {
        let mut vigilance = Vigilance::default();
        vigilance.on_tick(true);
        // Every message is fetched by the thread, and every ACK by the program.
        for _ in 0..1000 {
            vigilance.on_watch(true);
            vigilance.on_watch(false);
            assert!(vigilance.is_on());
        }
        vigilance.on_watch(true);
        for n in 1..=CREDIT {
            assert!(vigilance.is_on(), "{n}");
            vigilance.on_watch(false);
        }
        assert!(!vigilance.is_on(), "now it polls");
    }

    #[test]
    fn a_few_finds_do_not_keep_it_on() {
        let mut vigilance = Vigilance::default();
        vigilance.on_tick(true);
        for _ in 0..20 {
            for found in [true, false, false, false] {
                vigilance.on_watch(found);
            }
        }
        assert!(!vigilance.is_on());
        vigilance.on_watch(true);
        assert!(!vigilance.is_on(), "only ticks switch it on");
    }

    #[test]
    fn a_program_that_polls_all_the_time_is_left_alone() {
        let mut vigilance = Vigilance::default();
        vigilance.on_tick(true);
        // It polls now and then, between looks at its memory.
        for _ in 0..100 {
            assert!((1..ASKED_TURNS).all(|_| !vigilance.on_turn(true)));
            assert!(!vigilance.on_turn(false));
        }
        assert!(vigilance.is_on());
        let turns = (1..).find(|_| vigilance.on_turn(true));
        assert_eq!(turns, Some(ASKED_TURNS.into()));
        assert!(!vigilance.is_on());
        assert!(!vigilance.on_turn(true), "it begins anew");
    }
}
