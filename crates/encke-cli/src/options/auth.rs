//! The section `[auth]` as `docs/configuration.md` describes it.

/// The text of the section. A test compares names and defaults with `encke_auth::AuthSettings`.
pub(crate) const AUTH: &str = include_str!("../reference/auth.md");

/// Each setting of the section: its name, its default in TOML if it has one, its description.
pub(crate) fn rows() -> impl Iterator<Item = (&'static str, Option<&'static str>, &'static str)> {
    AUTH.lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("| `")?.strip_suffix(" |")?.split_once("` | ")?;
        let (default, doc) = rest.split_once(" | ")?;
        Some((name, Some(default.trim_matches('`')).filter(|default| *default != "none"), doc))
    })
}

#[cfg(test)]
mod tests {
    use encke_auth::AuthSettings;
    use serde::Deserialize as _;

    use super::*;

    #[test]
    fn the_documentation_of_auth_is_what_its_settings_are() {
        for (name, default) in rows().filter_map(|(name, default, _)| Some((name, default?))) {
            let settings: AuthSettings = toml::from_str(&format!("{name} = {default}")).expect(name);
            assert_eq!(settings, AuthSettings::default(), "{name}");
        }
        let mut unknown = toml::Table::new();
        unknown.insert("no such name".into(), true.into());
        let error = AuthSettings::deserialize(unknown).expect_err("no such setting").to_string();
        let names: Vec<&str> = error.split('`').skip(3).step_by(2).collect();
        assert_eq!(rows().map(|(name, ..)| name).collect::<Vec<_>>(), names);
    }
}
