//! `encke token`: makes tokens and keys, and checks tokens as a server would.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};
use encke::{Patterns, SessionLimits, SessionTerms};
use encke_auth::{AuthSettings, Jwt, KeyPair, SigningKey};
use serde::Deserialize as _;
use serde_json::{Map, Value};

use crate::config::Sources;
use crate::logs::Escaped;
use crate::{FAILED, USAGE, complain, config_command};

/// Make and check tokens (JWT) for the section [auth] of the configuration, and their keys.
#[derive(Subcommand)]
pub(crate) enum Token {
    /// Print a new token for a user.
    Make(Make),
    /// Check a token as a server would, and print its claims; exit code 1 if it is refused.
    Check(Check),
    /// Make a pair of keys with the set of keys (JWKS) for the server, or a secret; never overwrites.
    Keys(Keys),
}

#[derive(Args)]
pub(crate) struct Make {
    /// The name of the user (sub).
    user: String,
    #[command(flatten)]
    signer: Signer,
    /// The algorithm; without it that of the key, RS256 or HS256.
    #[arg(long, value_name = "NAME")]
    algorithm: Option<String>,
    /// The time after which it ends: a number and s, m, h or d.
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "1h")]
    expires: u64,
    /// A channel or pattern to subscribe to; without any, all.
    #[arg(long, value_name = "CHANNEL", value_parser = parse_channel)]
    subscribe: Vec<String>,
    /// A channel or pattern to publish to; without any, all.
    #[arg(long, value_name = "CHANNEL", value_parser = parse_channel)]
    publish: Vec<String>,
    /// A server that it is for (aud).
    #[arg(long, value_name = "NAME")]
    audience: Vec<String>,
    /// Its issuer (iss).
    #[arg(long, value_name = "NAME")]
    issuer: Option<String>,
    /// Its id, by which it can be revoked (jti); without it, a random one.
    #[arg(long)]
    id: Option<String>,
    /// Any other claim, such as 'limits={"messages_per_s_max":5}'.
    #[arg(long, value_name = "NAME=JSON", value_parser = parse_claim)]
    claim: Vec<(String, Value)>,
    /// The name of the key; without it, the thumbprint of a key that is no secret.
    #[arg(long, value_name = "ID")]
    kid: Option<String>,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
struct Signer {
    /// A private key in PEM form (PKCS #8).
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// A file with the secret, for HMAC.
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// The environment variable with the secret, for HMAC.
    #[arg(long, value_name = "NAME")]
    secret_env: Option<String>,
}

#[derive(Args)]
pub(crate) struct Check {
    /// The token; without it, standard input.
    token: Option<String>,
    /// The file whose section [auth] decides [default: encke.toml].
    #[arg(long = "config")]
    file: Option<PathBuf>,
    #[command(flatten)]
    keys: Option<Verifying>,
    /// A name of the server, if the token must be for it.
    #[arg(long, value_name = "NAME")]
    audience: Vec<String>,
}

#[derive(Args)]
#[group(multiple = false)]
struct Verifying {
    /// A public key in PEM form, instead of those of the file.
    #[arg(long, value_name = "FILE")]
    public_key: Option<PathBuf>,
    /// A file with a set of keys, instead of those of the file.
    #[arg(long, value_name = "FILE")]
    jwks: Option<PathBuf>,
    /// A file with the secret, for HMAC.
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// The environment variable with the secret, for HMAC.
    #[arg(long, value_name = "NAME")]
    secret_env: Option<String>,
}

#[derive(Args)]
pub(crate) struct Keys {
    /// EdDSA, ES256, ES384, RS256 … PS512, or HS256, HS384, HS512 for a secret.
    #[arg(default_value = "EdDSA")]
    algorithm: String,
    /// The beginning of the files: NAME.private.pem, NAME.public.pem, NAME.jwks.json; or NAME.secret.
    #[arg(long, value_name = "NAME", default_value = "token")]
    out: String,
}

pub(crate) fn run(token: Token) -> ExitCode {
    let done = match token {
        Token::Make(options) => make(options),
        Token::Check(options) => return check(options),
        Token::Keys(options) => keys(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            complain(&problem);
            ExitCode::from(FAILED)
        }
    }
}

fn make(options: Make) -> Result<(), String> {
    let key = signing_key(&options)?;
    let mut claims = Map::new();
    let mut put = |name: &str, value: Value| drop(claims.insert(name.into(), value));
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    put("sub", options.user.into());
    put("iat", now_s.into());
    put("exp", now_s.saturating_add(options.expires).into());
    put("jti", options.id.map_or_else(random_id, Ok)?.into());
    for (name, values) in [("subscribe", options.subscribe), ("publish", options.publish), ("aud", options.audience)] {
        if !values.is_empty() {
            put(name, values.into());
        }
    }
    if let Some(issuer) = options.issuer {
        put("iss", issuer.into());
    }
    for (name, value) in options.claim {
        check_claim(&name, &value)?;
        put(&name, value);
    }
    let kid = options.kid.or_else(|| key.kid());
    let token = key.token(&claims, kid.as_deref()).map_err(|error| error.to_string())?;
    println!("{token}");
    Ok(())
}

fn signing_key(options: &Make) -> Result<SigningKey, String> {
    let algorithm = options.algorithm.as_deref();
    let located = |name: &dyn Display, error: &dyn Display| format!("{name}: {error}");
    let read = |path: &Path| std::fs::read(path).map_err(|error| located(&path.display(), &error));
    let Signer { key, secret_file, secret_env } = &options.signer;
    let (name, key) = if let Some(path) = key {
        (path.display().to_string(), SigningKey::of_pem(&read(path)?, algorithm))
    } else if let Some(path) = secret_file {
        let secret = read(path)?;
        // As the server reads it.
        let secret =
            secret.iter().rposition(|byte| !b"\r\n".contains(byte)).map_or(&secret[..0], |end| &secret[..=end]);
        (path.display().to_string(), SigningKey::of_secret(secret, algorithm))
    } else {
        let name = secret_env.clone().unwrap_or_default();
        let secret = std::env::var(&name).map_err(|error| located(&name, &error))?;
        (name, SigningKey::of_secret(secret.as_bytes(), algorithm))
    };
    key.map_err(|error| located(&name, &error))
}

fn random_id() -> Result<String, String> {
    let secret = KeyPair::generate("HS256").map_err(|error| error.to_string())?.private;
    Ok(secret.chars().take(22).collect())
}

fn check(options: Check) -> ExitCode {
    let settings = match check_settings(&options) {
        Ok(settings) => settings,
        Err(code) => return code,
    };
    let (is_given, mut token) = (options.token.is_some(), options.token.unwrap_or_default());
    if !is_given && let Err(error) = std::io::stdin().take(TOKEN_BYTES_MAX).read_to_string(&mut token) {
        complain(&format_args!("standard input: {error}"));
        return ExitCode::from(FAILED);
    }
    let token = token.trim();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let jwt = Jwt::new(&settings).map_err(|error| error.to_string());
    let (jwt, runtime) = match (jwt, runtime) {
        (Ok(jwt), Ok(runtime)) => (jwt, runtime),
        (Err(problem), _) => {
            complain(&problem);
            return ExitCode::from(USAGE);
        }
        (_, Err(error)) => {
            complain(&error);
            return ExitCode::from(FAILED);
        }
    };
    if let Some((header, claims)) = encke_auth::unverified(token) {
        // Nobody has signed them yet.
        println!("{}\n{}", Escaped(header), Escaped(claims));
    }
    match runtime.block_on(jwt.verify(token)) {
        Ok(identity) => {
            println!("accepted: user {}{}", identity.user, end_of(&identity));
            ExitCode::SUCCESS
        }
        Err(error) => {
            complain(&format_args!("refused: {error}; a client gets {}", error.reason()));
            ExitCode::from(FAILED)
        }
    }
}

/// The time that is left to a token.
fn end_of(identity: &encke::Identity) -> String {
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    match identity.expires_ms {
        Some(end_ms) => format!(", for {} s more with the leeway", end_ms.saturating_sub(now_ms) / 1_000),
        None => ", without end".into(),
    }
}

/// The settings of the file, with other keys if some are given.
fn check_settings(options: &Check) -> Result<AuthSettings, ExitCode> {
    let sources = Sources::of_file(options.file.clone());
    let of_file = match sources.read() {
        Ok(config) => config.sections.auth,
        Err(problems) if options.keys.is_none() || sources.file.is_some() => {
            return Err(config_command::complain_all(&problems));
        }
        Err(_) => None,
    };
    let Some(mut settings) = of_file.or_else(|| options.keys.as_ref().map(|_| AuthSettings::default())) else {
        complain(&"no section [auth]: name a file by --config, or a key by --public-key, --jwks or --secret-file");
        return Err(ExitCode::from(USAGE));
    };
    if let Some(Verifying { public_key, jwks, secret_file, secret_env }) = &options.keys {
        settings.secret = None;
        settings.secret_file.clone_from(secret_file);
        settings.secret_env.clone_from(secret_env);
        settings.public_key_files = public_key.iter().cloned().collect();
        (settings.jwks_url, settings.jwks_file) = (None, jwks.clone());
    }
    if !options.audience.is_empty() {
        settings.audience.clone_from(&options.audience);
    }
    Ok(settings)
}

fn keys(options: &Keys) -> Result<(), String> {
    let pair = KeyPair::generate(&options.algorithm).map_err(|error| error.to_string())?;
    let name = |end: &str| PathBuf::from(format!("{}.{end}", options.out));
    match (&pair.public, &pair.jwks) {
        (Some(public), Some(jwks)) => {
            write(&name("private.pem"), &pair.private, 0o600)?;
            write(&name("public.pem"), public, 0o644)?;
            write(&name("jwks.json"), jwks, 0o644)
        }
        _ => write(&name("secret"), &format!("{}\n", pair.private), 0o600),
    }
}

/// Writes a new file with these permissions.
fn write(path: &Path, text: &str, mode: u32) -> Result<(), String> {
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| format!("{}: {error}", path.display()))?;
    println!("{}", path.display());
    Ok(())
}

/// A time such as `90s`, `15m`, `12h` or `30d`, in whole seconds.
fn parse_time(text: &str) -> Result<u64, String> {
    let time = humantime::parse_duration(text);
    time.map(|time| time.as_secs()).map_err(|error| format!("a number and its unit, such as 90s or 15m: {error}"))
}

/// A channel or pattern, as a server reads it in a claim.
fn parse_channel(text: &str) -> Result<String, String> {
    let checked = Patterns::new([text]);
    checked.map(|_| text.into()).map_err(|_| "a channel such as /news/today or a pattern such as /news/**".into())
}

/// Checks a claim that a server understands under its default name.
fn check_claim(name: &str, value: &Value) -> Result<(), String> {
    let wrong = |reason: &dyn Display| format!("--claim {name}={value}: {reason}");
    match (name, value) {
        ("limits", _) => SessionLimits::deserialize(value).map(drop).map_err(|error| wrong(&error)),
        ("session_terms", _) => {
            let terms = SessionTerms::deserialize(value).map_err(|error| wrong(&error))?;
            terms.check().map_err(|error| wrong(&error))
        }
        ("subscribe" | "publish", Value::String(channel)) => {
            parse_channel(channel).map(drop).map_err(|error| wrong(&error))
        }
        ("subscribe" | "publish", Value::Array(channels)) => channels.iter().try_for_each(|channel| {
            parse_channel(channel.as_str().unwrap_or_default()).map(drop).map_err(|error| wrong(&error))
        }),
        ("subscribe" | "publish", _) => Err(wrong(&"a list of channels and patterns, or one")),
        _ => Ok(()),
    }
}

fn parse_claim(text: &str) -> Result<(String, Value), String> {
    let (name, value) = text.split_once('=').ok_or("NAME=JSON, such as admin=true")?;
    let value = serde_json::from_str(value).map_err(|error| format!("{error}; texts need quotes"))?;
    Ok((name.into(), value))
}

/// Most bytes of a token on standard input.
const TOKEN_BYTES_MAX: u64 = 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_unit() {
        for (text, seconds) in [("90s", 90), ("15m", 900), ("1h", 3_600), ("2d", 172_800), ("1h 30m", 5_400)] {
            assert_eq!(parse_time(text), Ok(seconds));
        }
        for wrong in ["", "m", "90", "-1h", "1x", "99999999999999999d", "5é"] {
            assert!(parse_time(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_claim_is_json() {
        assert_eq!(parse_claim("a=[1]"), Ok(("a".into(), serde_json::json!([1]))));
        assert!(parse_claim("a=b").is_err_and(|error| error.contains("quotes")));
        assert!(parse_claim("a").is_err());
    }
}
