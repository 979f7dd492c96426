//! Two runs side by side: where they part.

use core::cell::RefCell;
use core::fmt;
use std::collections::VecDeque;
use std::rc::Rc;

use crate::Sim;
use crate::engine::{Span, Time};
use crate::fabric::{Tap, TapEvent};
use crate::frame::{Frame, Payload};
use crate::topology::{PortId, PortName, Topology};

/// Something that happened in a run, as far as runs are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Happening {
    /// When.
    pub at: Time,
    /// Where.
    pub port: PortId,
    what: What,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    Sends(Content),
    Arrived(Content),
    Dropped(Content, &'static str),
    Marked(Content),
    Paused(u8),
    Released(u8),
}

/// A frame, as far as frames are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Content {
    src: u32,
    dst: u32,
    len: u32,
    tos: u8,
    digest: u64,
    is_control: bool,
}

impl Content {
    fn of(frame: &Frame) -> Content {
        Content {
            src: frame.src.0,
            dst: frame.dst.0,
            len: frame.len,
            tos: frame.tos,
            digest: frame.digest,
            is_control: !matches!(frame.payload, Payload::Flow { .. } | Payload::Roce { .. }),
        }
    }
}

impl Happening {
    /// In words, with the names of its network.
    pub fn describe(&self, topology: &Topology) -> String {
        format!(
            "{}: {} {}",
            self.at,
            PortName(topology, self.port),
            self.what
        )
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::Sends(content) => write!(f, "begins to send {content}"),
            What::Arrived(content) => write!(f, "has sent, and the other end has, {content}"),
            What::Dropped(content, why) => write!(f, "drops {content} ({why})"),
            What::Marked(content) => write!(f, "marks {content}"),
            What::Paused(class) => write!(f, "must wait with class {class}"),
            What::Released(class) => write!(f, "may go on with class {class}"),
        }
    }
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (len, digest) = (self.len, self.digest);
        if self.is_control {
            return write!(f, "a control frame ({digest:016x})");
        }
        let (src, dst, tos) = (self.src, self.dst, self.tos);
        write!(
            f,
            "{len} bytes of host {src} to host {dst}, TOS {tos:#04x} ({digest:016x})"
        )
    }
}

#[derive(Debug, Default)]
struct Recorder(VecDeque<Happening>);

impl Tap for Recorder {
    fn event(&mut self, now: Time, event: &TapEvent<'_>) {
        let (port, what) = match event {
            TapEvent::Sending { port, frame, .. } => (*port, What::Sends(Content::of(frame))),
            TapEvent::Arrived { port, frame, .. } => {
                (port.peer(), What::Arrived(Content::of(frame)))
            }
            TapEvent::Dropped {
                port,
                frame,
                reason,
                ..
            } => (*port, What::Dropped(Content::of(frame), reason.name())),
            TapEvent::Marked { port, frame } => (*port, What::Marked(Content::of(frame))),
            TapEvent::Paused {
                port,
                priority,
                is_paused: true,
            } => (*port, What::Paused(*priority)),
            TapEvent::Paused { port, priority, .. } => (*port, What::Released(*priority)),
            _ => return,
        };
        self.0.push_back(Happening {
            at: now,
            port,
            what,
        });
    }

    fn into_any(self: Box<Self>) -> Box<dyn core::any::Any> {
        self
    }
}

/// Where two runs part.
#[derive(Clone, PartialEq, Debug)]
pub struct Difference {
    /// What happened in both before, and how often something did.
    pub before: Option<Happening>,
    /// Number of what was the same.
    pub same: u64,
    /// What happened then in the first run; `None` if nothing did.
    pub first: Option<Happening>,
    /// And in the second.
    pub second: Option<Happening>,
}

/// A run, and until when.
pub type Run<'a> = (&'a mut Sim, Time);

/// How far one run is ahead of the other at most.
const SLICE: Span = Span::from_us(20);

/// Runs two simulations side by side until something happens in one that does not in the other. If nothing does, it returns how much happened, in both.
///
/// # Errors
/// [`Difference`] is what happened.
pub fn compared(runs: [Run<'_>; 2]) -> Result<u64, Box<Difference>> {
    let recorders = [(); 2].map(|()| Rc::new(RefCell::new(Recorder::default())));
    let mut sims = runs;
    for ((sim, _), recorder) in sims.iter_mut().zip(&recorders) {
        sim.fabric_mut().add_tap(Box::new(Rc::clone(recorder)));
    }
    let (mut before, mut same) = (None, 0);
    loop {
        // An idle time is passed over at once.
        let next = sims.iter_mut().filter_map(|(sim, until)| {
            let next = sim.fabric_mut().next_event()?;
            (next <= *until).then_some(next)
        });
        let next = next.min();
        let stop = next.map(|next| next + SLICE);
        for (sim, until) in &mut sims {
            let stop = stop.map_or(*until, |stop| stop.min(*until));
            sim.advance(stop);
        }
        let [mut a, mut b] = recorders.each_ref().map(|recorder| recorder.borrow_mut());
        loop {
            match (a.0.front(), b.0.front()) {
                (None, None) => break,
                (x, y) if x == y => before = x.copied(),
                (first, second) => {
                    return Err(Box::new(Difference {
                        before,
                        same,
                        first: first.copied(),
                        second: second.copied(),
                    }));
                }
            }
            a.0.pop_front();
            b.0.pop_front();
            same += 1;
        }
        if next.is_none() {
            return Ok(same);
        }
    }
}
