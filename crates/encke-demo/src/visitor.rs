//! Names that visitors choose for themselves.

use encke::{Handshake, Identity, Refusal};

use crate::text;

/// Gives the session of a visitor the name that it chose, so that presence shows it: `ext: {"demo": {"user": "Ann"}}` of the
/// handshake makes the user `demo:Ann`. A handshake without a name is that of nobody. It is for servers on which a name
/// allows nothing.
///
/// # Errors
/// When the name is empty or too long.
pub async fn visitor(handshake: Handshake) -> Result<Identity, Refusal> {
    let demo = handshake.ext().and_then(|ext| bayeux::json::member(ext, "demo"));
    let Some(name) = demo.and_then(|demo| text(demo, "user")) else { return Ok(Identity::default()) };
    let name = name.trim();
    if name.is_empty() || name.chars().count() > NAME_CHARACTERS_MAX || name.chars().any(char::is_control) {
        return Err(Refusal::new(400, "a_name_has_1_to_40_characters"));
    }
    Ok(Identity::of_user(&format!("{PREFIX}{name}")))
}

/// Tells these names from those of users whom somebody has authenticated.
const PREFIX: &str = "demo:";
const NAME_CHARACTERS_MAX: usize = 40;
