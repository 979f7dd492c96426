//! The events that a program can wait for.

use core::fmt;
use std::sync::Arc;

use urxe::network::Ready;

use crate::engine::{Span, Time};
use crate::program::TaskId;

/// A program gives its turn back: it was busy for so long, and now waits.
#[derive(Clone, Debug)]
pub(crate) struct Wait {
    /// The time that its own doing took so far.
    pub(crate) busy: Span,
    pub(crate) reason: Reason,
}

/// For what.
#[derive(Clone, Debug)]
pub(crate) enum Reason {
    /// For nothing but its own doing.
    Busy,
    /// The program polled, and will poll again; its tasks have something to do at that time.
    Poll { until: Option<Time> },
    /// For an event of a channel.
    Event {
        event: Arc<dyn Ready>,
        deadline: Option<Time>,
    },
    /// For a time.
    Until(Time),
    /// For a word on the board.
    Word(String),
    /// For another task's end.
    End(TaskId),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Busy => f.write_str("is at work"),
            Reason::Poll { .. } => f.write_str("polls for a completion"),
            Reason::Event { event, deadline } => {
                let how_long = if deadline.is_none() { ", for ever" } else { "" };
                write!(f, "waits for {}{how_long}", event.what())
            }
            Reason::Until(time) => write!(f, "sleeps until {time}"),
            Reason::Word(key) => write!(f, "asks for \"{key}\", which no program told"),
            Reason::End(task) => write!(f, "waits for the end of task {}", task.0),
        }
    }
}
