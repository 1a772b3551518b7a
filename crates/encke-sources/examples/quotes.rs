//! Pushes 3,000 prices that walk at random, twice a second, until a line is entered. It is the quote server of the blogs that Encke grew
//! from: each message has bid, ask, last and the number of the loop.

use encke::{Server, Settings};
use encke_sources::{Sources, SourcesSettings};

const SOURCES: &str = r#"
    [[source]]
    kind = "quotes"
    symbols = 3000
    interval_ms = 500
"#;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listen = std::env::args().nth(1).unwrap_or("127.0.0.1:8080".into()).parse()?;
    let running = Server::builder().settings(Settings { listen, ..Settings::default() }).start()?;
    let sources = encke_sources::parse(&toml::from_str::<toml::Table>(SOURCES)?["source"])?;
    let sources = Sources::start(SourcesSettings { sources, data: None }, running.handle())?;
    println!("subscribe to /stock/** at http://{}/cometd; a line ends it", running.address());
    std::io::stdin().read_line(&mut String::new())?;
    sources.stop();
    sources.join();
    running.handle().drain();
    running.join();
    Ok(())
}
