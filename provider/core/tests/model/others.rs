//! Services with random programs beside their scripted tests, in files of their
//! own. Those files are test binaries too; here they serve for their programs.

use crate::suite::{Run, Service};
use crate::{datagrams, placement, srq, xrc};

/// Datagrams.
pub(crate) const UD: Service = Service {
    name: "ud",
    programs: 500,
    run: |seed| Run::of(datagrams::random_datagrams(seed)),
};

/// Several QPs on one shared receive queue.
pub(crate) const SRQ: Service = Service {
    name: "srq",
    programs: 1_000,
    run: |seed| Run::of(srq::random_program(seed)),
};

/// Extended reliable connections: one connection, several queues.
pub(crate) const XRC: Service = Service {
    name: "xrc",
    programs: 1_000,
    run: |seed| Run::of(xrc::random_program(seed)),
};

/// ATOMIC WRITE and FLUSH.
pub(crate) const PLACEMENT: Service = Service {
    name: "placement",
    programs: 1_000,
    run: |seed| Run::of(placement::random_program(seed)),
};
