//! The operations of `urxe bench` on one connected QP, by a [`plan`] that both sides have.

pub mod bandwidth;
pub mod latency;
pub mod link;
pub mod plan;
