//! Lists of connections by age, so that the oldest is found without a scan.

use crate::table::cut;

/// What those in a line have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Line {
    /// Answered, and nothing is heard.
    HalfOpen,
    /// Ended, without a holder.
    Resting,
    /// Without a holder; the peer is asked to end it.
    Leaving,
}

const LINES: usize = 3;

/// All lines, of which a place is in one at most.
#[derive(Debug, Default)]
pub(super) struct Lines {
    links: Vec<Link>,
    lines: [Ends; LINES],
}

/// The line of one place, and its neighbours there.
#[derive(Clone, Copy, Debug, Default)]
struct Link {
    line: Option<Line>,
    older: Option<u32>,
    newer: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Ends {
    oldest: Option<u32>,
    newest: Option<u32>,
    len: usize,
}

impl Lines {
    /// Puts a place at the end of that line, or in none; one that is in it already stays where it is.
    pub(super) fn stand(&mut self, place: usize, line: Option<Line>) {
        if self.links.len() <= place {
            if line.is_none() {
                return;
            }
            self.links.resize(place + 1, Link::default());
        }
        if self.links[place].line == line {
            return;
        }
        self.leave(place);
        if let Some(line) = line {
            self.join(place, line);
        }
    }

    /// The one that is in it for the longest time.
    pub(super) fn oldest(&self, line: Line) -> Option<usize> {
        self.lines[line as usize].oldest.map(|place| place as usize)
    }

    pub(super) fn len(&self, line: Line) -> usize {
        self.lines[line as usize].len
    }

    /// Gives up the places from `places` on, which are in no line.
    pub(super) fn shrink(&mut self, places: usize) {
        cut(&mut self.links, places);
    }

    fn join(&mut self, place: usize, line: Line) {
        let ends = &mut self.lines[line as usize];
        let before = ends.newest.replace(place as u32);
        ends.oldest.get_or_insert(place as u32);
        ends.len += 1;
        self.links[place] = Link {
            line: Some(line),
            older: before,
            newer: None,
        };
        if let Some(before) = before {
            self.links[before as usize].newer = Some(place as u32);
        }
    }

    fn leave(&mut self, place: usize) {
        let Link { line, older, newer } = core::mem::take(&mut self.links[place]);
        let Some(line) = line else { return };
        let ends = &mut self.lines[line as usize];
        ends.len -= 1;
        match older {
            Some(older) => self.links[older as usize].newer = newer,
            None => ends.oldest = newer,
        }
        match newer {
            Some(newer) => self.links[newer as usize].older = older,
            None => ends.newest = older,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    #[test]
    fn the_oldest_is_known_whoever_leaves() {
        const PLACES: u64 = 60;
        let mut lines = Lines::default();
        let mut model: [VecDeque<usize>; LINES] = Default::default();
        let all = [Line::HalfOpen, Line::Resting, Line::Leaving];
        let mut random = 1_u64;
        for _ in 0..100_000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let (place, line) = ((random >> 33) % PLACES, (random >> 50) as usize % 4);
            let place = place as usize;
            lines.stand(place, all.get(line).copied());
            let stays = model.get(line).is_some_and(|line| line.contains(&place));
            if !stays {
                model
                    .iter_mut()
                    .for_each(|line| line.retain(|p| *p != place));
                if let Some(line) = model.get_mut(line) {
                    line.push_back(place);
                }
            }
            for (line, model) in all.into_iter().zip(&model) {
                assert_eq!(lines.oldest(line), model.front().copied());
                assert_eq!(lines.len(line), model.len());
            }
        }
    }
}
