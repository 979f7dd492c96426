//! The text of `URXE_FAULTS`: what is understood is within its bounds and is written as a text that means the same; what is not
//! names the part of the text that is wrong.

use std::time::Duration;

use urxe::FaultSpec;

/// Input: the text.
pub fn target(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    match text.parse::<FaultSpec>() {
        Ok(spec) => check(&spec, text),
        Err(error) => {
            assert!(
                error.part == "\"\"" || text.contains(&error.part),
                "{error}"
            );
            assert!(!error.reason.is_empty());
        }
    }
}

fn check(spec: &FaultSpec, text: &str) {
    assert!(!spec.is_empty(), "{text}");
    for share in [spec.drop, spec.duplicate, spec.reorder, spec.corrupt] {
        assert!(share.per_million() <= 1_000_000, "{text}");
    }
    if let Some((low, high)) = spec.delay {
        assert!(low <= high && !high.is_zero(), "{text}");
        assert!(high <= Duration::from_secs(10), "{text}");
    }
    let written = spec.to_string();
    assert_eq!(written.parse().as_ref(), Ok(spec), "{text} is {written}");
    assert!(written.len() < 160, "{text} is {written}");
}
