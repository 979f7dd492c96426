//! Upkeep: counters, captures, and memory that goes back to the system.

pub(super) mod counters;
mod fault_report;
pub(super) mod give_back;
pub(super) mod housekeeping;
pub(super) mod open_engines;
pub(super) mod tap;
