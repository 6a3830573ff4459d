//! One wrong letter in any key of the documentation is told, with the right one.

use super::{configs, set};
use proptest::prelude::*;
use stoker_config::{Error, Settings, Sources};

fn keys() -> Vec<String> {
    let (_, provenance) = Settings::load(&Sources::default()).unwrap();
    provenance.iter().map(|(key, _)| key.to_owned()).collect()
}

#[test]
fn the_documentation_has_every_fixed_key() {
    let text = std::fs::read_to_string(configs().join("default.toml")).unwrap();
    let mut section = "";
    let mut documented = Vec::new();
    let mut commented = false;
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']');
        } else if let Some((name, _)) = line.split_once(" = ").filter(|_| !line.starts_with('#')) {
            assert!(commented, "{section}.{name} has no comment");
            documented.push(format!("{section}.{name}"));
        }
        commented = line.starts_with('#');
    }
    documented.sort();
    let fixed: Vec<_> = keys().into_iter().filter(|key| key.split('.').count() == 2).collect();
    assert_eq!(documented, fixed);
}

proptest! {
    #[test]
    fn one_wrong_letter(
        key in prop::sample::select(keys()),
        at in any::<prop::sample::Index>(),
        letter in prop::char::range('a', 'z'),
        how in 0..3,
    ) {
        let letters: Vec<char> = key.chars().collect();
        let at = *at.get(&(0..letters.len()).filter(|i| letters[*i] != '.').collect::<Vec<_>>());
        let mut wrong = letters.clone();
        match how {
            0 => wrong[at] = letter,
            1 => wrong.insert(at, letter),
            _ => drop(wrong.remove(at)),
        }
        let wrong: String = wrong.into_iter().collect();
        if wrong == key {
            return Ok(());
        }
        match set(&[&format!("{wrong}=1")]).unwrap_err() {
            Error::UnknownKey { key: told, nearest, .. } => {
                prop_assert_eq!(told, wrong);
                prop_assert_eq!(nearest, Some(key));
            }
            // The wrong letter is in the name of a plugin.
            Error::Plugin { reason, .. } => match *reason {
                stoker_core::Error::UnknownPlugin { nearest: Some(nearest), .. } => {
                    prop_assert!(key.contains(&nearest));
                }
                other => prop_assert!(false, "{}: {}", wrong, other),
            },
            other => prop_assert!(false, "{}: {}", wrong, other),
        }
    }
}
