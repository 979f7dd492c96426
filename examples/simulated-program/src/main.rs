//! The counter over real sockets: `cargo run`.

use std::thread;

fn main() -> Result<(), urxe::Error> {
    let at = "127.0.0.1:7471".parse().expect("an address");
    let server = thread::spawn(move || simulated_program::serve(at, 2));
    let clients =
        [1000, 2000].map(|times| thread::spawn(move || simulated_program::add(at, times)));
    for client in clients {
        client.join().expect("a client ends")?;
    }
    println!(
        "the counters have {}",
        server.join().expect("the server ends")?
    );
    Ok(())
}
