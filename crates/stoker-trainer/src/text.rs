//! Numbers for people.

use crate::PeakBytes;
use std::fmt::{Formatter, Result};

/// `12.3 MiB`.
pub(crate) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut amount = bytes as f64 / 1024.0;
    let mut unit = "KiB";
    for next in &UNITS[1..] {
        if amount < 1023.95 {
            break;
        }
        amount /= 1024.0;
        unit = next;
    }
    format!("{amount:.1} {unit}")
}

/// `1,234,567`.
pub(crate) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `8.2 s`, `3 min 5 s`.
pub(crate) fn seconds(seconds: f64) -> String {
    if seconds < 60.0 {
        return format!("{seconds:.1} s");
    }
    let whole = seconds.round();
    format!("{} min {} s", (whole / 60.0).floor(), whole % 60.0)
}

/// A table of bytes by place and role, with a column for all ranks and one for a rank; of each place its total first.
pub(crate) fn places(
    f: &mut Formatter<'_>,
    title: &str,
    [all, one]: [&str; 2],
    of_all: &PeakBytes,
    of_one: &PeakBytes,
) -> Result {
    writeln!(f, "{title:<16}{:>18}{all:>13}{one:>14}", "")?;
    for (place, roles) in of_all {
        let of_one = of_one.get(place);
        let mut row = |name: &str, role: &str, of_all: u64| {
            let of_one = of_one.and_then(|roles| roles.get(role)).copied().unwrap_or(0);
            writeln!(f, "  {name:<32}{:>13}{:>14}", bytes(of_all), bytes(of_one))
        };
        row(place, "total", roles.get("total").copied().unwrap_or(0))?;
        for (role, &of_all) in roles.iter().filter(|(role, _)| *role != "total") {
            row(&format!("  {}", role.replace('_', " ")), role, of_all)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_the_unit_that_fits() {
        let shown = [0, 1023, 1024, 1536, (1 << 20) - 1, 5 << 30].map(bytes);
        assert_eq!(shown, ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "1.0 MiB", "5.0 GiB"]);
    }

    #[test]
    fn long_numbers_are_grouped() {
        assert_eq!([0, 999, 1000, 561_046_578].map(thousands), ["0", "999", "1,000", "561,046,578"]);
    }

    #[test]
    fn times_have_minutes() {
        assert_eq!([8.21, 59.94, 185.4].map(seconds), ["8.2 s", "59.9 s", "3 min 5 s"]);
    }
}
