//! A listening socket and strangers, and the end of a socket with a peer that takes nothing.

#[path = "../../../../provider/tests/common/stranger.rs"]
mod stranger;

use core::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use urxe_wire::cm::CmMessage;

use self::stranger::Stranger;
use super::tests::pair_without_receives;
use super::{Phase, Stream};
use crate::rsocket::alone::{OWN, address, alone};
use crate::rsocket::settings::Settings;
use crate::rsocket::wire::{ConnData, Span};

const FORGED: u32 = 2000;
const FRIENDS: u32 = 20;

/// What an rsocket says of itself when it asks.
fn introduction() -> [u8; 40] {
    let span = |length| Span {
        addr: 0x10_0000,
        key: 0x1234,
        length,
    };
    let introduction = ConnData {
        is_big_endian: false,
        has_iomap: false,
        credits: 100,
        iomap_size: 0,
        target_list: span(2),
        buffer: span(4096),
    };
    introduction.to_bytes()
}

/// They ask as rsockets do, and never say that they are there.
#[test]
fn requests_that_are_never_confirmed_shut_nobody_out() {
    alone(
        "rsocket::stream::strangers::requests_that_are_never_confirmed_shut_nobody_out",
        3,
        || {
            let server = Arc::new(Stream::new().expect("a socket"));
            server.bind(SocketAddr::new(address(OWN), 0)).expect("free");
            server.listen(1).expect("free");
            let to = server.address(false).expect("bound");
            let accepting = server.clone();
            let accepted = std::thread::spawn(move || {
                for _ in 0..FRIENDS {
                    let socket = accepting
                        .accept()
                        .expect("a guest's failure is the guest's");
                    socket.close();
                }
            });
            let mut stranger = Stranger::new(address(66), to);
            for number in 0..FORGED {
                let req = stranger.req(number, &introduction());
                stranger.say(&CmMessage::Req(req));
                let answer = stranger.hears_one(Duration::from_secs(20), |message| match message {
                    CmMessage::Rep(_) => Some(true),
                    CmMessage::Rej(rej) => Some(rej.local_comm_id != 0),
                    _ => None,
                });
                // REJs about those that had to go come between.
                assert_eq!(answer, Some(true), "request {number}");
                if number % (FORGED / FRIENDS) == FORGED / FRIENDS - 1 {
                    let friend = Stream::new().expect("a socket");
                    friend.connect(to).expect("a friend gets in");
                    friend.close();
                }
            }
            accepted.join().expect("no panic");
        },
    );
}

/// The peer never posts a receive: for ever, as RC has it, but a socket that is closed does not wait that long.
#[test]
fn closing_does_not_wait_for_ever_for_a_peer_that_takes_nothing() {
    let settings = Settings::default();
    let (one, _other) = pair_without_receives(9, &settings);
    let stream = Stream::new().expect("a socket");
    {
        let mut state = stream.lock();
        state.phase = Phase::Connected;
        state.connection = Some(Box::new(one));
        let connection = state.connection().expect("just put in");
        connection.send(b"nobody takes it", 15).expect("it is up");
    }
    stream.close_within(Duration::from_millis(300));
    let mut state = stream.lock();
    let connection = state.connection().expect("it is there");
    assert!(!connection.is_idle(), "it was taken after all");
}
