//! The text of a key file: the secrets of a cluster, one for each epoch.
//!
//! ```text
//! urxe-key 1 3fa2
//! epoch 1 since 1764010000 0707...07
//! epoch 2 since 1764096400 9a1c...e0
//! ```

use core::fmt::{self, Write as _};
use core::str::FromStr;

use zeroize::{Zeroize, Zeroizing};

use crate::derive::{self, SECRET};
use crate::envelope::PAIR;

/// Seconds for which an epoch is still accepted after the next one began: so long may clocks differ, and packets be on their way.
pub const GRACE_S: u64 = 300;

/// Epochs in a file, at most.
const EPOCHS_MAX: usize = 16;

/// A key file, read or to be written. Its secrets are zeroed when it is dropped, and `Debug` does not show them.
pub struct KeyFile {
    id: u16,
    /// At least one, the oldest first.
    epochs: Vec<Epoch>,
}

/// A secret, and from when on it is used.
#[derive(Clone)]
pub(crate) struct Epoch {
    pub(crate) number: u8,
    /// Senders use it from this Unix time on.
    pub(crate) since: u64,
    pub(crate) secret: Box<Zeroizing<[u8; SECRET]>>,
}

/// What is wrong with a key file. Says nothing of what is in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KeyFileError {
    /// It does not begin as one.
    #[error("it does not begin with \"urxe-key 1\": is it a file that `urxe key new` made?")]
    NoKeyFile,
    /// A line is none of an epoch.
    #[error(
        "line {0} is not \"epoch NUMBER since SECONDS SECRET\", with a secret of 64 hexadecimal digits"
    )]
    Line(usize),
    /// Epochs must follow each other.
    #[error("line {0}: an epoch begins no earlier than the one before it, and has the next number")]
    Order(usize),
    /// There is none.
    #[error("it has no epoch")]
    Empty,
    /// There are too many.
    #[error("it has more than {EPOCHS_MAX} epochs")]
    TooMany,
    /// This crate was built without its feature `ciphers`.
    #[error("urxe-seal was built without its feature \"ciphers\"")]
    NoCiphers,
}

impl KeyFile {
    /// One with a single epoch.
    ///
    /// # Panics
    /// Without the feature `ciphers`.
    pub fn new(id: u16, secret: [u8; SECRET], since: u64) -> KeyFile {
        if !cfg!(feature = "ciphers") {
            panic!("{}", KeyFileError::NoCiphers);
        }
        KeyFile {
            id,
            epochs: vec![Epoch {
                number: 1,
                since,
                secret: Box::new(Zeroizing::new(secret)),
            }],
        }
    }

    /// A number that tells key files apart, drawn at random when the first was made. It is no secret: packets name it.
    pub fn id(&self) -> u16 {
        self.id
    }

    /// The numbers of the epochs, and since when senders use each.
    pub fn epochs(&self) -> impl Iterator<Item = (u8, u64)> {
        self.epochs.iter().map(|epoch| (epoch.number, epoch.since))
    }

    /// A number that follows from an epoch's secret and does not tell it: so it can be seen that two hosts have the same.
    pub fn check(&self, epoch: u8) -> Option<u32> {
        let epoch = self.epochs.iter().find(|one| one.number == epoch)?;
        Some(derive::check(&epoch.secret))
    }

    /// Adds an epoch that begins at a time that is yet to come, and takes out those that no receiver accepts any more.
    pub fn rotate(&mut self, secret: [u8; SECRET], now: u64, since: u64) {
        let last = self.epochs.last().expect("there is one");
        let (number, since) = (next_number(last.number), since.max(last.since));
        self.epochs.push(Epoch {
            number,
            since,
            secret: Box::new(Zeroizing::new(secret)),
        });
        let is_over = |next: &Epoch| next.since + GRACE_S <= now;
        while self.epochs.len() > EPOCHS_MAX || self.epochs.get(1).is_some_and(is_over) {
            self.epochs.remove(0);
        }
    }

    /// The text of the file.
    pub fn text(&self) -> Zeroizing<String> {
        // No part of it is left behind by growing.
        let mut text = Zeroizing::new(String::with_capacity(64 + self.epochs.len() * 128));
        let _ = writeln!(text, "urxe-key 1 {:04x}", self.id);
        for epoch in &self.epochs {
            let _ = write!(text, "epoch {} since {} ", epoch.number, epoch.since);
            for byte in epoch.secret.iter() {
                let _ = write!(text, "{byte:02x}");
            }
            text.push('\n');
        }
        text
    }

    pub(crate) fn secrets(&self) -> &[Epoch] {
        &self.epochs
    }
}

impl FromStr for KeyFile {
    type Err = KeyFileError;

    fn from_str(text: &str) -> Result<KeyFile, KeyFileError> {
        if !cfg!(feature = "ciphers") {
            return Err(KeyFileError::NoCiphers);
        }
        let lines = text.lines().map(str::trim);
        let is_told = |line: &&str| !line.is_empty() && !line.starts_with('#');
        let mut lines = (1..).zip(lines).filter(|(_, line)| is_told(line));
        let (_, head) = lines.next().ok_or(KeyFileError::NoKeyFile)?;
        let id = head.strip_prefix("urxe-key 1 ").filter(|id| id.len() == 4);
        let id = id.and_then(|id| u16::from_str_radix(id, 16).ok());
        let id = id.ok_or(KeyFileError::NoKeyFile)?;
        let mut epochs: Vec<Epoch> = Vec::with_capacity(EPOCHS_MAX);
        for (number, line) in lines {
            let epoch = parse_epoch(line).ok_or(KeyFileError::Line(number))?;
            if epochs.len() == EPOCHS_MAX {
                return Err(KeyFileError::TooMany);
            }
            if let Some(last) = epochs.last()
                && (epoch.number != next_number(last.number) || epoch.since < last.since)
            {
                return Err(KeyFileError::Order(number));
            }
            epochs.push(epoch);
        }
        if epochs.is_empty() {
            return Err(KeyFileError::Empty);
        }
        Ok(KeyFile { id, epochs })
    }
}

/// The number of the epoch after one. Packets of pairs have 0.
fn next_number(number: u8) -> u8 {
    number.checked_add(1).unwrap_or(1)
}

fn parse_epoch(line: &str) -> Option<Epoch> {
    let mut words = line.split_ascii_whitespace();
    if words.next()? != "epoch" {
        return None;
    }
    let number = words
        .next()?
        .parse()
        .ok()
        .filter(|&number| number != PAIR)?;
    if words.next()? != "since" {
        return None;
    }
    let since: u64 = words.next()?.parse().ok()?;
    let digits = words.next()?.as_bytes();
    // Times are added to.
    if digits.len() != 2 * SECRET || words.next().is_some() || since > u64::MAX / 2 {
        return None;
    }
    let mut secret = Box::new(Zeroizing::new([0; SECRET]));
    for (byte, pair) in secret.iter_mut().zip(digits.as_chunks::<2>().0) {
        let digit = |digit: u8| char::from(digit).to_digit(16);
        *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
    }
    Some(Epoch {
        number,
        since,
        secret,
    })
}

impl fmt::Debug for KeyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let epochs: Vec<_> = self.epochs().collect();
        f.debug_struct("KeyFile")
            .field("id", &self.id)
            .field("epochs", &epochs)
            .finish_non_exhaustive()
    }
}

impl Epoch {
    /// What handshakes of pairs begin with.
    pub(crate) fn psk(&self) -> Zeroizing<[u8; SECRET]> {
        derive::psk(&self.secret)
    }
}

impl fmt::Debug for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (number, since) = (self.number, self.since);
        write!(f, "epoch {number} since {since}")
    }
}

impl Drop for Epoch {
    fn drop(&mut self) {
        self.secret.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets(file: &KeyFile) -> Vec<(u8, u64, u8)> {
        let epochs = file.epochs.iter();
        epochs.map(|e| (e.number, e.since, e.secret[0])).collect()
    }

    #[test]
    fn what_is_written_is_read() {
        let mut file = KeyFile::new(0x3fa2, [7; 32], 1000);
        file.rotate([0xab; 32], 2000, 2060);
        let text = file.text();
        assert!(text.starts_with("urxe-key 1 3fa2\nepoch 1 since 1000 0707"));
        let read: KeyFile = text.parse().expect("as written");
        assert_eq!(read.id(), 0x3fa2);
        assert_eq!(secrets(&read), [(1, 1000, 7), (2, 2060, 0xab)]);
        let debug = format!("{read:?}");
        assert!(
            !debug.contains("07, 7") && !debug.contains("abab"),
            "{debug}"
        );
    }

    #[test]
    fn rotation_keeps_what_is_accepted_and_nothing_else() {
        let mut file = KeyFile::new(1, [1; 32], 0);
        file.rotate([2; 32], 1000, 1060);
        file.rotate([3; 32], 1030, 1090);
        assert_eq!(secrets(&file).len(), 3, "the first is in use");
        file.rotate([4; 32], 1060 + GRACE_S, 1500);
        assert_eq!(file.epochs().next(), Some((2, 1060)));
        for n in 0..300 {
            file.rotate([5; 32], 2000, 3000 + n);
        }
        assert_eq!(file.epochs.len(), EPOCHS_MAX);
        let numbers: Vec<u8> = file.epochs().map(|(number, _)| number).collect();
        assert!(
            numbers
                .windows(2)
                .all(|pair| pair[1] == pair[0].wrapping_add(1))
        );
        let again: KeyFile = file.text().parse().expect("as written");
        assert_eq!(secrets(&again), secrets(&file));
    }

    #[test]
    fn nonsense_is_named_and_not_quoted() {
        let line = format!("epoch 1 since 0 {}", "0".repeat(64));
        let read = |text: &str| text.parse::<KeyFile>().map(|file| file.id());
        let head = "# a note\nurxe-key 1 0001\n";
        assert_eq!(read(&format!("{head}{line}\n")), Ok(1));
        assert_eq!(read(""), Err(KeyFileError::NoKeyFile));
        assert_eq!(read(&line), Err(KeyFileError::NoKeyFile));
        assert_eq!(read("urxe-key 2 0001\n"), Err(KeyFileError::NoKeyFile));
        assert_eq!(read(head), Err(KeyFileError::Empty));
        for bad in [
            &line[..line.len() - 1],
            &format!("{line}0"),
            &format!("{line} x"),
            &line.replace("since", "from"),
            &line.replace(" 1 ", " 256 "),
            &format!("epoch 1 since 0 {}", "0g".repeat(32)),
            &format!("epoch 1 since {} {}", u64::MAX, "00".repeat(32)),
        ] {
            assert_eq!(
                read(&format!("{head}{bad}\n")),
                Err(KeyFileError::Line(3)),
                "{bad}"
            );
        }
        let twice = format!("{head}{line}\n{line}\n");
        assert_eq!(read(&twice), Err(KeyFileError::Order(4)));
    }
}
