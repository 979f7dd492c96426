//! The configuration of a switch.

use crate::engine::Span;
use crate::qos::PRIORITIES;
use crate::switch::balance::Balance;
use crate::switch::mark::Marking;

/// Up to how much of a shared pool one class of one port may fill.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Threshold {
    /// A constant number of bytes.
    Static(u64),
    /// So many times what is still free: the more is used, the less each may have (Choudhury and
    /// Hahne).
    Dynamic(f64),
}

/// What the watchdog does with a queue that is paused for too long.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WatchdogAction {
    /// Drops what is in it and what comes.
    #[default]
    Drop,
    /// Sends in spite of the pause.
    Forward,
}

/// The PFC watchdog: ends what would otherwise stand still for ever.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Watchdog {
    /// How long a queue that holds frames may be paused without sending one.
    pub detect: Span,
    /// How long the action lasts; longer if the pause is still told then.
    pub restore: Span,
    /// What is done.
    pub action: WatchdogAction,
}

impl Default for Watchdog {
    /// 200 ms and 200 ms, as is common in data centres.
    fn default() -> Self {
        Watchdog {
            detect: Span::from_ms(200),
            restore: Span::from_ms(200),
            action: WatchdogAction::Drop,
        }
    }
}

/// What a switch does with the queues of a port that has no carrier.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeadQueue {
    /// Drops what is in them and what comes, and has the room in its buffer again: what switches do.
    #[default]
    Flush,
    /// Keeps it until the carrier is back. Meanwhile it takes room, and can stop frames that go elsewhere.
    Keep,
}

/// A switch's settings. All lengths are bytes of frames, check sequence included.
#[derive(Clone, Debug)]
pub struct SwitchConfig {
    /// The whole buffer.
    pub buffer: u64,
    /// A frame takes whole cells of so many bytes.
    pub cell: u32,
    /// Set aside for each port and class, before anything shared is used.
    pub reserved: u32,
    /// Up to where a lossless class may fill the shared pool before its sender is paused.
    pub threshold: Threshold,
    /// A paused sender is released when use has fallen so much below the threshold.
    pub xon_offset: u32,
    /// Room for what arrives after a pause was sent, by port and lossless class; `None`: what
    /// [`headroom::required`](crate::switch::headroom::required) says.
    pub headroom: Option<u32>,
    /// All headroom together, if it is less than each port's and class's own would add up to.
    pub headroom_pool: Option<u64>,
    /// Up to where the queue of a lossy class may grow.
    pub lossy_threshold: Threshold,
    /// Bytes that only lossy classes use; `None`: they share the pool of the lossless ones.
    pub lossy_pool: Option<u64>,
    /// Marking by class.
    pub marking: [Option<Marking>; PRIORITIES],
    /// What ends a pause without end.
    pub watchdog: Option<Watchdog>,
    /// What becomes of a queue of a port that loses its carrier.
    pub dead_queue: DeadQueue,
    /// From the last bit of a frame that came to its place in the queue that it leaves by.
    pub latency: Span,
    /// How frames are spread over equal paths.
    pub balance: Balance,
}

impl Default for SwitchConfig {
    fn default() -> Self {
        SwitchConfig {
            buffer: 32 << 20,
            cell: 1,
            reserved: 0,
            threshold: Threshold::Dynamic(1.0),
            xon_offset: 2 * 1500,
            headroom: None,
            headroom_pool: None,
            lossy_threshold: Threshold::Dynamic(1.0),
            lossy_pool: None,
            marking: [None; PRIORITIES],
            watchdog: None,
            dead_queue: DeadQueue::Flush,
            latency: Span::ZERO,
            balance: Balance::Ecmp,
        }
    }
}
