//! Random scripts of a hostile peer against one QP. The same body is a fuzz target.

use urxe_core::qp::state::{QpState, QpType};

use crate::{claims, hostile_peer, support};

#[test]
fn whatever_a_peer_sends_the_qp_stays_whole() {
    stays_whole(hostile_peer::run);
}

/// One that is believed when it says which packets it has.
#[test]
fn whatever_a_peer_claims_to_have_the_qp_stays_whole() {
    stays_whole(hostile_peer::run_selective);
}

/// It says of any packets that it has them: nothing is done for that, and everything once it is true.
#[test]
fn what_a_peer_claims_is_no_progress() {
    let (mut posted, mut claimed) = (0, 0);
    for seed in 0..3000u64 {
        let mut rng = support::Rng(seed);
        let len = rng.below(300) as usize;
        let script = rng.bytes(len);
        match std::panic::catch_unwind(|| claims::run(&script)) {
            Ok((requests, claims)) => (posted, claimed) = (posted + requests, claimed + claims),
            Err(panic) => {
                eprintln!("seed {seed} fails; script {script:?}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    println!("{posted} requests, {claimed} claims");
    assert!(posted > 10_000 && claimed > 20_000, "{posted}, {claimed}");
}

fn stays_whole(run: fn(&[u8]) -> (QpState, u64)) {
    let (mut failed, mut executed) = (0, 0);
    for seed in 0..3000u64 {
        let mut rng = support::Rng(seed);
        let len = rng.below(400) as usize;
        let script = rng.bytes(len);
        match std::panic::catch_unwind(|| run(&script)) {
            Ok((state, messages)) => {
                failed += u32::from(state == QpState::Err);
                executed += messages;
            }
            Err(panic) => {
                eprintln!("seed {seed} fails; script {script:?}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    println!("{failed} of 3000 QPs failed, {executed} messages were executed");
    assert!(
        failed > 500 && executed > 500,
        "the scripts reach too little: {failed}, {executed}"
    );
}

/// The services that acknowledge nothing drop what they cannot take, and go on.
#[test]
fn whatever_strangers_send_unreliable_qps_go_on() {
    for qp_type in [QpType::Uc, QpType::Ud] {
        let mut executed = 0;
        for seed in 0..2000u64 {
            let mut rng = support::Rng(seed);
            let len = rng.below(400) as usize;
            let script = rng.bytes(len);
            match std::panic::catch_unwind(|| hostile_peer::run_as(qp_type, &script)) {
                Ok((state, messages)) => {
                    assert_eq!(state, QpState::Rts, "{qp_type:?}, seed {seed}");
                    executed += messages;
                }
                Err(panic) => {
                    eprintln!("{qp_type:?}, seed {seed} fails; script {script:?}");
                    std::panic::resume_unwind(panic);
                }
            }
        }
        println!("{qp_type:?}: {executed} messages were executed");
        assert!(executed > 500, "{qp_type:?}: only {executed} messages");
    }
}
