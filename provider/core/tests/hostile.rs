//! Random scripts of a hostile peer against one QP. The same body is a fuzz target.

#[path = "support/hostile.rs"]
mod hostile;
mod support;

#[test]
fn whatever_a_peer_sends_the_qp_stays_whole() {
    let (mut failed, mut executed) = (0, 0);
    for seed in 0..3000u64 {
        let mut rng = support::Rng(seed);
        let len = rng.below(400) as usize;
        let script = rng.bytes(len);
        match std::panic::catch_unwind(|| hostile::run(&script)) {
            Ok((state, messages)) => {
                failed += u32::from(state == urxe_core::qp::state::QpState::Err);
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
