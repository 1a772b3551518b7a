//! The sections `[auth]`, `[cluster]`, `[mongodb]` and `[proxy]` as `docs/configuration.md` and the file of `encke config init` describe them.

use std::any::Any;
use std::fmt::Write as _;

use encke::{ClusterSettings, Declared, SessionStoreSettings};
use encke_mongodb::MongoSettings;
use encke_nats::NatsSettings;
use toml::Value;

/// A setting of a section: its name, its default if it has one, its description.
pub(crate) type Row = (&'static str, Option<Value>, &'static str);

/// Each setting of a section.
pub(crate) fn rows<T: Declared + Default>() -> Vec<Row> {
    let (defaults, declared) = (T::default(), T::DECLARED.iter().flat_map(|group| group.settings));
    declared.zip(defaults.values()).map(|(setting, default)| (setting.name, in_toml(default), setting.doc())).collect()
}

/// Each setting of the section `[cluster]`, which two crates read.
pub(crate) fn cluster_rows() -> Vec<Row> {
    rows::<NatsSettings>().into_iter().chain(rows::<ClusterSettings>()).collect()
}

/// Each setting of the section `[mongodb]`, which two crates read.
pub(crate) fn mongodb_rows() -> Vec<Row> {
    rows::<MongoSettings>().into_iter().chain(rows::<SessionStoreSettings>()).collect()
}

/// The text of a section with a table of its settings.
pub(crate) fn with_table<T: Declared + Default>(text: &str) -> String {
    with_rows(text, &rows::<T>())
}

/// The text of a section with a table of these settings.
pub(crate) fn with_rows(text: &str, rows: &[Row]) -> String {
    let mut table = String::from("| name | default | meaning |\n| --- | --- | --- |");
    for (name, default, doc) in rows {
        let default = default.as_ref().map_or("none".into(), |default| format!("`{default}`"));
        let _ = write!(table, "\n| `{name}` | {default} | {doc} |");
    }
    text.replace("{settings}", &table)
}

fn in_toml(value: &dyn Any) -> Option<Value> {
    let number = value.downcast_ref::<u64>().copied().or_else(|| Some(*value.downcast_ref::<usize>()? as u64));
    let number = number.and_then(|number| i64::try_from(number).ok());
    let of_bool = || value.downcast_ref::<bool>().copied().map(Value::from);
    let of_text = || value.downcast_ref::<String>().cloned().map(Value::from);
    let of_list = || value.downcast_ref::<Vec<String>>().cloned().map(Value::from);
    number.map(Value::from).or_else(of_bool).or_else(of_text).or_else(of_list)
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use encke_auth::AuthSettings;
    use encke_proxy::ProxySettings;
    use serde::de::DeserializeOwned;

    use super::*;

    fn each_default_is_shown<T: Declared + Default + DeserializeOwned + PartialEq + Debug>(without: &[&str]) {
        for (name, default, _) in rows::<T>() {
            assert_eq!(default.is_none(), without.contains(&name), "{name}");
            let Some(default) = default else { continue };
            let settings: T = toml::from_str(&format!("{name} = {default}")).expect(name);
            assert_eq!(settings, T::default(), "{name}");
        }
    }

    #[test]
    fn a_section_shows_the_default_of_each_setting_that_has_one() {
        each_default_is_shown::<ProxySettings>(&[]);
        each_default_is_shown::<ClusterSettings>(&[]);
        each_default_is_shown::<SessionStoreSettings>(&[]);
        each_default_is_shown::<MongoSettings>(&["url", "url_env"]);
        each_default_is_shown::<NatsSettings>(&[
            "ca_file",
            "cert_file",
            "key_file",
            "user",
            "password",
            "password_env",
            "token",
            "token_env",
            "nkey_file",
            "credentials_file",
        ]);
        each_default_is_shown::<AuthSettings>(&[
            "secret",
            "secret_file",
            "secret_env",
            "public_key_files",
            "jwks_file",
            "jwks_url",
            "jwks_ca_file",
            "anonymous_subscribe",
            "anonymous_publish",
        ]);
    }
}
