//! Random scripts of strangers and peers against a communication manager. The same body is a
//! fuzz target.

use std::net::{IpAddr, Ipv4Addr};
use urxe_core::Time;
use urxe_core::cm::{Agent, AgentConfig, MadPath, Scope};
use urxe_core::qpn_table::QpnChunk;
use urxe_wire::MadHeader;
use urxe_wire::cm::PortSpace;

use crate::strangers::Reached;
use crate::{strangers, support};

#[test]
fn whatever_is_sent_nothing_is_left_and_little_is_kept() {
    let mut all = Reached::default();
    for seed in 0..3000u64 {
        let mut rng = support::Rng(seed);
        let len = rng.below(600) as usize;
        let script = rng.bytes(len);
        match std::panic::catch_unwind(|| strangers::run(&script)) {
            Ok(reached) => {
                all.requests += reached.requests;
                all.replies += reached.replies;
                all.established += reached.established;
                all.ended += reached.ended;
                all.answers += reached.answers;
                all.handshakes += reached.handshakes;
            }
            Err(panic) => {
                eprintln!("seed {seed} fails; script {script:?}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    println!("{all:?}");
    assert!(
        all.requests > 1000
            && all.established > 20
            && all.ended > 100
            && all.replies > 20
            && all.handshakes > 100,
        "the scripts reach too little: {all:?}"
    );
}

/// A million datagrams of random bytes, half of them with a good header.
#[test]
fn a_million_random_datagrams_are_counters() {
    let mut rng = support::Rng(7);
    let mut agent = Agent::new(AgentConfig {
        guid: 1,
        owner: QpnChunk(0x123),
        is_shared: false,
        secret: 5,
    });
    agent
        .listen(PortSpace::TCP, 7174, Scope::Any, 16)
        .expect("free");
    let path = MadPath {
        local: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
        remote: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)),
        tos: 0,
    };
    let (mut counted, mut noise) = (0, rng.bytes(4096));
    for n in 0..1_000_000_u64 {
        let at = rng.below(4096 - 256) as usize;
        noise[at] = n as u8;
        let mut mad = [0; 256];
        mad.copy_from_slice(&noise[at..at + 256]);
        if n % 2 == 0 {
            let attribute = 0x0f + rng.below(13) as u16;
            mad[..24].copy_from_slice(&MadHeader::cm(attribute, n).emit());
        }
        agent.handle_mad(Time(n), path, &mad);
        while agent.front().is_some() {
            agent.pop();
        }
        let counts = agent.take_counts();
        counted += counts.received + counts.malformed;
    }
    assert_eq!((counted, agent.len()), (1_000_000, 0));
    assert!(agent.poll_event().is_none());
}
