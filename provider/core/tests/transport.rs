//! The transport as a state machine, on a virtual wire. One program has all of these tests: each program costs a link.

mod ack_answer;
mod ack_order;
mod ack_pairs;
mod asking;
mod checks;
#[path = "support/claims.rs"]
mod claims;
mod cm_hostile;
mod congestion;
mod datagrams;
mod details;
mod errors;
mod fairness;
mod hostile;
#[path = "support/hostile.rs"]
mod hostile_peer;
mod last_ack;
mod middle;
mod only;
mod placement;
mod places;
mod rules;
#[path = "support/script.rs"]
mod script;
mod sqd;
mod srq;
mod states;
#[path = "support/cm_hostile.rs"]
mod strangers;
mod support;
mod tags;
mod uc;
mod wan;
mod windows;
mod xrc;
