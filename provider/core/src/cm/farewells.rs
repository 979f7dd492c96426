//! The agent's part in what is said for processes that were killed ([`Farewell`]).

use super::agent::{Agent, Outgoing};
use super::farewell::Farewell;
use super::terms::MadPath;
use crate::shard::Handled;
use crate::time::Time;

impl Agent {
    /// From now on [`Agent::poll_farewell`] is called after everything that the agent does.
    pub fn keep_farewells(&mut self) {
        self.changes.is_kept = true;
    }

    /// A connection that began or ended: its place, and what is to be said if the process ends without a word.
    pub fn poll_farewell(&mut self) -> Option<(usize, Option<Farewell>)> {
        let place = self.changes.places.pop()? as usize;
        Some((place, self.conns.at(place).and_then(Farewell::of)))
    }

    /// True if there is one.
    pub(super) fn has_farewells(&self) -> bool {
        !self.changes.places.is_empty()
    }

    /// The state of a connection is another, or it is about to go.
    pub(super) fn note_change(&mut self, place: usize, is_going: bool) {
        let Some(conn) = self.conns.at_mut(place).filter(|_| self.changes.is_kept) else {
            return;
        };
        let lasts = !is_going && Farewell::of(conn).is_some();
        if lasts != conn.has_farewell {
            conn.has_farewell = lasts;
            self.changes.places.push(place as u32);
        }
    }

    /// Takes the farewell of a peer's owner, if the connection is one of this agent's.
    pub fn take_farewell(&mut self, now: Time, farewell: &Farewell) -> Handled {
        let Farewell { path, .. } = farewell;
        let path = MadPath {
            local: path.remote,
            remote: path.local,
            tos: path.tos,
        };
        self.handle_mad(now, path, &farewell.mad())
    }

    /// Says farewell in the name of another owner of the address.
    pub fn say_farewell(&mut self, farewell: &Farewell) {
        self.out.push_back(Outgoing {
            path: farewell.path,
            mad: Box::new(farewell.mad()),
        });
    }
}
