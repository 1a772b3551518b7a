//! The section `[auth]` as `docs/configuration.md` describes it.

/// The text of the section. A test compares names and defaults with `encke_auth::AuthSettings`.
pub(crate) const AUTH: &str = include_str!("../reference/auth.md");

#[cfg(test)]
mod tests {
    use encke_auth::AuthSettings;
    use serde::Deserialize as _;

    use super::*;

    #[test]
    fn the_documentation_of_auth_is_what_its_settings_are() {
        let rows = AUTH.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
        let rows: Vec<(&str, &str)> =
            rows.map(|(name, rest)| (name, rest.split(" | ").next().unwrap_or_default().trim_matches('`'))).collect();
        for (name, default) in rows.iter().filter(|(_, default)| *default != "none") {
            let settings: AuthSettings = toml::from_str(&format!("{name} = {default}")).expect(name);
            assert_eq!(settings, AuthSettings::default(), "{name}");
        }
        let mut unknown = toml::Table::new();
        unknown.insert("no such name".into(), true.into());
        let error = AuthSettings::deserialize(unknown).expect_err("no such setting").to_string();
        let names: Vec<&str> = error.split('`').skip(3).step_by(2).collect();
        assert_eq!(rows.iter().map(|(name, _)| *name).collect::<Vec<_>>(), names);
    }
}
