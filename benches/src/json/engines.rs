//! The engines, each used in the fastest way that a server could.

use std::borrow::Cow;
use std::fmt;

use bayeux::{Limits, Message, Publication, parse_batch};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use simd_json::prelude::{ValueAsArray, ValueAsScalar, ValueObjectAccess};
use sonic_rs::{JsonContainerTrait, JsonValueTrait};

use super::engine::{Contestant, Engine, Named};

/// All engines; the first is Encke's, which the others are compared with.
pub fn all() -> Vec<Box<dyn Contestant>> {
    vec![
        Box::new(Named("encke envelope", Envelope(Limits::default()))),
        Box::new(Named("serde_json raw", SerdeRaw)),
        Box::new(Named("serde_json tree", SerdeTree)),
        Box::new(Named("sonic-rs lazy", SonicLazy)),
        Box::new(Named("sonic-rs tree", SonicTree)),
        Box::new(Named("simd-json tree", SimdTree::default())),
    ]
}

/// The server's own way: it checks UTF-8, slices the batch and splices the slices.
#[derive(Debug)]
struct Envelope(Limits);

impl Engine for Envelope {
    type Parsed<'a> = Vec<Message<'a>>;

    fn parse<'a>(&'a mut self, text: &'a [u8]) -> Option<Self::Parsed<'a>> {
        parse_batch(simdutf8::basic::from_utf8(text).ok()?, &self.0).ok()
    }

    fn envelope_bytes(parsed: &Self::Parsed<'_>) -> usize {
        let bytes = |message: &Message<'_>| {
            let id = message.id.as_ref().map(bayeux::Id::as_str);
            len(message.channel.as_deref()) + len(message.client_id.as_deref()) + len(id)
        };
        parsed.iter().map(bytes).sum()
    }

    fn generate(parsed: &Self::Parsed<'_>, out: &mut Vec<u8>) {
        array(parsed, out, |message, out| {
            let channel = message.channel.as_deref().unwrap_or_default();
            Publication { channel, data: message.data, ext: message.ext, ..Publication::default() }.write(out);
        });
    }
}

/// A message whose `data` an engine stores in its own type.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Fields<'a, D> {
    #[serde(borrow)]
    channel: Cow<'a, str>,
    #[serde(borrow)]
    client_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    id: Option<Cow<'a, str>>,
    data: Option<D>,
    ext: Option<D>,
}

/// A message for a subscriber.
#[derive(Serialize)]
struct Delivered<'a, D> {
    channel: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a D>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ext: Option<&'a D>,
}

impl<D> Fields<'_, D> {
    fn envelope_bytes(&self) -> usize {
        self.channel.len() + len(self.client_id.as_deref()) + len(self.id.as_deref())
    }

    fn delivered(&self) -> Delivered<'_, D> {
        Delivered { channel: &self.channel, data: self.data.as_ref(), ext: self.ext.as_ref() }
    }
}

/// serde_json, with `data` as a slice of the text.
#[derive(Debug)]
struct SerdeRaw;

impl Engine for SerdeRaw {
    type Parsed<'a> = Vec<Fields<'a, &'a RawValue>>;

    fn parse<'a>(&'a mut self, text: &'a [u8]) -> Option<Self::Parsed<'a>> {
        serde_json::from_slice(text).ok()
    }

    fn envelope_bytes(parsed: &Self::Parsed<'_>) -> usize {
        parsed.iter().map(Fields::envelope_bytes).sum()
    }

    fn generate(parsed: &Self::Parsed<'_>, out: &mut Vec<u8>) {
        array(parsed, out, |message, out| written(serde_json::to_writer(out, &message.delivered())));
    }
}

/// serde_json, with the whole batch as a tree.
#[derive(Debug)]
struct SerdeTree;

impl Engine for SerdeTree {
    type Parsed<'a> = Vec<serde_json::Value>;

    fn parse<'a>(&'a mut self, text: &'a [u8]) -> Option<Self::Parsed<'a>> {
        serde_json::from_slice(text).ok()
    }

    fn envelope_bytes(parsed: &Self::Parsed<'_>) -> usize {
        let bytes = |message: &serde_json::Value| KEYS.iter().map(|key| len(message[*key].as_str())).sum::<usize>();
        parsed.iter().map(bytes).sum()
    }

    fn generate(parsed: &Self::Parsed<'_>, out: &mut Vec<u8>) {
        array(parsed, out, |message, out| {
            let channel = message["channel"].as_str().unwrap_or_default();
            let delivered = Delivered { channel, data: message.get("data"), ext: message.get("ext") };
            written(serde_json::to_writer(out, &delivered));
        });
    }
}

/// sonic-rs, with `data` as a slice of the text.
#[derive(Debug)]
struct SonicLazy;

impl Engine for SonicLazy {
    type Parsed<'a> = Vec<Fields<'a, sonic_rs::LazyValue<'a>>>;

    fn parse<'a>(&'a mut self, text: &'a [u8]) -> Option<Self::Parsed<'a>> {
        sonic_rs::from_slice(text).ok()
    }

    fn envelope_bytes(parsed: &Self::Parsed<'_>) -> usize {
        parsed.iter().map(Fields::envelope_bytes).sum()
    }

    fn generate(parsed: &Self::Parsed<'_>, out: &mut Vec<u8>) {
        array(parsed, out, |message, out| written(sonic_rs::to_writer(out, &message.delivered())));
    }
}

/// sonic-rs, with the whole batch as a tree.
#[derive(Debug)]
struct SonicTree;

impl Engine for SonicTree {
    type Parsed<'a> = sonic_rs::Value;

    fn parse<'a>(&'a mut self, text: &'a [u8]) -> Option<Self::Parsed<'a>> {
        sonic_rs::from_slice::<sonic_rs::Value>(text).ok().filter(|batch| batch.is_array())
    }

    fn envelope_bytes(parsed: &Self::Parsed<'_>) -> usize {
        let bytes = |message: &sonic_rs::Value| KEYS.iter().map(|key| len(message[*key].as_str())).sum::<usize>();
        parsed.as_array().map_or(0, |messages| messages.iter().map(bytes).sum())
    }

    fn generate(parsed: &Self::Parsed<'_>, out: &mut Vec<u8>) {
        let messages = parsed.as_array().map_or(&[][..], |messages| messages.as_slice());
        array(messages, out, |message, out| {
            let channel = message["channel"].as_str().unwrap_or_default();
            let delivered = Delivered { channel, data: message.get("data"), ext: message.get("ext") };
            written(sonic_rs::to_writer(out, &delivered));
        });
    }
}

/// simd-json, with the whole batch as a tree that borrows from the text. It writes into the text while it reads, so it is
/// given a copy each time; its buffers are used again.
#[derive(Default)]
struct SimdTree {
    copy: Vec<u8>,
    buffers: simd_json::Buffers,
}

impl Engine for SimdTree {
    type Parsed<'a> = simd_json::BorrowedValue<'a>;

    fn parse<'a>(&'a mut self, text: &'a [u8]) -> Option<Self::Parsed<'a>> {
        self.copy.clear();
        self.copy.extend_from_slice(text);
        simd_json::borrowed::to_value_with_buffers(&mut self.copy, &mut self.buffers).ok()
    }

    fn envelope_bytes(parsed: &Self::Parsed<'_>) -> usize {
        let text = |message: &simd_json::BorrowedValue<'_>, key| len(message.get(key).and_then(|value| value.as_str()));
        let messages = parsed.as_array().into_iter().flatten();
        messages.map(|message| KEYS.iter().map(|key| text(message, *key)).sum::<usize>()).sum()
    }

    fn generate(parsed: &Self::Parsed<'_>, out: &mut Vec<u8>) {
        let messages = parsed.as_array().map_or(&[][..], |messages| messages);
        array(messages, out, |message, out| {
            let channel = message.get("channel").and_then(|value| value.as_str()).unwrap_or_default();
            let delivered = Delivered { channel, data: message.get("data"), ext: message.get("ext") };
            written(simd_json::to_writer(out, &delivered));
        });
    }
}

impl fmt::Debug for SimdTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimdTree")
    }
}

fn array<M>(messages: &[M], out: &mut Vec<u8>, mut one: impl FnMut(&M, &mut Vec<u8>)) {
    out.push(b'[');
    for (index, message) in messages.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        one(message, out);
    }
    out.push(b']');
}

fn len(text: Option<&str>) -> usize {
    text.map_or(0, str::len)
}

/// A `Vec` accepts every write, and parsed values can be written. If a write failed, the check of the outputs would
/// fail.
fn written<E>(_result: Result<(), E>) {}

/// The keys that a server needs of a message.
const KEYS: [&str; 3] = ["channel", "clientId", "id"];
