//! Calls of programs on their way into the engine: posts, and what watches them.

pub(super) mod inlet;
pub(super) mod inlets;
pub(super) mod post;
pub(super) mod srq;
pub(super) mod strict;
pub(super) mod watcher;
