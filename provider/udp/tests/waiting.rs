//! Sleeping and being woken.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use urxe_udp::{EventFd, Interest, wait, wait_for};

#[test]
fn notifications_collapse_into_one() {
    let event = EventFd::new().expect("eventfd");
    assert!(!event.drain());
    event.notify();
    event.notify();
    assert!(wait(&[event.as_fd()], None).expect("wait").is_ready(0));
    assert!(event.drain());
    assert!(!event.drain());
    let none = Some(Duration::ZERO);
    assert!(wait(&[event.as_fd()], none).expect("wait").is_timeout());
}

#[test]
fn a_sleeper_is_woken_by_another_thread() {
    let event = Arc::new(EventFd::new().expect("eventfd"));
    let other = EventFd::new().expect("eventfd");
    let notifier = event.clone();
    let thread = thread::spawn(move || notifier.notify());
    let ready = wait(
        &[other.as_fd(), event.as_fd()],
        Some(Duration::from_secs(10)),
    );
    let ready = ready.expect("wait");
    assert!(ready.is_ready(1) && !ready.is_ready(0) && !ready.is_writable(1));
    thread.join().expect("no panic");
}

#[test]
fn time_runs_out_and_not_before() {
    let event = EventFd::new().expect("eventfd");
    for micros in [0, 100, 20_000] {
        let timeout = Duration::from_micros(micros);
        let start = Instant::now();
        assert!(
            wait(&[event.as_fd()], Some(timeout))
                .expect("wait")
                .is_timeout()
        );
        assert!(
            start.elapsed() >= timeout,
            "{:?} for {timeout:?}",
            start.elapsed()
        );
    }
}

#[test]
fn writable_is_told_apart() {
    let event = EventFd::new().expect("eventfd");
    let interests = [
        Interest::readable(event.as_fd()),
        Interest::both(event.as_fd()),
    ];
    let ready = wait_for(&interests, None).expect("wait");
    assert!(!ready.is_ready(0) && ready.is_ready(1) && ready.is_writable(1));
}

/// A signal with a handler interrupts the system call, not the wait.
#[cfg(target_os = "linux")]
#[test]
fn signals_do_not_end_a_wait() {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: the handler does nothing, and nothing else here uses the signal.
    unsafe { libc::signal(libc::SIGUSR1, nothing as *const () as libc::sighandler_t) };
    // SAFETY: takes nothing, cannot fail.
    let sleeper = unsafe { libc::pthread_self() } as usize;
    let timeout = Duration::from_millis(200);
    let start = Instant::now();
    thread::scope(|scope| {
        scope.spawn(move || {
            while start.elapsed() < timeout / 2 {
                thread::sleep(Duration::from_millis(20));
                // SAFETY: the thread waits for this scope to end, so it is alive.
                unsafe { libc::pthread_kill(sleeper as libc::pthread_t, libc::SIGUSR1) };
            }
        });
        let event = EventFd::new().expect("eventfd");
        assert!(
            wait(&[event.as_fd()], Some(timeout))
                .expect("wait")
                .is_timeout()
        );
        assert!(start.elapsed() >= timeout);
    });
}
