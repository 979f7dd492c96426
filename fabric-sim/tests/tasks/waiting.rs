//! Programs that do not come to their end: what they wait for is told.

use core::time::Duration;

use fabric_sim::program::{Cause, Simulation, sleep, task};
use fabric_sim::{Span, Time};

use crate::{A, B, meet, open};

fn waiting(sim: &mut Simulation) -> Vec<String> {
    match sim.run().expect_err("it does not end").cause().clone() {
        Cause::Deadlock(waiting) | Cause::TimeLimit { waiting, .. } => waiting,
        other => panic!("{other}"),
    }
}

/// The line above this call, as a failure names it.
macro_rules! above {
    () => {
        format!("{}:{}", file!(), line!() - 1)
    };
}

#[test]
fn a_deadlock_names_what_each_task_awaits() {
    let mut sim = Simulation::new(1);
    let (says, lines) = std::sync::mpsc::channel();
    let its = says.clone();
    sim.host(A, move || {
        task::block_on(async move {
            let (end, mut completions) = open();
            let never = task::spawn(async move { completions.next().await.map(|_| ()) });
            its.send(above!()).expect("heard");
            meet(&end, "a", "b").await;
            never
                .await
                .expect("it is not aborted")
                .expect("it never ends");
        });
    });
    sim.host(B, move || {
        task::block_on(async move {
            let (end, _) = open();
            meet(&end, "b", "a").await;
            let asks = task::spawn(async { task::ask("the way").await });
            says.send(above!()).expect("heard");
            let idle = task::spawn(core::future::pending::<()>());
            says.send(above!()).expect("heard");
            let mut events = end.context.async_events().expect("a stream");
            drop(tokio::join!(asks, idle, events.next()));
        });
    });
    let told = waiting(&mut sim);
    let [reads, asks, idles] = core::array::from_fn(|_| lines.recv().expect("a line"));
    let (a, b) = (&told[0], &told[1]);
    assert_eq!(told.len(), 2, "{told:?}");
    for words in [
        format!("h0 waits for the end of the task at {reads} (block_on at "),
        format!("a completion of queue 0 (task at {reads})"),
    ] {
        assert!(a.contains(&words), "{a}\n{words}");
    }
    for words in [
        format!(
            "the end of the task at {asks} or the end of the task at {idles} or an asynchronous event (block_on at "
        ),
        format!("the word \"the way\", which no program told (task at {asks})"),
        format!("to be woken by the program itself (task at {idles})"),
    ] {
        assert!(b.contains(&words), "{b}\n{words}");
    }
    assert!(b.ends_with(", for ever"), "{b}");
}

#[test]
fn a_time_limit_names_times_and_connections() {
    let mut sim = Simulation::new(2);
    sim.limit(Span::from_ms(20));
    sim.host(A, || {
        task::block_on(async {
            let listener = urxe::cm::listen("10.0.0.1:7471".parse().expect("an address"));
            let listener = listener.expect("listens");
            drop(listener.accept_async().await);
        });
    });
    sim.host(B, || {
        task::block_on(async {
            loop {
                task::sleep(Duration::from_millis(3)).await;
            }
        });
    });
    let told = waiting(&mut sim);
    let connection = "h0 waits for a connection from a peer at 10.0.0.1:7471 (block_on at ";
    assert!(told[0].starts_with(connection), "{told:?}");
    assert!(told[1].starts_with("h1 waits for the time 2"), "{told:?}");
}

/// Many tasks are not all named.
#[test]
fn of_many_tasks_some_are_named() {
    let mut sim = Simulation::new(3);
    sim.host(A, || {
        task::block_on(async {
            let tasks = [(); 30].map(|()| task::spawn(core::future::pending::<()>()));
            for task in tasks {
                task.await.expect("it never ends");
            }
        });
    });
    let told = waiting(&mut sim);
    assert!(told[0].contains(", and 15 tasks more"), "{told:?}");
}

/// A task that waits for something that is not simulated, and one that goes round without end.
#[test]
fn a_task_that_keeps_its_turn_is_stuck() {
    let mut sim = Simulation::new(4);
    sim.patience(Duration::from_millis(200));
    let (let_go, held) = std::sync::mpsc::channel::<()>();
    sim.host(A, move || {
        task::block_on(async move {
            task::sleep(Duration::from_micros(5)).await;
            assert!(held.recv().is_err());
        });
    });
    sim.host(B, || sleep(Duration::from_millis(1)));
    let failure = sim.run().expect_err("it is stuck");
    assert_eq!(failure.cause(), &Cause::Stuck("h0".to_owned()));
    assert!(failure.at() >= Time::ZERO + Span::from_us(5), "{failure}");
    drop(let_go);
    // A loop that yields takes virtual time: the limit ends it.
    let mut sim = Simulation::new(5);
    sim.limit(Span::from_ms(1));
    sim.host(A, || {
        task::block_on(async {
            loop {
                task::yield_now().await;
            }
        });
    });
    let told = waiting(&mut sim);
    assert!(told[0].starts_with("h0 is at work"), "{told:?}");
}

#[test]
fn what_is_not_possible_is_said() {
    let panicked = |body: fn()| {
        let mut sim = Simulation::new(6);
        sim.host(A, body);
        sim.run().expect_err("it panics").to_string()
    };
    let nested = || task::block_on(async { task::block_on(async {}) });
    let words = panicked(nested);
    assert!(words.contains("block_on inside block_on"), "{words}");
    let words = panicked(|| drop(task::spawn(async {})));
    assert!(words.contains("spawned inside"), "{words}");
    let elsewhere = || {
        let mut sleep = Box::pin(task::sleep(Duration::from_secs(1)));
        let mut cx = core::task::Context::from_waker(core::task::Waker::noop());
        let _ = sleep.as_mut().poll(&mut cx);
    };
    let words = panicked(elsewhere);
    assert!(words.contains("awaits inside"), "{words}");
    let task = || {
        task::block_on(async {
            let child = task::spawn(async { panic!("a task fails") });
            let _: Result<(), task::Aborted> = child.await;
        });
    };
    let words = panicked(task);
    assert!(words.contains("h0 panicked: a task fails"), "{words}");
}
