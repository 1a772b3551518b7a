//! The settings about MongoDB in the section `[mongodb]` of the configuration file.

use encke::{Declared as _, Secret};
use serde::Deserialize;

encke::settings! {
    /// The MongoDB server, and how to use it.
    #[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct MongoSettings;

    "The connection to MongoDB" {
        /// The URL, such as `mongodb://encke:secret@10.0.0.1,10.0.0.2/?replicaSet=rs0&authSource=admin&tls=true`. Its options are those of every driver. Not
        /// `mongodb+srv`: name the servers.
        url: Option<Secret> = None;
        /// The name of the environment variable with the URL.
        url_env: Option<String> = None;
        /// The database.
        database: String = "encke".into();
        /// The collection, which only the nodes of one cluster use. Empty: `sessions-` and the name of the cluster.
        collection: String = String::new();
        /// Longest time that a read, a write or another command waits for MongoDB, in milliseconds. It is tried again.
        timeout_ms: u64 = 2_000, positive();
        /// Connections of a node to each server.
        connections_max: usize = 8, positive();
    }
}

/// A setting about MongoDB that cannot work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("mongodb.{name} = {value}: {wanted}")]
#[non_exhaustive]
pub struct MongoSettingsError {
    /// The name of the setting.
    pub name: &'static str,
    /// Its value; never a secret.
    pub value: String,
    /// The reason, or what would be right.
    pub wanted: String,
}

impl MongoSettings {
    /// Checks the settings, and reads the variable that they name.
    ///
    /// # Errors
    /// The first setting that cannot work.
    pub fn check(&self) -> Result<(), MongoSettingsError> {
        if let Some((setting, value, wanted)) = self.out_of_range().first().copied() {
            return fail(setting.name, value.to_string(), wanted);
        }
        if self.database.is_empty() || self.database.contains(['/', '\\', '.', ' ', '"', '$', '\0']) {
            return fail("database", format!("{:?}", self.database), "a name without / \\ . \" $ and spaces");
        }
        if self.collection.contains(['$', '\0']) || self.collection.starts_with("system.") {
            return fail(
                "collection",
                format!("{:?}", self.collection),
                "a name without $ that does not begin with system.",
            );
        }
        self.secret_url().map(|_| ())
    }

    /// The URL.
    pub(crate) fn secret_url(&self) -> Result<Secret, MongoSettingsError> {
        let (name, url) = match (&self.url, &self.url_env) {
            (Some(_), Some(variable)) => {
                return fail("url_env", variable.clone(), "url is set, too: remove one of them");
            }
            (Some(url), None) => ("url", url.clone()),
            (None, Some(variable)) => match std::env::var(variable) {
                Ok(url) if !url.is_empty() => ("url_env", url.into()),
                _ => return fail("url_env", variable.clone(), "an environment variable that is set"),
            },
            (None, None) => return fail("url", "none".into(), "a URL such as mongodb://127.0.0.1:27017"),
        };
        // A URL may have a password, so it is not shown.
        if url.reveal().starts_with("mongodb+srv://") {
            return fail(
                name,
                "***".into(),
                "mongodb:// with the names of the servers; this driver has no resolver for mongodb+srv",
            );
        }
        if !url.reveal().starts_with("mongodb://") {
            return fail(name, "***".into(), "a URL such as mongodb://127.0.0.1:27017");
        }
        #[cfg(feature = "driver")]
        if let Err(error) = mongodb::options::ConnectionString::parse(url.reveal()) {
            // The message of the driver may repeat a part of the URL.
            let text = error.to_string();
            let shows_secret =
                user_info(url.reveal()).is_some_and(|secret| secret.split(':').any(|part| text.contains(part)));
            return fail(name, "***".into(), if shows_secret { "a valid URL of MongoDB" } else { &text });
        }
        Ok(url)
    }

    /// The servers of the URL, for the log.
    #[cfg(any(feature = "driver", test))]
    pub(crate) fn servers(url: &Secret) -> String {
        let rest = url.reveal().trim_start_matches("mongodb://");
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let authority = &rest[..end];
        authority.rsplit_once('@').map_or(authority, |(_, servers)| servers).to_owned()
    }
}

/// The user and the password of a URL.
#[cfg(feature = "driver")]
fn user_info(url: &str) -> Option<&str> {
    Some(url.trim_start_matches("mongodb://").rsplit_once('@')?.0)
}

fn fail<T>(name: &'static str, value: String, wanted: &str) -> Result<T, MongoSettingsError> {
    Err(MongoSettingsError { name, value, wanted: wanted.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(change: impl FnOnce(&mut MongoSettings)) -> String {
        let url = Some("mongodb://ann:hunter2@a,b:1/?replicaSet=rs0".into());
        let mut settings = MongoSettings { url, ..MongoSettings::default() };
        change(&mut settings);
        settings.check().err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn settings_that_cannot_work_are_refused_by_name_and_without_secrets() {
        assert_eq!(with(|_| {}), "");
        assert!(with(|it| it.url = None).starts_with("mongodb.url = none: a URL such as"));
        assert!(
            with(|it| it.url = Some("http://ann:hunter2@a".into())).starts_with("mongodb.url = ***: a URL such as")
        );
        assert!(with(|it| it.url = Some("mongodb+srv://a".into())).contains("names of the servers"));
        let broken = with(|it| it.url = Some("mongodb://ann:hunter2@a:notaport/".into()));
        assert!(broken.starts_with("mongodb.url = ***: ") && !broken.contains("hunter2"), "{broken}");
        assert!(with(|it| it.url_env = Some("ENCKE_NO_SUCH_VARIABLE".into())).contains("remove one of them"));
        let of_variable = |it: &mut MongoSettings| (it.url, it.url_env) = (None, Some("ENCKE_NO_SUCH_VARIABLE".into()));
        assert!(with(of_variable).contains("that is set"));
        assert!(with(|it| it.database = "a.b".into()).starts_with("mongodb.database = \"a.b\": a name"));
        assert!(with(|it| it.collection = "system.x".into()).starts_with("mongodb.collection = "));
        assert!(with(|it| it.timeout_ms = 0).starts_with("mongodb.timeout_ms = 0: "));
    }

    #[test]
    fn the_log_shows_the_servers_and_no_secret() {
        assert_eq!(MongoSettings::servers(&"mongodb://ann:p@ss@a,b:1/x?y=z".into()), "a,b:1");
        assert_eq!(MongoSettings::servers(&"mongodb://a?y=z".into()), "a");
    }
}
