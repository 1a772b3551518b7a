//! The rules for the channels of the demo pages.

use encke::{ChannelRule, Settings, SlowConsumer};

/// The settings with the rules that the demo pages need. They come after the rules of the operator, which take precedence: one that they
/// hide is left out.
pub fn with_rules(mut settings: Settings) -> Settings {
    for rule in rules() {
        settings.channels.push(rule);
        let last = settings.channels.len() - 1;
        if encke::hidden_rules(&settings.channels).iter().any(|(_, hidden)| *hidden == last) {
            settings.channels.pop();
        }
    }
    settings
}

fn rules() -> Vec<ChannelRule> {
    let latest = |pattern: &str| ChannelRule {
        pattern: pattern.into(),
        slow_consumer: SlowConsumer::KeepLatest,
        // A message that waits is of no use when the next one is there.
        slow_consumer_bytes: 1,
        history_messages: 1,
        ..ChannelRule::default()
    };
    vec![
        // A viewer who comes late gets the last picture at once.
        latest("/demo/screenpush/**"),
        // One channel for each slide that was shown, for as long as a talk takes.
        ChannelRule { history_ms: TALK_MS, ..latest("/demo/slides/**") },
        // A game is the sequence of its messages.
        ChannelRule {
            pattern: "/demo/game/**".into(),
            history_messages: GAME_MESSAGES,
            history_ms: GAME_MS,
            ..ChannelRule::default()
        },
        ChannelRule { pattern: "/demo/presence/**".into(), presence: true, ..ChannelRule::default() },
    ]
}

/// Longest time for which a slide can be looked at again, in milliseconds.
const TALK_MS: u64 = 4 * 60 * 60 * 1000;
/// Messages of a table that a game page reads from the beginning.
const GAME_MESSAGES: usize = 1_000;
/// Time after which a game that nobody continues is gone, in milliseconds.
const GAME_MS: u64 = 24 * 60 * 60 * 1000;
