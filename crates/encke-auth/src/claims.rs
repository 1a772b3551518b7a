//! The claims of a token whose signature is right: checks them, and makes an identity of them.

use encke::{Identity, Patterns, SessionLimits, SessionTerms};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::error::TokenError;
use crate::settings::AuthSettings;

/// Checks the claims (RFC 7519 §4.1) at this time, in milliseconds since 1970, and makes an identity of them.
pub(crate) fn identity(settings: &AuthSettings, text: &str, now_ms: u64) -> Result<Identity, TokenError> {
    let Ok(Value::Object(claims)) = serde_json::from_str(text) else {
        return Err(TokenError::Malformed("its claims are no JSON object"));
    };
    let claims = Claims(&claims);
    let leeway_ms = settings.leeway_s.saturating_mul(1_000);
    let expires_ms = claims.time_ms("exp")?.map(|end_ms| end_ms.saturating_add(leeway_ms));
    match expires_ms {
        Some(end_ms) if end_ms <= now_ms => {
            return Err(TokenError::Expired { seconds_ago: (now_ms - (end_ms - leeway_ms)) / 1_000 });
        }
        None if settings.expiry_required => return Err(wrong("exp", "an end is required (expiry_required)")),
        _ => {}
    }
    if let Some(begin_ms) = claims.time_ms("nbf")?
        && begin_ms > now_ms.saturating_add(leeway_ms)
    {
        return Err(TokenError::NotYetValid { seconds_left: (begin_ms - now_ms).div_ceil(1_000) });
    }
    let issuer = claims.text("iss")?;
    if !settings.issuer.is_empty() && !issuer.is_some_and(|issuer| settings.issuer.iter().any(|own| own == issuer)) {
        return Err(TokenError::Issuer(issuer.map_or("missing".into(), |issuer| format!("{issuer:?}"))));
    }
    claims.check_audience(&settings.audience)?;
    let channels = |claim: &str| match claims.list(claim)? {
        Some(names) => Patterns::new(names).map(Some).map_err(|error| wrong(claim, error)),
        None if settings.channel_claims_required => Ok(Some(Patterns::default())),
        None => Ok(None),
    };
    let limits = claims.object::<SessionLimits>(&settings.limits_claim)?.unwrap_or_default();
    let terms = claims.object::<SessionTerms>(&settings.terms_claim)?;
    terms.map_or(Ok(()), |terms| terms.check()).map_err(|error| wrong(&settings.terms_claim, error))?;
    Ok(Identity {
        user: claims.user(&settings.user_claim)?.into(),
        claims: text.into(),
        token_id: claims.text("jti")?.map(Into::into),
        expires_ms,
        subscribe: channels(&settings.subscribe_claim)?,
        publish: channels(&settings.publish_claim)?,
        limits,
        terms: terms.map(Box::new),
        reply: None,
    })
}

/// The identity of a user whose certificate stands for a token without claims for channels.
pub(crate) fn of_certificate(settings: &AuthSettings, user: &str) -> Identity {
    let channels = settings.channel_claims_required.then(Patterns::default);
    Identity { subscribe: channels.clone(), publish: channels, ..Identity::of_user(user) }
}

struct Claims<'a>(&'a Map<String, Value>);

impl<'a> Claims<'a> {
    /// A time in seconds since 1970 (RFC 7519 `NumericDate`), in milliseconds.
    fn time_ms(&self, claim: &str) -> Result<Option<u64>, TokenError> {
        let Some(value) = self.0.get(claim) else { return Ok(None) };
        match value.as_f64() {
            // A cast to an integer stays within its range.
            Some(seconds) if seconds >= 0.0 => Ok(Some((seconds * 1_000.0) as u64)),
            _ => Err(wrong(claim, "a number of seconds since 1970")),
        }
    }

    fn text(&self, claim: &str) -> Result<Option<&'a str>, TokenError> {
        match self.0.get(claim) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(wrong(claim, "a text")),
        }
    }

    /// An object of this type.
    fn object<T: Deserialize<'a>>(&self, claim: &str) -> Result<Option<T>, TokenError> {
        match self.0.get(claim) {
            None => Ok(None),
            Some(object @ Value::Object(_)) => T::deserialize(object).map(Some).map_err(|error| wrong(claim, error)),
            Some(_) => Err(wrong(claim, "an object")),
        }
    }

    /// A list of texts, or one text.
    fn list(&self, claim: &str) -> Result<Option<Vec<&'a str>>, TokenError> {
        let names = match self.0.get(claim) {
            None => return Ok(None),
            Some(Value::String(name)) => Some(vec![name.as_str()]),
            Some(Value::Array(names)) => names.iter().map(Value::as_str).collect(),
            Some(_) => None,
        };
        names.map(Some).ok_or_else(|| wrong(claim, "a list of texts, or one text"))
    }

    fn user(&self, claim: &str) -> Result<String, TokenError> {
        let user = match self.0.get(claim) {
            Some(Value::String(user)) => user.clone(),
            Some(Value::Number(number)) => number.to_string(),
            _ => String::new(),
        };
        if user.is_empty() || user.len() > USER_BYTES_MAX || user.chars().any(char::is_control) {
            return Err(wrong(claim, format_args!("the name of a user, of 1 to {USER_BYTES_MAX} bytes")));
        }
        Ok(user)
    }

    /// A token that names audiences is only for them (RFC 7519 §4.1.3).
    fn check_audience(&self, own: &[String]) -> Result<(), TokenError> {
        let named = self.list("aud")?;
        let is_for_this = match &named {
            Some(named) => named.iter().any(|name| own.iter().any(|own| own == name)),
            None => own.is_empty(),
        };
        let shown = || named.map_or("missing".into(), |named| format!("{named:?}"));
        if is_for_this { Ok(()) } else { Err(TokenError::Audience(shown())) }
    }
}

fn wrong(claim: &str, wanted: impl std::fmt::Display) -> TokenError {
    TokenError::Claim { claim: claim.into(), wanted: wanted.to_string() }
}

/// Most bytes of the name of a user.
const USER_BYTES_MAX: usize = 255;
