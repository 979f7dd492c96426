//! Tests that see the whole of urxe, and the examples of the documents.

#![forbid(unsafe_code)]

/// The README, so that its example is compiled and run.
#[doc = include_str!("../../README.md")]
#[cfg(doctest)]
pub struct Readme;
