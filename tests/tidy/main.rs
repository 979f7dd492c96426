//! The house rules that a machine can check (CONTRIBUTING.md has them in prose).

mod arrows;
mod documents;
mod environment;
mod modules;
mod packages;
mod programs;
mod source;
mod tree;
mod words;
