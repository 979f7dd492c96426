//! Several contexts of one process on one address. What depends on the kernel's numbers of sockets is alone in its
//! process: while another test's thread forks, the child has all sockets for a moment.

use crate::common;
use crate::common::{End, address, alone, connect};
use urxe::{ConnectOptions, Context};

fn end_at(addr: std::net::IpAddr) -> End {
    End::on(Context::open(addr).expect("shared"))
}

#[test]
fn contexts_of_one_address_talk_to_each_other_and_to_others() {
    alone(
        "sharing::contexts_of_one_address_talk_to_each_other_and_to_others",
        || {
            let shared = address();
            let ends: Vec<End> = (0..6).map(|_| end_at(shared)).collect();
            let other = [End::open(), End::open()];
            let options = ConnectOptions::default();
            connect(&ends[0].qp, &ends[1].qp, &options);
            connect(&ends[2].qp, &ends[3].qp, &options);
            connect(&ends[4].qp, &other[0].qp, &options);
            connect(&ends[5].qp, &other[1].qp, &options);
            for round in 0..5 {
                common::exchange(&ends[0], &ends[1], round);
                common::exchange(&ends[2], &ends[3], round + 10);
                common::exchange(&ends[4], &other[0], round + 20);
                common::exchange(&ends[5], &other[1], round + 30);
            }
            // The kernel steered: no context got another's packets.
            for end in &ends {
                assert_eq!(end.counter("handed_over"), 0);
                assert_eq!(end.counter("drop_no_qp"), 0);
            }
        },
    );
}

#[test]
fn qpns_of_one_address_are_all_different() {
    let shared = address();
    let contexts: Vec<Context> = (0..3)
        .map(|_| Context::open(shared).expect("shared"))
        .collect();
    let mut seen = std::collections::BTreeSet::new();
    let mut keep = Vec::new();
    for context in &contexts {
        let pd = context.alloc_pd().expect("a PD");
        let cq = context.create_cq(1).expect("a CQ");
        // More than one chunk holds.
        for _ in 0..5000 {
            let qp = pd.qp(&cq).max_send_wr(1).max_recv_wr(1).max_sge(1);
            let qp = qp.max_inline_data(0).create().expect("QPNs are left");
            assert!(seen.insert(qp.qp_num()), "{:?} twice", qp.qp_num());
            keep.push(qp);
        }
    }
}

#[test]
fn when_one_leaves_the_others_go_on() {
    alone("sharing::when_one_leaves_the_others_go_on", || {
        let shared = address();
        let mut ends: Vec<Option<End>> = (0..5).map(|_| Some(end_at(shared))).collect();
        let far: Vec<End> = (0..5).map(|_| End::open()).collect();
        for (near, far) in ends.iter().flatten().zip(&far) {
            connect(&near.qp, &far.qp, &ConnectOptions::default());
        }
        // From the front, so that the kernel renumbers the rest.
        for leaving in 0..4 {
            ends[leaving] = None;
            for (near, far) in ends.iter().zip(&far) {
                if let Some(near) = near {
                    common::exchange(near, far, leaving as u64);
                    assert_eq!(near.counter("handed_over"), 0, "the steering was wrong");
                }
            }
        }
    });
}

#[test]
fn what_the_kernel_steers_wrong_is_handed_over_and_put_right() {
    alone(
        "sharing::what_the_kernel_steers_wrong_is_handed_over_and_put_right",
        || {
            let shared = address();
            let (first, second) = (end_at(shared), end_at(shared));
            let far = End::open();
            connect(&second.qp, &far.qp, &ConnectOptions::default());
            common::exchange(&second, &far, 1);
            assert_eq!(second.counter("taken_over"), 0);
            common::steer_all_to(shared, 0);
            common::exchange(&second, &far, 2);
            assert!(first.counter("handed_over") > 0);
            assert!(second.counter("taken_over") > 0);
            assert_eq!(first.counter("drop_no_qp"), 0);
            // A context that was handed something corrects the program.
            let mut before = 0;
            common::wait_until("the kernel steers right again", || {
                before = first.counter("handed_over");
                common::exchange(&second, &far, 3);
                first.counter("handed_over") == before
            });
            common::exchange(&second, &far, 4);
            assert_eq!(first.counter("handed_over"), before);
        },
    );
}
