//! The verbs API over loopback. One program has all of these tests: each program costs a link. What cannot share a process with others,
//! or comes with a feature alone, is a program of its own: `../Cargo.toml` says why.

mod async_events;
#[path = "common/capture.rs"]
mod capture;
mod cm;
mod cm_captures;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod cm_sharing;
mod cm_strangers;
mod common;
mod congestion;
mod cq;
mod datagrams;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod direct;
mod events;
mod fairness;
#[path = "common/fake_peer.rs"]
mod fake_peer;
mod faults;
mod forged_idents;
mod impaired;
mod many_qps;
mod matching;
mod memory;
mod memory_goes_back;
mod multicast_v6;
mod network;
mod objects;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod other_users;
mod pairs;
mod placement;
mod posting;
mod progress;
mod rdma;
mod sealed;
mod send_recv;
mod shards;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod sharing;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod sharing_limits;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod sharing_processes;
mod silence;
mod srq;
mod stat;
#[path = "common/stranger.rs"]
mod stranger;
mod strangers;
mod strict;
mod tags;
mod tags_model;
mod tap;
mod uc;
mod wc_status;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod wire;
mod xrc;

// The example of a matching layer: its files are modules of a crate's root.
#[path = "../examples/matching/curve.rs"]
#[allow(dead_code, unreachable_pub, reason = "tests use some of it")]
mod curve;
#[path = "../examples/matching/header.rs"]
#[allow(dead_code, unreachable_pub, reason = "tests use some of it")]
mod header;
#[path = "../examples/matching/layer.rs"]
#[allow(dead_code, unreachable_pub, reason = "tests use some of it")]
mod layer;
#[path = "../examples/matching/queues.rs"]
#[allow(dead_code, unreachable_pub, reason = "tests use some of it")]
mod queues;
