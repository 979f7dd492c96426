//! Lists of what of a program's own tests does not run and pass, and why: `WORD NAME: REASON`, a line each.

/// Word, name and reason of each line of a list. `#` begins a line of explanation.
pub(crate) fn lines(
    list: &'static str,
) -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let lines = list.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| {
        let parts = line.split_once(": ").and_then(|(left, reason)| {
            let (word, name) = left.split_once(' ')?;
            Some((word, name, reason))
        });
        parts.unwrap_or_else(|| panic!("not \"WORD NAME: REASON\": {line}"))
    })
}

/// A star at the pattern's end stands for the rest.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => pattern == name,
    }
}
