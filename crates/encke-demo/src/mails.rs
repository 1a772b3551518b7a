//! Example mails, for a page of mails without a mailbox.

use std::io;
use std::time::Duration;

use encke::{Handle, PublishError};

use crate::Source;

/// Publishes an example mail every few seconds, from a thread that ends with the server. Returns the source for the list of
/// [`Demo::sources`](crate::Demo::sources).
///
/// # Errors
/// When the thread cannot be started.
pub fn example_mails(handle: Handle) -> io::Result<Source> {
    let publish = move || {
        for (sender, name, subject) in MAILS.iter().cycle() {
            std::thread::sleep(PAUSE);
            let mail = format!(
                r#"{{"account":"example","sender":"{sender}","sender_name":"{name}","subject":"Example: {subject}","date":null,"message_id":null}}"#
            );
            // A busy server gets the next one.
            if !matches!(handle.publish(CHANNEL, &mail), Ok(()) | Err(PublishError::Busy)) {
                return;
            }
        }
    };
    std::thread::Builder::new().name("example mails".into()).spawn(publish)?;
    Ok(Source { name: "example".into(), kind: "mail".into(), channel: CHANNEL.into() })
}

const CHANNEL: &str = "/mail/example";
const PAUSE: Duration = Duration::from_secs(4);

const MAILS: &[(&str, &str, &str)] = &[
    ("caroline@example.org", "Caroline", "a faint object near Andromeda"),
    ("johann@example.org", "Johann", "the orbit: 3.3 years, again"),
    ("newsletter@example.com", "Observatory", "clear skies until Thursday"),
    ("pierre@example.org", "Pierre", "did you see the coma?"),
    ("archive@example.com", "Archive", "your plates have been digitised"),
];
