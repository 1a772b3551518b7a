//! The section `[mongodb]`: the store of a cluster's sessions, in a program that is built with the feature `mongodb`.

use encke::{Builder, Declared as _, SessionStoreSettings};
use encke_mongodb::{MongoSettings, MongoSettingsError};
use toml::{Table, Value};

use crate::cluster::ClusterSection;
use crate::tables::{checked, wrong_in};

/// The settings of the store.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct MongoSection {
    store: SessionStoreSettings,
    mongo: MongoSettings,
}

impl MongoSection {
    /// Reads the section.
    ///
    /// # Errors
    /// One line for each error.
    pub(crate) fn read(value: &Value) -> Result<MongoSection, Vec<String>> {
        if !cfg!(feature = "mongodb") {
            return Err(vec![format!("mongodb: {WITHOUT}")]);
        }
        let empty = Table::new();
        let all = value.as_table().unwrap_or(&empty).clone();
        let of_store = |name: &str| {
            SessionStoreSettings::DECLARED.iter().flat_map(|group| group.settings).any(|setting| setting.name == name)
        };
        let (store, mongo): (Table, Table) = all.into_iter().partition(|(name, _)| of_store(name));
        let wrong_store = |store: &SessionStoreSettings| {
            wrong_in("mongodb", store, store.check().map_err(|error| format!("mongodb.{error}")).err())
        };
        let wrong_mongo = |mongo: &MongoSettings| wrong_in("mongodb", mongo, mongo.check().err());
        // One that is no table is refused as what it is.
        let mongo = if value.is_table() { Value::Table(mongo) } else { value.clone() };
        match (checked("mongodb", &Value::Table(store), wrong_store), checked("mongodb", &mongo, wrong_mongo)) {
            (Ok(store), Ok(mongo)) => Ok(MongoSection { store, mongo }),
            (store, mongo) => Err([store.err(), mongo.err()].into_iter().flatten().flatten().collect()),
        }
    }

    /// Gives a server its store, if there is a section.
    ///
    /// # Errors
    /// The first setting that cannot work.
    pub(crate) fn join(
        section: Option<&MongoSection>,
        cluster: Option<&ClusterSection>,
        server: Builder,
    ) -> Result<Builder, MongoSettingsError> {
        let (Some(section), Some(cluster)) = (section, cluster) else { return Ok(server) };
        section.store_of(&cluster.node.name, server)
    }

    #[cfg(feature = "mongodb")]
    fn store_of(&self, cluster: &str, server: Builder) -> Result<Builder, MongoSettingsError> {
        let store = encke_mongodb::MongoStore::new(self.mongo.clone(), cluster)?;
        Ok(server.session_store(self.store.clone(), store))
    }

    /// The section is not read without the feature.
    #[cfg(not(feature = "mongodb"))]
    fn store_of(&self, _: &str, server: Builder) -> Result<Builder, MongoSettingsError> {
        Ok(server)
    }
}

/// The reason why the section is refused.
const WITHOUT: &str =
    "this program is built without MongoDB; build it with: cargo build --release -p encke-cli --features mongodb";

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<MongoSection, Vec<String>> {
        MongoSection::read(&Value::Table(toml::from_str(text).expect("TOML")))
    }

    #[test]
    #[cfg(not(feature = "mongodb"))]
    fn a_program_without_mongodb_says_how_to_get_it() {
        let problems = read("url = \"mongodb://127.0.0.1\"").expect_err("without");
        assert!(
            problems[0].starts_with("mongodb: this program is built without")
                && problems[0].contains("--features mongodb")
        );
    }

    #[test]
    #[cfg(feature = "mongodb")]
    fn each_mistake_is_named_and_no_secret_shown() {
        let section = read("url = \"mongodb://127.0.0.1\"\nscavenge_period_ms = 7").expect("a section");
        assert_eq!((section.store.scavenge_period_ms, section.store.purge), (7, true));
        let problems = read("url = \"http://ann:hunter2@a\"\npurge_delay_ms = 0\nurll = 1").expect_err("mistakes");
        let all = problems.join("\n");
        assert!(all.contains("mongodb.purge_delay_ms = 0: ") && all.contains("mongodb.urll: "), "{all}");
        assert!(!all.contains("hunter2"), "{all}");
        assert!(read("").expect_err("no URL")[0].starts_with("mongodb.url = none: a URL"));
    }
}
