//! Test vectors as they are printed.

/// Digits, perhaps with white space between.
pub(crate) fn bytes(hex: &str) -> Vec<u8> {
    let is_digit = |digit: &char| !digit.is_ascii_whitespace();
    let digits: Vec<char> = hex.chars().filter(is_digit).collect();
    let pair = |pair: &[char]| {
        u8::from_str_radix(&pair.iter().collect::<String>(), 16).expect("hexadecimal digits")
    };
    digits.chunks(2).map(pair).collect()
}
