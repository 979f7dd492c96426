//! The simulator, and what runs over it in virtual time. One program has all of these tests, as each program costs a link. What measures
//! time or counts allocations has one of its own.

mod checks;
mod connections;
#[path = "../end/mod.rs"]
mod end;
mod experiments;
mod fabric;
mod fairness;
mod faults;
mod jobs;
mod kept;
mod lock;
mod multicast;
mod networks;
mod observe;
mod planes;
mod program_checks;
mod program_ends;
mod program_pages;
mod programs;
#[path = "../race/mod.rs"]
mod race;
mod races;
mod remote;
mod scenario_text;
mod scenarios;
mod thread_jobs;
mod threads;
mod transport;
mod workloads;
