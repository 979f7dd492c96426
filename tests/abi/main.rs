//! The drop-in library from the outside: its symbols, and programs of the distribution that run on it.

mod faults;
mod harness;
mod programs;
mod pyverbs;
mod symbols;
mod ucx;
