//! The command line.

use std::net::{IpAddr, SocketAddr};

/// Usage, as `run --help` shows it too.
pub(crate) const USAGE: &str = "interop AGENT LOCAL_V4 REMOTE_V4 LOCAL_V6 REMOTE_V6 [--quick | --full] [--slow] [--seed N] [--columns WORD] [FILTER...]";

#[derive(Debug)]
pub(crate) struct Args {
    /// Where agent.py listens.
    pub(crate) agent: SocketAddr,
    /// Addresses of ours and of the guest's, IPv4 and IPv6.
    pub(crate) hosts: [(IpAddr, IpAddr); 2],
    /// Fewer sizes and MTUs.
    pub(crate) is_quick: bool,
    /// The guest is emulated: the longest messages not at every MTU.
    pub(crate) is_slow: bool,
    pub(crate) seed: u64,
    /// Only columns that have this in their heads.
    pub(crate) columns: String,
    /// Only rows that have one of these words in their names.
    pub(crate) filters: Vec<String>,
}

impl Args {
    pub(crate) fn parse(args: impl Iterator<Item = String>) -> Result<Args, String> {
        let (mut is_quick, mut is_slow, mut seed) = (false, false, 1);
        let (mut columns, mut words) = (String::new(), Vec::new());
        let mut args = args.peekable();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--quick" => is_quick = true,
                "--full" => is_quick = false,
                "--slow" => is_slow = true,
                "--columns" => columns = args.next().ok_or("--columns needs a word")?,
                "--seed" => {
                    let number = args.next().and_then(|number| number.parse().ok());
                    seed = number.ok_or("--seed needs a number")?;
                }
                flag if flag.starts_with('-') => return Err(format!("no option {flag}: {USAGE}")),
                _ => words.push(arg),
            }
        }
        if words.len() < 5 {
            return Err(USAGE.to_owned());
        }
        let filters = words.split_off(5);
        let address = |word: &String| {
            word.parse()
                .map_err(|_| format!("{word} is no address: {USAGE}"))
        };
        let agent = words[0].parse();
        Ok(Args {
            agent: agent.map_err(|_| format!("{} is no address and port: {USAGE}", words[0]))?,
            hosts: [
                (address(&words[1])?, address(&words[2])?),
                (address(&words[3])?, address(&words[4])?),
            ],
            is_quick,
            is_slow,
            seed,
            columns,
            filters,
        })
    }
}
