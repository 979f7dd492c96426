//! Congestion control over real sockets.

use std::time::Instant;

use crate::common::{self, End, address, bytes, connect, exchange, pair, pair_with, pattern};
use urxe::congestion::{CongestionControl, DcqcnParams, DelayParams, Rate};
use urxe::{ConnectOptions, Context, ErrorKind, QpType, SendWr};

fn dcqcn(rate: Rate) -> CongestionControl {
    CongestionControl::Dcqcn(DcqcnParams::at(rate))
}

/// A WRITE of so many bytes, verified.
fn write(from: &End, to: &End, len: usize) {
    let (source, target) = (from.memory(len), to.memory(len));
    let data = pattern(len as u64, len);
    source.write(0, &data);
    let whole = [source.sge(..)];
    let wr = SendWr::rdma_write(1, &whole, target.addr(), target.rkey());
    from.qp.post_send(&wr.signaled()).expect("room");
    from.succeed();
    assert!(bytes(&target, len) == data, "the data arrived");
}

#[test]
fn every_control_carries_every_operation() {
    for control in [
        CongestionControl::None,
        CongestionControl::Auto,
        CongestionControl::Path,
        CongestionControl::Window { bytes: 8192 },
        dcqcn(Rate::from_gbps(10)),
        CongestionControl::Delay(DelayParams::target(100_000)),
    ] {
        let (a, b) = pair();
        for end in [&a, &b] {
            end.qp.set_congestion_control(control).expect("takes it");
            let found = end.qp.congestion_control().expect("tells");
            assert_eq!(found, control);
        }
        exchange(&a, &b, 1);
        write(&a, &b, 1 << 20);
    }
}

#[test]
fn a_rate_is_not_exceeded() {
    let (a, b) = pair();
    // 4 MiB at 1 Gbit/s take 34 ms, of which the burst saves a quarter of a millisecond.
    let rate = Rate::from_gbps(1);
    a.qp.set_congestion_control(dcqcn(rate)).expect("takes it");
    let (len, start) = (4 << 20, Instant::now());
    write(&a, &b, len);
    let took = start.elapsed().as_nanos() as u64;
    let least = (len as u64 - (64 << 10)) * 8;
    assert!(took > least, "{took} ns, less than {least}");
}

/// Packets leave as if a switch had marked every one.
#[test]
fn marks_are_answered_over_sockets() {
    const CONGESTION_EXPERIENCED: u8 = 0b11;
    let (a, b) = pair_with(&ConnectOptions {
        traffic_class: CONGESTION_EXPERIENCED,
        ..ConnectOptions::default()
    });
    a.qp.set_congestion_control(dcqcn(Rate::from_gbps(10)))
        .expect("takes it");
    write(&a, &b, 4 << 20);
    let sent = b.counter("sent_cnp");
    assert!(sent > 0, "b told of the marks");
    common::wait_until("the notifications", || a.counter("rcvd_cnp") == sent);
    // The way back is marked, too, and b has no control that it would slow down.
    write(&b, &a, 1 << 20);
}

#[test]
fn qps_begin_with_the_control_of_their_context() {
    let control = |builder: urxe::ContextBuilder| {
        let end = End::on(builder.open().expect("free"));
        end.qp.congestion_control().expect("tells")
    };
    let by_default = control(Context::builder(address()));
    assert_eq!(by_default, CongestionControl::Auto);
    let chosen = CongestionControl::Delay(DelayParams::target(50_000));
    assert_eq!(
        control(Context::builder(address()).congestion(chosen)),
        chosen
    );
    let none = CongestionControl::Window { bytes: 0 };
    let error = Context::builder(address()).congestion(none).open();
    let error = error.expect_err("no bytes");
    assert!(matches!(error.kind(), ErrorKind::Congestion(_)), "{error}");
}

/// A road that is long gets a model; one that is short, or has been told to have none, does not.
#[test]
fn a_long_road_gets_a_model() {
    let end = |faults: &str, control| {
        let builder = Context::builder(address()).congestion(control);
        let faults = (!faults.is_empty()).then(|| faults.parse().expect("faults"));
        End::on(builder.faults(faults).open().expect("free"))
    };
    for (delay, control, wanted) in [
        ("delay=5ms", CongestionControl::Auto, true),
        ("delay=5ms", CongestionControl::None, false),
        ("", CongestionControl::Auto, false),
    ] {
        let (a, b) = (end(delay, control), end(delay, control));
        connect(&a.qp, &b.qp, &ConnectOptions::default());
        let path = || {
            common::qp_status(&a.context, &a.qp)
                .path
                .expect("it has a peer")
        };
        assert_eq!((path().srtt_ns, path().has_model), (0, false));
        (0..8).for_each(|seed| exchange(&a, &b, seed));
        let path = path();
        assert_eq!(path.has_model, wanted, "{delay}, {control:?}: {path:?}");
        assert_eq!(path.min_rtt_ns >= 10_000_000, !delay.is_empty(), "{path:?}");
        assert!(path.window > 0 && path.under_way <= path.window, "{path:?}");
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let (a, _b) = pair();
    let error =
        a.qp.set_congestion_control(CongestionControl::Window { bytes: 0 });
    let error = error.expect_err("no bytes");
    assert!(matches!(error.kind(), ErrorKind::Congestion(_)), "{error}");
    assert!(error.to_string().contains("0 bytes"), "{error}");

    let uc = End::with(End::open().context, |qp| qp.qp_type(QpType::Uc));
    let error = uc.qp.set_congestion_control(dcqcn(Rate::from_gbps(1)));
    let error = error.expect_err("nothing is acknowledged");
    assert!(error.to_string().contains("RC and XRC"), "{error}");
}
