//! Groups of parameters, through all layers.

use super::{environment, file, message, set};
use std::collections::BTreeMap;
use stoker_config::{Error, Group, Settings, Sources};

fn group(patterns: &[&str]) -> Group {
    let patterns = patterns.iter().map(|&pattern| pattern.to_owned()).collect();
    Group { patterns, learning_rate_scale: 1.0, weight_decay: None, frozen: false }
}

fn groups<const N: usize>(groups: [(&str, Group); N]) -> BTreeMap<String, Group> {
    groups.map(|(name, group)| (name.to_owned(), group)).into()
}

#[test]
fn there_are_none_unless_somebody_makes_them() {
    let (settings, _) = set(&["groups={}", "groups.nothing={}"]).unwrap();
    assert_eq!(settings.groups, BTreeMap::new());
    assert!(settings.parameters.decay_vectors);
}

#[test]
fn a_group_is_put_together_from_all_layers() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.toml");
    let text =
        "[groups.no-decay]\nmatch = \"*.bias\"\nweight_decay = 0.5\n[groups.head]\nmatch = [\"fc3.*\"]\nfrozen = true";
    std::fs::write(&path, text).unwrap();
    let environment = [("STOKER__GROUPS__NO_DECAY__WEIGHT_DECAY", "0"), ("STOKER__GROUPS__OWN__MATCH", "conv?.*")];
    let sources = Sources {
        file: Some(path.clone()),
        environment: environment.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
        overrides: ["no-decay.learning_rate_scale=2", "own.match=[\"a.*\", \"b\"]", "head={frozen=false}"]
            .map(|key| format!("groups.{key}"))
            .to_vec(),
        ..Sources::default()
    };
    let (settings, provenance) = Settings::load(&sources).unwrap();
    let no_decay = Group { weight_decay: Some(0.0), learning_rate_scale: 2.0, ..group(&["*.bias"]) };
    let wanted = [("no-decay", no_decay), ("head", group(&["fc3.*"])), ("own", group(&["a.*", "b"]))];
    assert_eq!(settings.groups, groups(wanted));
    let file = format!("file {}", path.display());
    for (key, wanted) in [
        ("groups.no-decay.match", file.as_str()),
        ("groups.no-decay.weight_decay", "environment STOKER__GROUPS__NO_DECAY__WEIGHT_DECAY"),
        ("groups.no-decay.learning_rate_scale", "--set"),
        ("groups.no-decay.frozen", "default"),
        ("groups.own.match", "--set"),
        ("groups.head.frozen", "--set"),
    ] {
        assert_eq!(provenance.of(key).unwrap().to_string(), wanted, "{key}");
    }
    assert_eq!(provenance.of("groups.own.weight_decay"), None, "there is no default but the optimizer's");
}

#[test]
fn a_pattern_is_one_text_or_a_list() {
    for (given, wanted) in [
        ("groups.g.match=*.bias", &["*.bias"][..]),
        ("groups.g.match=\"fc1.*\"", &["fc1.*"]),
        ("groups.g.match=[\"a\", \"b.?\"]", &["a", "b.?"]),
        ("groups={g={match=\"fc1.*\"}}", &["fc1.*"]),
    ] {
        assert_eq!(set(&[given]).unwrap().0.groups, groups([("g", group(wanted))]), "{given}");
    }
}

#[test]
fn names_may_have_dots() {
    let (result, _) = file("a.yaml", "groups: {\"a.b\": {match: x, frozen: true}}");
    let (settings, provenance) = result.unwrap();
    assert_eq!(settings.groups, groups([("a.b", Group { frozen: true, ..group(&["x"]) })]));
    assert_eq!(provenance.of("groups.\"a.b\".learning_rate_scale").unwrap().to_string(), "default");
    let (result, path) = file("a.yaml", "groups: {\"a.b\": {match: x, frozn: true}}");
    let wanted = format!(
        "unknown key `groups.\"a.b\".frozn` (from file {path}) (did you mean `groups.\"a.b\".frozen`?); `groups.\"a.b\"` has: match, learning_rate_scale, weight_decay, frozen"
    );
    assert_eq!(message(result), wanted);
}

#[test]
fn unknown_keys_have_the_nearest_one() {
    let has = "`groups.g` has: match, learning_rate_scale, weight_decay, frozen";
    for (given, wanted) in [
        (
            "groups.g.mach=x",
            format!("unknown key `groups.g.mach` (from --set) (did you mean `groups.g.match`?); {has}"),
        ),
        ("groups.g.lr=1", format!("unknown key `groups.g.lr` (from --set); {has}")),
        (
            "group.g.frozen=true",
            "unknown key `group.g.frozen` (from --set) (did you mean `groups.g.frozen`?); sections: run, model, "
                .into(),
        ),
        (
            "groups.g.frozen.deep=1",
            "unknown key `groups.g.frozen.deep` (from --set) (did you mean `groups.g.frozen`?); sections: ".into(),
        ),
        ("groups..frozen=true", "unknown key `groups..frozen` (from --set); sections: ".into()),
    ] {
        let error = message(set(&[given]));
        assert!(error.starts_with(&wanted), "{given}: {error}");
    }
    let error = message(environment(&[("STOKER__GROUPS__BIASES__FROZE", "true")]));
    let wanted = "unknown key `groups.biases.froze` (from environment STOKER__GROUPS__BIASES__FROZE) (did you mean `groups.biases.frozen`?); ";
    assert!(error.starts_with(wanted), "{error}");
}

#[test]
fn bad_values_say_what_is_allowed() {
    let path = "a path of parameters such as \"*.bias\", or a list of such";
    let keys = "match, learning_rate_scale, weight_decay, frozen";
    for (given, wanted) in [
        ("groups=1", "`groups` is 1 (from --set); allowed: tables, each a group of parameters".to_owned()),
        (
            "groups.frozen=true",
            format!(
                "`groups.frozen` is true (from --set); allowed: a group of parameters, which is a table with keys: {keys}"
            ),
        ),
        ("groups.g.match=[*.bias]", format!("`groups.g.match` is \"[*.bias]\" (from --set); allowed: {path}")),
        ("groups.g.match=[]", format!("`groups.g.match` is [] (from --set); allowed: {path}")),
        ("groups.g.match=1", format!("`groups.g.match` is 1 (from --set); allowed: {path}")),
        ("groups.g.match={}", format!("`groups.g.match` is a table (from --set); allowed: {path}")),
        (
            "groups.g.learning_rate_scale=-1",
            "`groups.g.learning_rate_scale` is -1 (from --set); allowed: a number from 0 on".to_owned(),
        ),
        ("groups.g.frozen=1", "`groups.g.frozen` is 1 (from --set); allowed: true or false".to_owned()),
    ] {
        assert_eq!(message(set(&[given])), wanted, "{given}");
    }
}

#[test]
fn a_group_without_parameters_is_not_one() {
    let error = set(&["groups.biases.match=*.bias", "groups.biase.frozen=true"]).unwrap_err();
    assert!(matches!(error, Error::NoMatch { .. }));
    assert_eq!(
        error.to_string(),
        "`groups.biase.frozen` is set (from --set) but the group has no `match` (did you mean `groups.biases`?); say which parameters it holds, such as --set groups.biase.match=*.bias"
    );
    let error = message(environment(&[("STOKER__GROUPS__HEAD__WEIGHT_DECAY", "0")]));
    assert_eq!(
        error,
        "`groups.head.weight_decay` is set (from environment STOKER__GROUPS__HEAD__WEIGHT_DECAY) but the group has no `match`; say which parameters it holds, such as --set groups.head.match=*.bias"
    );
}

#[test]
fn groups_are_shown_and_load_to_the_same() {
    let (settings, provenance) =
        set(&["groups.b={match=\"*.bias\", weight_decay=1}", "groups.a={match=[\"fc1.*\", \"fc2.?\"], frozen=true}"])
            .unwrap();
    let shown = settings.show(&provenance);
    let wanted = "\n[parameters]\ndecay_vectors = true  # from default\n\n[groups.a]\nmatch = [\"fc1.*\", \"fc2.?\"]  # from --set\nlearning_rate_scale = 1.0   # from default\nfrozen = true               # from --set\n\n[groups.b]\nmatch = [\"*.bias\"]         # from --set\nlearning_rate_scale = 1.0  # from default\nweight_decay = 1.0         # from --set\nfrozen = false             # from default\n\n[precision]\n";
    assert!(shown.contains(wanted), "{wanted}\nis not in\n{shown}");
    let (again, _) = file("shown.toml", &shown).0.unwrap();
    assert_eq!(again, settings);
    let json = settings.to_json(&provenance);
    assert_eq!(json["settings"]["groups"]["a"]["match"][1], "fc2.?");
    assert_eq!(json["from"]["groups.a.frozen"], "--set");
    assert_eq!(serde_json::from_value::<Settings>(json["settings"].clone()).unwrap(), settings);
}

#[test]
fn a_wrong_key_of_a_group_is_told_with_the_right_ones_once() {
    let error = message(set(&["groups.slow.match=*.bias", "groups.slow.learning_rate=0.1"]));
    let wanted = "`groups.slow` has: match, learning_rate_scale, weight_decay, frozen";
    assert!(error.ends_with(wanted), "{error}");
}
