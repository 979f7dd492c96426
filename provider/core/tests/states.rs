//! The state machine: the whole table as a snapshot, and the blame in each refusal.

use std::fmt::Write;

use crate::support::*;
use urxe_core::Time;
use urxe_core::qp::attr::{AddressVector, AttrMask, Mtu, QpAttr};
use urxe_core::qp::state::{ModifyError, QpState, QpType, transition};
use urxe_core::work::{PostError, RecvWr, SendWr, WrData, WrOpcode};
use urxe_wire::Qpn;

#[test]
fn the_table_of_transitions() {
    let mut table = String::new();
    use QpType::*;
    for service in [Rc, Uc, Ud, XrcSend, XrcRecv] {
        for from in QpState::ALL {
            for to in QpState::ALL {
                if let Some(t) = transition(service, from, to) {
                    writeln!(
                        table,
                        "{service:?} {from} -> {to}: needs {}; takes {}",
                        t.required, t.optional
                    )
                    .expect("a String takes it");
                }
            }
        }
    }
    insta::assert_snapshot!(table);
}

fn modify(node: &mut Node, attr: &QpAttr, mask: AttrMask) -> Result<(), ModifyError> {
    let qp = node.qp;
    node.with_env(Time::ZERO, |s, env| s.modify_qp(qp, attr, mask, env))
}

const INIT: AttrMask = AttrMask::STATE
    .union(AttrMask::PKEY_INDEX)
    .union(AttrMask::PORT)
    .union(AttrMask::ACCESS_FLAGS);
const RTR: AttrMask = AttrMask::STATE
    .union(AttrMask::AV)
    .union(AttrMask::PATH_MTU)
    .union(AttrMask::DEST_QPN)
    .union(AttrMask::RQ_PSN)
    .union(AttrMask::MAX_DEST_RD_ATOMIC)
    .union(AttrMask::MIN_RNR_TIMER);

fn init_node() -> Node {
    let mut node = Node::new(0, &Settings::default());
    let attr = QpAttr {
        qp_state: QpState::Init,
        ..QpAttr::default()
    };
    modify(&mut node, &attr, INIT).expect("to INIT");
    node
}

fn rtr_attr() -> QpAttr {
    QpAttr {
        qp_state: QpState::Rtr,
        dest_qp_num: Qpn::new(77),
        ah_attr: Some(AddressVector {
            local: "10.0.0.1".parse().expect("an address"),
            remote: "10.0.0.2".parse().expect("an address"),
            traffic_class: 0,
            hop_limit: 64,
        }),
        ..QpAttr::default()
    }
}

#[test]
fn a_missing_attribute_is_named() {
    let mut node = Node::new(0, &Settings::default());
    let attr = QpAttr {
        qp_state: QpState::Init,
        ..QpAttr::default()
    };
    let error = modify(&mut node, &attr, AttrMask::STATE | AttrMask::PORT).expect_err("refused");
    assert_eq!(
        error.to_string(),
        "RESET to INIT needs ACCESS_FLAGS|PKEY_INDEX in the attribute mask"
    );
    assert_eq!(node.state(), QpState::Reset, "nothing has changed");
}

#[test]
fn an_attribute_too_many_is_named() {
    let mut node = Node::new(0, &Settings::default());
    let attr = QpAttr {
        qp_state: QpState::Init,
        ..QpAttr::default()
    };
    let error = modify(&mut node, &attr, INIT | AttrMask::SQ_PSN).expect_err("refused");
    assert_eq!(
        error.to_string(),
        "RESET to INIT does not take SQ_PSN in the attribute mask"
    );
}

#[test]
fn a_transition_that_does_not_exist_is_named() {
    let mut node = init_node();
    let attr = QpAttr {
        qp_state: QpState::Rts,
        ..QpAttr::default()
    };
    let error = modify(&mut node, &attr, AttrMask::STATE).expect_err("refused");
    assert_eq!(
        error,
        ModifyError::Transition {
            from: QpState::Init,
            to: QpState::Rts
        }
    );
}

type Spoil = fn(&mut QpAttr);

#[test]
fn every_value_out_of_range_is_named_and_nothing_changes() {
    let bad: [(&str, Spoil); 6] = [
        ("min_rnr_timer", |a| a.min_rnr_timer = 32),
        ("max_dest_rd_atomic", |a| a.max_dest_rd_atomic = 129),
        ("dest_qp_num", |a| a.dest_qp_num = Qpn::new(1)),
        ("ah_attr", |a| a.ah_attr = None),
        ("ah_attr", |a| {
            if let Some(av) = &mut a.ah_attr {
                av.remote = "::1".parse().expect("an address");
            }
        }),
        ("ah_attr", |a| {
            if let Some(av) = &mut a.ah_attr {
                av.remote = "224.0.0.1".parse().expect("an address");
            }
        }),
    ];
    for (name, spoil) in bad {
        let mut node = init_node();
        let before = node.shard.query_qp(node.qp);
        let mut attr = rtr_attr();
        spoil(&mut attr);
        let error = modify(&mut node, &attr, RTR).expect_err(name);
        assert!(error.to_string().contains(name), "{error}");
        assert_eq!(node.shard.query_qp(node.qp), before, "{name}");
    }
    let mut node = init_node();
    modify(&mut node, &rtr_attr(), RTR).expect("the same without a fault");
    let rts = AttrMask::STATE
        | AttrMask::SQ_PSN
        | AttrMask::TIMEOUT
        | AttrMask::RETRY_CNT
        | AttrMask::RNR_RETRY
        | AttrMask::MAX_QP_RD_ATOMIC;
    let bad: [(&str, Spoil); 4] = [
        ("timeout", |a| a.timeout = 32),
        ("retry_cnt", |a| a.retry_cnt = 8),
        ("rnr_retry", |a| a.rnr_retry = 8),
        ("max_rd_atomic", |a| a.max_rd_atomic = 255),
    ];
    for (name, spoil) in bad {
        let mut attr = QpAttr {
            qp_state: QpState::Rts,
            ..QpAttr::default()
        };
        spoil(&mut attr);
        let error = modify(&mut node, &attr, rts).expect_err(name);
        assert!(error.to_string().starts_with(name), "{error}");
    }
}

#[test]
fn cur_state_must_be_true() {
    let mut p = Pair::new(&Settings::default(), 1);
    let attr = QpAttr {
        qp_state: QpState::Rts,
        cur_qp_state: QpState::Sqd,
        ..QpAttr::default()
    };
    let error = modify(
        &mut p.nodes[0],
        &attr,
        AttrMask::STATE | AttrMask::CUR_STATE,
    )
    .expect_err("refused");
    assert_eq!(
        error,
        ModifyError::CurState {
            claimed: QpState::Sqd,
            actual: QpState::Rts
        }
    );
}

#[test]
fn query_says_what_was_set() {
    let mut node = init_node();
    let mut attr = rtr_attr();
    attr.path_mtu = Mtu::Mtu2048;
    attr.min_rnr_timer = 9;
    modify(&mut node, &attr, RTR).expect("to RTR");
    let (is, init) = node.shard.query_qp(node.qp).expect("exists");
    assert_eq!((is.path_mtu, is.min_rnr_timer), (Mtu::Mtu2048, 9));
    assert_eq!((is.qp_state, is.cur_qp_state), (QpState::Rtr, QpState::Rtr));
    assert_eq!(is.ah_attr, attr.ah_attr);
    assert_eq!(init.cap, Settings::default().cap);
}

/// State by state: may one post?
#[test]
fn posts_by_state() {
    let post = |node: &mut Node| {
        let qp = node.qp;
        let send = node.with_env(Time::ZERO, |s, env| {
            s.post_send(qp, &SendWr::new(1, WrOpcode::Send, WrData::Sges(&[])), env)
        });
        let recv = node.with_env(Time::ZERO, |s, env| {
            s.post_recv(
                qp,
                &RecvWr {
                    wr_id: 1,
                    sges: &[],
                },
                env,
            )
        });
        (send, recv)
    };
    let mut node = Node::new(0, &Settings::default());
    assert_eq!(
        post(&mut node),
        (
            Err(PostError::SendState(QpState::Reset)),
            Err(PostError::RecvState(QpState::Reset))
        ),
        "RESET"
    );
    let mut node = init_node();
    assert_eq!(
        post(&mut node),
        (Err(PostError::SendState(QpState::Init)), Ok(())),
        "INIT"
    );
    modify(&mut node, &rtr_attr(), RTR).expect("to RTR");
    assert_eq!(
        post(&mut node),
        (Err(PostError::SendState(QpState::Rtr)), Ok(())),
        "RTR"
    );
    let mut p = Pair::new(&Settings::default(), 1);
    for state in [QpState::Rts, QpState::Sqd, QpState::Err] {
        let attr = QpAttr {
            qp_state: state,
            ..QpAttr::default()
        };
        modify(&mut p.nodes[0], &attr, AttrMask::STATE).expect("goes there");
        assert_eq!(post(&mut p.nodes[0]), (Ok(()), Ok(())), "{state}");
    }
}
