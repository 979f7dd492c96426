//! Classes of traffic: which frame belongs to which of the eight priorities, which priorities lose
//! nothing and by what means, and which class goes first.

use core::array;

use urxe_wire::Pause;

use crate::engine::{Rate, Span};
use crate::frame::Frame;

/// Number of priorities.
pub const PRIORITIES: usize = 8;

/// How lossless classes are kept lossless.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum FlowControl {
    /// No flow control: every class drops when buffers are full.
    None,
    /// Priority flow control (802.1Qbb): a receiver pauses single classes.
    Pfc(PauseTimes),
    /// Pause (802.3x): a receiver pauses everything. Then no class is kept apart from another.
    Pause(PauseTimes),
    /// Link-level credits, as in InfiniBand: a sender sends what its neighbour has promised room for.
    /// The room is set aside for each port and class.
    Credits {
        /// Bytes of buffer behind each port and class.
        buffer: u32,
        /// Bytes that are given back together in one credit update.
        update: u32,
    },
}

/// What pause frames say, and how often.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PauseTimes {
    /// Quanta in a pause frame; a quantum is 512 bit times.
    pub quanta: u16,
    /// How often a pause that goes on is told again, in parts of its time: 2 is after half of it.
    pub refreshes: u32,
}

impl Default for PauseTimes {
    /// The longest pause there is, told again at half of it.
    fn default() -> Self {
        PauseTimes {
            quanta: u16::MAX,
            refreshes: 2,
        }
    }
}

impl PauseTimes {
    /// How long so many quanta last at a rate.
    pub fn of_quanta(quanta: u16, rate: Rate) -> Span {
        rate.time_of(u64::from(quanta) * u64::from(urxe_wire::PAUSE_QUANTUM_BITS) / 8)
    }

    /// Time between two pause frames while a pause goes on.
    pub(crate) fn refresh(&self, rate: Rate) -> Span {
        let whole = PauseTimes::of_quanta(self.quanta, rate);
        Span::from_ps((whole.ps() / u64::from(self.refreshes.max(1))).max(1))
    }
}

/// Which field of a frame names its class.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trust {
    /// The DSCP of the IP header.
    #[default]
    Dscp,
    /// The priority of a VLAN tag: frames carry one, and are 4 bytes longer.
    Pcp,
}

/// Classes and how they are served; the same in all nodes.
#[derive(Clone, Debug)]
pub struct Qos {
    /// Where a frame's class is read.
    pub trust: Trust,
    /// Priority of each DSCP.
    pub dscp_map: [u8; 64],
    /// Bit n: priority n loses nothing.
    pub lossless: u8,
    /// How.
    pub flow_control: FlowControl,
    /// Bit n: priority n goes before all others that are not strict; of several the highest first.
    pub strict: u8,
    /// Shares of the priorities that are not strict (deficit weighted round robin).
    pub weights: [u8; PRIORITIES],
}

impl Default for Qos {
    /// As RoCE networks are set up: DSCP 26 is priority 3 and lossless by PFC, DSCP 48 (CNPs) is
    /// priority 6 and strict, all other frames are of priority 0. Equal shares.
    fn default() -> Self {
        let mut dscp_map = [0; 64];
        dscp_map[26] = 3;
        dscp_map[48] = 6;
        Qos {
            trust: Trust::Dscp,
            dscp_map,
            lossless: 1 << 3,
            flow_control: FlowControl::Pfc(PauseTimes::default()),
            strict: 1 << 6,
            weights: [1; PRIORITIES],
        }
    }
}

impl Qos {
    /// TOS byte of lossless RoCE traffic under the default map: DSCP 26, ECT(0).
    pub const ROCE_TOS: u8 = 26 << 2 | 2;

    /// TOS byte of CNPs under the default map: DSCP 48.
    pub const CNP_TOS: u8 = 48 << 2;

    /// The class of a TOS byte.
    #[inline]
    pub fn priority_of(&self, tos: u8) -> u8 {
        self.dscp_map[usize::from(tos >> 2)] & 7
    }

    /// True if the class loses nothing.
    #[inline]
    pub fn is_lossless(&self, priority: u8) -> bool {
        self.flow_control != FlowControl::None && self.lossless & (1 << priority) != 0
    }

    /// What pause frames say, if that is how neighbours are stopped.
    pub(crate) fn pause_times(&self) -> Option<PauseTimes> {
        match self.flow_control {
            FlowControl::Pfc(times) | FlowControl::Pause(times) => Some(times),
            _ => None,
        }
    }

    /// The pause frame that stops these classes (bit n: class n) for so long.
    pub(crate) fn pause(&self, classes: u8, quanta: u16) -> Pause {
        match self.flow_control {
            FlowControl::Pause(_) => Pause::All(quanta),
            _ => Pause::Priorities {
                enabled: u16::from(classes),
                quanta: array::from_fn(|p| u16::from(classes >> p & 1) * quanta),
            },
        }
    }

    /// Classes that the ingress of a switch keeps apart and protects.
    pub(crate) fn protected(&self) -> u8 {
        match self.flow_control {
            FlowControl::None => 0,
            _ => self.lossless,
        }
    }

    /// Bytes that the class's field adds to a frame.
    pub fn tag_len(&self) -> u32 {
        match self.trust {
            Trust::Dscp => 0,
            Trust::Pcp => 4,
        }
    }

    /// The class of a frame.
    #[inline]
    pub(crate) fn classify(&self, frame: &Frame) -> u8 {
        match self.trust {
            Trust::Dscp => self.priority_of(frame.tos),
            // The tag is written from the class when the frame is made.
            Trust::Pcp => frame.priority,
        }
    }
}
