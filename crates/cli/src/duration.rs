//! Durations as Go writes them: `5s`, `250ms`, `1m30s`, `1.5h`.
//!
//! Settings files of before are written in this grammar. Libraries have others: humantime refuses
//! `.5s` and `+5s`, and takes `1M` for a month.

use std::time::Duration;

/// The longest duration that Go can represent, ns.
const NS_MAX: u128 = i64::MAX as u128;

/// Digits of a fraction that count. More could not change a nanosecond of an hour, the largest unit.
const FRACTION_DIGITS_MAX: usize = 18;

/// Parses a duration: numbers, each with an optional fraction and a unit (`ns`, `us` or `µs`, `ms`, `s`, `m`,
/// `h`), or `0`.
///
/// # Errors
///
/// What is wrong with the text, without the text itself. A negative duration is an error: no setting takes
/// one.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    if text.starts_with('-') {
        return Err("a duration cannot be negative".into());
    }
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err("a duration is a number and a unit, as in 5s, 250ms or 1m30s".into());
    }
    let mut total_ns = 0u128;
    while !rest.is_empty() {
        let (ns, after) = parse_term(rest)?;
        total_ns += ns;
        if total_ns > NS_MAX {
            return Err("the duration is too long".into());
        }
        rest = after;
    }
    Ok(Duration::from_nanos(u64::try_from(total_ns).expect("NS_MAX fits in 64 bits")))
}

/// One number with its unit, in ns and never above `NS_MAX` by more than the checks here allow; and what
/// follows it.
fn parse_term(text: &str) -> Result<(u128, &str), String> {
    let (whole, rest) = split_digits(text);
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(after) => split_digits(after),
        None => ("", rest),
    };
    if whole.is_empty() && fraction.is_empty() {
        return Err("a duration starts with a number, as in 5s, 250ms or 1m30s".into());
    }
    let unit_len = rest.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(unit_len);
    let unit_ns = unit_ns(unit)?;

    let whole: u64 = match whole {
        "" => 0,
        digits => digits.parse().map_err(|_| "the duration is too long".to_owned())?,
    };
    let fraction = &fraction[..fraction.len().min(FRACTION_DIGITS_MAX)];
    let scale = 10u128.pow(u32::try_from(fraction.len()).expect("at most 18 digits"));
    let parts: u128 =
        if fraction.is_empty() { 0 } else { fraction.parse().expect("18 digits fit in 128 bits") };
    Ok((u128::from(whole) * unit_ns + parts * unit_ns / scale, rest))
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

fn unit_ns(unit: &str) -> Result<u128, String> {
    match unit {
        "ns" => Ok(1),
        // The micro sign and the Greek letter look the same; Go takes both.
        "us" | "\u{b5}s" | "\u{3bc}s" => Ok(1_000),
        "ms" => Ok(1_000_000),
        "s" => Ok(1_000_000_000),
        "m" => Ok(60_000_000_000),
        "h" => Ok(3_600_000_000_000),
        "" => Err("the duration has no unit: write 5s, 250ms or 1m30s".into()),
        unknown => Err(format!("{unknown:?} is not a unit of time: ns, us, ms, s, m and h are")),
    }
}
