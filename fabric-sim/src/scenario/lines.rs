//! The line of a value, for errors that are found long after the file was read.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The line on which a value stands, counted from 1, by the name that errors give it: `fault[2].p`. If it does
/// not stand there, the line of what should hold it.
pub(super) fn line_of(text: &str, place: &str) -> Option<usize> {
    let root = DeTable::parse(text).ok()?.into_inner();
    let mut table = &root;
    let mut found = None;
    let mut value: Option<&Spanned<DeValue<'_>>> = None;
    for step in place.split('.') {
        let (key, index) = match step.split_once('[') {
            Some((key, rest)) => (key, rest.trim_end_matches(']').parse::<usize>().ok()),
            None => (step, None),
        };
        let Some((name, next)) = table.iter().find(|(name, _)| name.as_ref() == key) else {
            break;
        };
        found = Some(name.span().start);
        let mut next = next;
        if let Some(index) = index {
            next = next.as_ref().as_array()?.get(index)?;
            found = Some(next.span().start);
        }
        value = Some(next);
        match next.as_ref().as_table() {
            Some(inner) => table = inner,
            None => break,
        }
    }
    value?;
    let before = text.get(..found?)?;
    Some(before.matches('\n').count() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_their_names() {
        let text = "[sim]\nseed = 1\n\n[[fault]]\nkind = \"loss\"\n\n[[fault]]\nkind = \"delay\"\nby = \"1us\"\n[switch]\necn = { kmin = 1,\n  kmax = 2 }\n";
        for (place, line) in [
            ("sim.seed", Some(2)),
            ("fault[0].kind", Some(5)),
            ("fault[1].by", Some(9)),
            // Not there: where it should be.
            ("fault[1].jitter", Some(7)),
            ("switch.ecn.kmax", Some(12)),
            ("fault[7].by", None),
            ("host.window", None),
        ] {
            assert_eq!(line_of(text, place), line, "{place}");
        }
        assert_eq!(line_of("[sim", "sim"), None);
    }
}
