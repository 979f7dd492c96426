//! Observing events (`Tap`), and interfering with them (`Interference`).

use core::cell::RefCell;
use core::fmt;
use std::rc::Rc;

use urxe_wire::{Pause, PauseFrame};

use crate::engine::{Span, Time};
use crate::fabric::stats::DropReason;
use crate::fabric::{Fabric, LITE_BODY};
use crate::frame::{Bodies, Frame, Payload};
use crate::switch::IngressUse;
use crate::topology::PortId;

/// Something that happened to a frame or a port.
#[derive(Clone, Copy, Debug)]
pub enum TapEvent<'a> {
    /// The port begins to send the frame.
    Sending {
        /// Where.
        port: PortId,
        /// What.
        frame: &'a Frame,
        /// Its bytes, without the check sequence; empty in `lite` mode.
        bytes: &'a [u8],
    },
    /// The frame has arrived at the port.
    Arrived {
        /// Where.
        port: PortId,
        /// What.
        frame: &'a Frame,
        /// As in `Sending`.
        bytes: &'a [u8],
    },
    /// The frame ended here.
    Dropped {
        /// Where.
        port: PortId,
        /// What.
        frame: &'a Frame,
        /// As in `Sending`.
        bytes: &'a [u8],
        /// Why.
        reason: DropReason,
    },
    /// The frame was marked as it joined the port's queue.
    Marked {
        /// The port of the queue.
        port: PortId,
        /// What.
        frame: &'a Frame,
    },
    /// The neighbour stopped or released a class of the port.
    Paused {
        /// The port that must wait.
        port: PortId,
        /// Which class.
        priority: u8,
        /// Stopped or released.
        is_paused: bool,
    },
    /// A queue grew or shrank.
    Queue {
        /// The port.
        port: PortId,
        /// Which class.
        priority: u8,
        /// Its length now.
        bytes: u64,
    },
    /// What came through a port of a switch grew or shrank in the switch's buffer.
    Buffered {
        /// Through which.
        port: PortId,
        /// The class.
        priority: u8,
        /// What it takes now.
        taken: IngressUse,
    },
    /// The port is about to tell its neighbour something; the frame may have to wait for one that is being sent.
    Telling {
        /// The port that tells.
        port: PortId,
        /// What.
        pause: Pause,
        /// Why.
        cause: PauseCause,
    },
}

/// Why a port sends a pause frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PauseCause {
    /// So much of the class waits behind this port that the neighbour has to stop.
    Full {
        /// The class.
        priority: u8,
        /// Bytes.
        held: u64,
    },
    /// So little is left that it may go on.
    Free {
        /// The class.
        priority: u8,
        /// Bytes.
        held: u64,
    },
    /// It must still stop, and is told again before its pause ends.
    Again,
    /// The simulation's driver wanted it ([`crate::Fabric::send_pause`]).
    Asked,
}

/// Sees everything that happens. It is called in the order of events, and can change nothing.
pub trait Tap: fmt::Debug {
    /// Something happened.
    fn event(&mut self, now: Time, event: &TapEvent<'_>);

    /// To get the tap back from [`crate::Fabric::take_tap`].
    fn into_any(self: Box<Self>) -> Box<dyn core::any::Any>;
}

/// A tap that its owner goes on looking at.
impl<T: Tap + 'static> Tap for Rc<RefCell<T>> {
    fn event(&mut self, now: Time, event: &TapEvent<'_>) {
        self.borrow_mut().event(now, event);
    }

    fn into_any(self: Box<Self>) -> Box<dyn core::any::Any> {
        self
    }
}

/// All taps: each sees everything, the first that was added first.
#[derive(Debug)]
pub(crate) struct Taps(pub(crate) Vec<Box<dyn Tap>>);

impl Taps {
    pub(crate) fn event(&mut self, now: Time, event: &TapEvent<'_>) {
        for tap in &mut self.0 {
            tap.event(now, event);
        }
    }
}

impl Fabric {
    /// Tells taps of something that happens now.
    #[inline]
    pub(crate) fn show(&mut self, event: TapEvent<'_>) {
        if let Some(tap) = &mut self.tap {
            tap.event(self.queue.now(), &event);
        }
    }

    /// Looks at everything that happens from now on, with one tap more.
    pub fn add_tap(&mut self, tap: Box<dyn Tap>) {
        self.tap.get_or_insert_with(|| Taps(Vec::new())).0.push(tap);
    }

    /// Takes the tap out that was added last, with what it gathered.
    pub fn take_tap(&mut self) -> Option<Box<dyn Tap>> {
        let taps = &mut self.tap.as_mut()?.0;
        let last = taps.pop();
        if taps.is_empty() {
            self.tap = None;
        }
        last
    }
}

/// The bytes of a frame without its check sequence; none if it has none, or in `lite` mode.
pub(crate) fn bytes_of<'a>(bodies: &'a Bodies, frame: &Frame) -> &'a [u8] {
    match frame.payload {
        Payload::Roce { body, .. } if bodies.len_max() > LITE_BODY => {
            &bodies.get(body)[..frame.len as usize - 4]
        }
        Payload::Pause {
            body: Some(body), ..
        } => &bodies.get(body)[..PauseFrame::LEN],
        _ => &[],
    }
}

/// The outcome of a frame on a cable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// Nothing special.
    Pass,
    /// The frame is lost.
    Lose,
    /// The frame arrives so much later; frames behind it may overtake it.
    Delay(Span),
    /// The frame arrives, and once more so much later.
    Duplicate(Span),
    /// The frame arrives with a wrong check sequence.
    Corrupt,
}

/// Decides on each frame that leaves a port.
pub trait Interference: fmt::Debug {
    /// `frame` has left `port`; `bytes` are the frame's without its check sequence (in `lite` mode
    /// the packet's first). Both may be changed: what is changed here goes unnoticed by the check
    /// sequence, as if a switch had done it.
    fn on_wire(&mut self, now: Time, port: PortId, frame: &mut Frame, bytes: &mut [u8]) -> Fate;
}
