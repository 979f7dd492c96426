//! `urxe key`: the files with the secrets that packets are sealed with (docs/SEALED.md).

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Subcommand;
use urxe::{KeyFile, create_key_file, read_key_file, rotate_key_file};
use urxe_seal::GRACE_S;

use crate::error::CliError;

#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Make a key file, which only its owner can read. All hosts that are to speak with each other need a copy
    New {
        /// The file; it must not be there
        file: PathBuf,
    },
    /// Add a new secret to a key file. Copy the file to all hosts before the secret is used: programs that run read it again by themselves
    Rotate {
        file: PathBuf,
        /// Seconds until senders use the new secret
        #[arg(long, value_name = "SECONDS", default_value_t = 60)]
        after: u64,
    },
    /// Print what tells key files apart, and nothing secret: two hosts that print the same lines have the same key
    ShowId { file: PathBuf },
}

pub(crate) fn run(command: &KeyCommand) -> Result<(), CliError> {
    let file = match command {
        KeyCommand::New { file } => create_key_file(file),
        KeyCommand::Rotate { file, after } => rotate_key_file(file, Duration::from_secs(*after)),
        KeyCommand::ShowId { file } => read_key_file(file),
    };
    show(&file.map_err(|error| CliError::Failed(error.to_string()))?);
    Ok(())
}

fn show(file: &KeyFile) {
    println!("key {:04x}", file.id());
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |now| now.as_secs());
    let sending = file.epochs().filter(|&(_, since)| since <= now).last();
    for (number, since) in file.epochs() {
        let state = match since.checked_sub(now) {
            Some(wait) if wait > 0 => format!("in use in {wait} s"),
            _ if sending == Some((number, since)) => "in use".to_owned(),
            _ => format!("accepted until {GRACE_S} s after the next"),
        };
        println!(
            "epoch {number} {:08x} {state}",
            file.check(number).unwrap_or_default()
        );
    }
}
