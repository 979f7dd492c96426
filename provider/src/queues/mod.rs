//! Queues between the engine and the program: of completions, and of events. They know neither.

use core::any::Any;
use std::sync::Weak;

mod channel;
mod cq;
mod cq_table;
mod ends;
mod moderation;
mod taker;

pub(crate) use channel::{Channel, Permit, Sleep};
pub(crate) use cq::{Armed, CqChannel, CqCore, CqInit, WouldLose};
pub(crate) use cq_table::CqTable;
pub(crate) use ends::{CompletingQp, Ends};
pub(crate) use taker::{EACH_MAX, Each, Taker};

/// The program's object that an event is for, if it still is. The module that has such objects knows their type.
pub(crate) type Object = Weak<dyn Any + Send + Sync>;
