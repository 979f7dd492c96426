//! Which of several equal paths a frame takes.

use crate::engine::{Rng, Span, Time};
use crate::topology::PortId;

/// How a switch spreads frames over equal paths.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Balance {
    /// By a hash of addresses and ports: a flow has one path, and may share it with others by bad luck.
    #[default]
    Ecmp,
    /// A flow that paused for so long takes a path by lot (LetFlow, Vanini et al., NSDI 2017). If the pause is longer than
    /// paths differ, nothing comes out of order.
    Flowlets(Span),
    /// Each frame by the port that will be free first (lots decide between equal ones). Frames of a flow overtake each other.
    Adaptive,
    /// Each frame by lot (Dixit et al., INFOCOM 2013). Frames of a flow overtake each other.
    Spray,
    /// Each frame by the next port in turn (Cao et al., CoNEXT 2013). Frames of a flow overtake each other, by less.
    Rotate,
}

impl Balance {
    /// The pause after which a flow may take another path, unless a file says otherwise.
    pub const FLOWLET_GAP: Span = Span::from_us(50);
}

/// Flows that a switch knows apart. Two with the same place share their fate, as in hardware.
const FLOWLETS: usize = 4096;

/// Where a flow's last frame went, and when.
#[derive(Clone, Copy, Debug)]
struct Flowlet {
    last: Time,
    port: PortId,
}

/// What a switch remembers for it.
#[derive(Clone, Debug)]
pub(crate) struct Balancer {
    rng: Rng,
    flowlets: Vec<Option<Flowlet>>,
    turn: u32,
}

impl Balancer {
    pub(crate) fn new(balance: Balance, rng: Rng) -> Balancer {
        let flowlets = match balance {
            Balance::Flowlets(_) => vec![None; FLOWLETS],
            _ => Vec::new(),
        };
        Balancer {
            rng,
            flowlets,
            turn: 0,
        }
    }

    /// One of these ports by lot; only of those with a carrier, if any has.
    pub(crate) fn draw(&mut self, ports: &[PortId], is_up: impl Fn(PortId) -> bool) -> PortId {
        self.least(ports, |port| u64::from(!is_up(port)))
    }

    /// The next port in turn; only of those with a carrier, if any has.
    pub(crate) fn rotate(&mut self, ports: &[PortId], is_up: impl Fn(PortId) -> bool) -> PortId {
        let count = ports.len() as u32;
        let place = |turn: u32| ports[(turn % count) as usize];
        let first = self.turn;
        let turn = (first..first.saturating_add(count)).find(|&turn| is_up(place(turn)));
        let turn = turn.unwrap_or(first);
        self.turn = (turn % count) + 1;
        place(turn)
    }

    /// The port of the least cost; by lot, if several have it.
    pub(crate) fn least(&mut self, ports: &[PortId], cost: impl Fn(PortId) -> u64) -> PortId {
        let least = ports.iter().map(|&port| cost(port)).min();
        let best = || ports.iter().filter(|&&port| Some(cost(port)) == least);
        let drawn = self.rng.below(best().count() as u64) as usize;
        *best().nth(drawn).unwrap_or(&ports[0])
    }

    /// The port of a flow's frame: that of the one before, unless that was long ago.
    pub(crate) fn flowlet(
        &mut self,
        now: Time,
        gap: Span,
        flow_hash: u32,
        ports: &[PortId],
        is_up: impl Fn(PortId) -> bool,
    ) -> PortId {
        let place = flow_hash as usize % FLOWLETS;
        let known = self.flowlets[place].filter(|known| {
            now.since(known.last) < gap && is_up(known.port) && ports.contains(&known.port)
        });
        let port = known.map_or_else(|| self.draw(ports, is_up), |known| known.port);
        self.flowlets[place] = Some(Flowlet { last: now, port });
        port
    }
}
