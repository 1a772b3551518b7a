//! The bodies of events, as `docs/webhooks.schema.json` describes them.
//!
//! A body is written once and is the same in every retry. Raw JSON of clients goes into it byte by byte.

use bayeux::escape_into;
use bytes::Bytes;
use encke_core::{Caller, Head};

use crate::settings::EventKind;

/// An event to post.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) kind: EventKind,
    /// Names the event in every retry: the header `webhook-id`.
    pub(crate) id: String,
    /// JSON.
    pub(crate) body: Bytes,
}

/// Writes the body of an event: members of its `data`, in any order.
#[derive(Debug)]
pub(crate) struct Writer {
    kind: EventKind,
    id: String,
    out: Vec<u8>,
}

impl Writer {
    /// Begins an event of this time, in milliseconds since 1970.
    pub(crate) fn new(kind: EventKind, id: String, wall_ms: u64) -> Writer {
        let head = format!(
            r#"{{"type":"{}","id":"{id}","timestamp":"{}","data":{{"#,
            kind.as_str(),
            bayeux::ext::timestamp(wall_ms as i64)
        );
        Writer { kind, id, out: head.into_bytes() }
    }

    /// A member with a text.
    pub(crate) fn text(mut self, name: &str, value: &str) -> Writer {
        self.name(name);
        escape_into(value, &mut self.out);
        self
    }

    /// A member with raw JSON, if there is some.
    pub(crate) fn raw(mut self, name: &str, value: Option<&str>) -> Writer {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            self.name(name);
            self.out.extend_from_slice(value.as_bytes());
        }
        self
    }

    /// The session that the event is about, its owner, and its attributes if it has some.
    pub(crate) fn caller(self, caller: &Caller<'_>) -> Writer {
        let claims = caller.identity.map(|identity| &*identity.claims);
        let attributes = caller.attributes.filter(|attributes| !attributes.is_empty());
        let attributes = attributes.map(|attributes| attributes.to_json());
        let owner = self.text("session", caller.id).text("user", caller.user());
        owner.raw("claims", claims).raw("attributes", attributes.as_deref())
    }

    /// The request that opened the connection: its path with the query, and its headers. Values of one name are joined as HTTP says.
    pub(crate) fn head(mut self, head: &Head) -> Writer {
        self = self.text("target", head.target());
        self.name("headers");
        let mut names: Vec<&str> = head.headers().map(|(name, _)| name).collect();
        names.sort_unstable();
        names.dedup();
        self.out.push(b'{');
        for name in names {
            let values: Vec<&str> =
                head.headers().filter(|(other, _)| *other == name).map(|(_, value)| value).collect();
            self.name(name);
            escape_into(&values.join(if name == "cookie" { "; " } else { ", " }), &mut self.out);
        }
        self.out.push(b'}');
        self
    }

    pub(crate) fn finish(mut self) -> Event {
        self.out.extend_from_slice(b"}}");
        Event { kind: self.kind, id: self.id, body: self.out.into() }
    }

    fn name(&mut self, name: &str) {
        if self.out.last() != Some(&b'{') {
            self.out.push(b',');
        }
        escape_into(name, &mut self.out);
        self.out.push(b':');
    }
}
