//! A node of a cluster whose sessions are in MongoDB: `mongodb_node NATS_URL MONGODB_URL CLUSTER [SETTING=NUMBER…]`.
//!
//! The tests of this crate run it, and it shows how a program does without the command line of `encke`.

use std::error::Error;

use encke::{ClusterSettings, Server, SessionStoreSettings, Settings};
use encke_mongodb::{MongoSettings, MongoStore};
use encke_nats::{Nats, NatsSettings};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [nats, url, name, changes @ ..] = &arguments[..] else {
        return Err("mongodb_node NATS_URL MONGODB_URL CLUSTER [SETTING=NUMBER…]".into());
    };
    // Programs on this machine use the HTTP API without a key.
    let mut settings = Settings { listen: "127.0.0.1:0".parse()?, api_loopback: true, ..Settings::default() };
    let mut of_store = SessionStoreSettings::default();
    for change in changes {
        let (setting, number) = change.split_once('=').ok_or("SETTING=NUMBER")?;
        let number: u64 = number.parse()?;
        match setting {
            "max_interval_ms" => settings.max_interval_ms = number,
            "timeout_ms" => settings.timeout_ms = number,
            "scavenge_delay_ms" => of_store.scavenge_delay_ms = number,
            "scavenge_period_ms" => of_store.scavenge_period_ms = number,
            "purge" => of_store.purge = number > 0,
            "purge_delay_ms" => of_store.purge_delay_ms = number,
            "purge_invalid_age_ms" => of_store.purge_invalid_age_ms = number,
            "purge_valid_age_ms" => of_store.purge_valid_age_ms = number,
            other => return Err(format!("no setting {other}").into()),
        }
    }
    let cluster = ClusterSettings { name: name.clone(), ..ClusterSettings::default() };
    let servers = vec![nats.clone()];
    let engine = Nats::new(NatsSettings { servers, reconnect_delay_max_ms: 200, ..NatsSettings::default() }, name)?;
    let store = MongoStore::new(MongoSettings { url: Some(url.as_str().into()), ..MongoSettings::default() }, name)?;
    let server = Server::builder().settings(settings).cluster(cluster, engine).session_store(of_store, store);
    let running = server.start()?;
    println!("listening on {}", running.address());
    running.join();
    Ok(())
}
