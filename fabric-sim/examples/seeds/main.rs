//! What runs under many seeds come to, a line for each: its trace, and a hash of its capture. Two builds, machines or numbers of
//! processors are compared by comparing what this prints; `tests/determinism` does.
//!
//! ```console
//! $ cargo run -p urxe-fabric-sim --features tokio --example seeds -- 2
//! faults.toml 0 trace 52c0474975dfcf11 capture a847aab148aa188e
//! ...
//! 8 runs, hash of all 50a2c64f13772adc
//! ```
//!
//! Seeds run on all processors that the process may use.

mod subjects;

use std::io::{Write, stdout};
use std::process::ExitCode;

use subjects::{hash_of, lines};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let seeds = match &arguments[..] {
        [seeds] => seeds.parse().ok(),
        _ => None,
    };
    let Some(seeds) = seeds else {
        eprintln!("usage: seeds NUMBER");
        return ExitCode::from(2);
    };
    let told = lines(seeds).and_then(|lines| {
        let all = hash_of(lines.join("\n").as_bytes());
        let total = format!("{} runs, hash of all {all:016x}", lines.len());
        let text = lines.iter().chain([&total]).map(|line| format!("{line}\n"));
        let written = stdout().write_all(text.collect::<String>().as_bytes());
        written.map_err(|error| error.to_string())
    });
    match told {
        Ok(()) => ExitCode::SUCCESS,
        Err(words) => {
            eprintln!("seeds: {words}");
            ExitCode::FAILURE
        }
    }
}
